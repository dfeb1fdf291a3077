#include "tests/bench/measure.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "kernels/backend.h"
#include "tests/bench/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_PER_S 1e9

/* ---- in the child: the trainer's hooks --------------------------------------------------------- */

struct child {
    const struct measure_options *options;
    struct measure *measure;
    struct backend *backend;
    struct peak *peak;   /* of the processor; NULL: not measured */
    uint64_t free_bytes; /* of the device, before the run */
    atomic_bool stop;
    int64_t started_ns;    /* of the run */
    int64_t step_start_ns; /* of the step at work */
    int64_t timed_ns;      /* when the first timed step began */
    struct rusage usage;   /* then */
    size_t told;           /* steps */
};

static void measure_peak(struct child *child)
{
    if (child->peak)
        child->measure->peak_gflops = peak_measure(child->peak);
}

static void on_dataset(void *context, const struct dataset_report *training,
                       const struct dataset_report *validation)
{
    struct child *child = context;

    (void)training;
    child->measure->evaluated_tokens = validation ? validation->token_count : 0;
}

static void on_plan(void *context, const struct train_plan *plan)
{
    struct child *child = context;

    child->measure->startup_s = (double)(clock_monotonic_ns() - child->started_ns) / NS_PER_S;
    child->measure->plan = plan->memory;
    child->measure->batch_tokens = plan->batch_tokens;
    measure_peak(child);
    child->step_start_ns = clock_monotonic_ns();
}

static void begin_timing(struct child *child)
{
    (void)getrusage(RUSAGE_SELF, &child->usage);
    if (!child->options->without_profile)
        backend_profile_start(child->backend);
    child->timed_ns = clock_monotonic_ns();
}

static void read_timing(struct child *child)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_SELF, &usage);
    child->measure->minor_faults = usage.ru_minflt - child->usage.ru_minflt;
    child->measure->major_faults = usage.ru_majflt - child->usage.ru_majflt;
    backend_profile_read(child->backend, child->measure->profile);
}

static void on_step(void *context, const struct train_step *step)
{
    struct child *child = context;
    struct measure *measure = child->measure;
    const int64_t now_ns = clock_monotonic_ns();
    const double elapsed_s = (double)(now_ns - child->step_start_ns) / NS_PER_S;
    const double timed_s = (double)(now_ns - child->timed_ns) / NS_PER_S;

    child->told++;
    if (child->told == 1) {
        measure->first_step_s = elapsed_s;
        if (child->options->on_card)
            measure->device_bytes = child->free_bytes - backend_free_bytes(child->backend);
    } else {
        measure->steps[measure->step_count].elapsed_s = elapsed_s;
        measure->steps[measure->step_count].loss = step->train_loss;
        measure->step_count++;
        read_timing(child); /* so far */
    }
    if (child->options->first_step_only || measure->step_count == child->options->step_count ||
        (child->told > 1 && child->options->seconds > 0 && timed_s > child->options->seconds))
        /* Stopping leaves out the evaluation. */
        atomic_store(&child->stop, !child->options->validation_path);
    measure_peak(child);
    if (child->told == 1)
        begin_timing(child);
    child->step_start_ns = clock_monotonic_ns();
}

static void on_epoch(void *context, const struct train_epoch *epoch)
{
    struct child *child = context;

    if (epoch->has_validation)
        child->measure->evaluated_s =
            (double)(clock_monotonic_ns() - child->step_start_ns) / NS_PER_S;
}

/* ---- in the child: the run --------------------------------------------------------------------- */

static bool open_card(struct child *child, struct error *err)
{
    const struct measure_options *options = child->options;
    const struct backend_options opening = {.device_index = options->device_index,
                                            .thread_count = options->thread_count};
    struct measure *measure = child->measure;
    struct backend_device device = {0};
    char reason[256];

    if (backend_open(BACKEND_CUDA, &opening, &child->backend, reason, sizeof(reason)) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", reason);
    (void)backend_describe(BACKEND_CUDA, options->device_index, &device);
    (void)snprintf(measure->device, sizeof(measure->device), "%s, %d multiprocessors, %s",
                   device.name, device.core_count, device.library);
    (void)backend_set_precision(child->backend, options->precision); /* for the peak */
    if (!options->without_peak)
        measure->peak_gflops =
            peak_of_card(child->backend, options->peak_size ? options->peak_size : PEAK_SIZE_CARD);
    child->free_bytes = backend_free_bytes(child->backend);
    if (backend_sync(child->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(child->backend));
    return true;
}

static bool open_backend(struct child *child, struct error *err)
{
    const struct backend_options options = {.thread_count = child->options->thread_count,
                                            .simd_level = child->options->simd_level};
    struct backend_device device = {0};
    const char *level = "";
    char reason[256];

    if (child->options->on_card)
        return open_card(child, err);
    if (backend_open(BACKEND_CPU, &options, &child->backend, reason, sizeof(reason)) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", reason);
    (void)backend_describe(BACKEND_CPU, 0, &device);
    (void)backend_choose_simd(BACKEND_CPU, options.simd_level, &level, reason, sizeof(reason));
    (void)snprintf(child->measure->device, sizeof(child->measure->device), "%s, %d cores, %s, %s",
                   device.name, device.core_count, level, device.library);
    if (!child->options->without_peak) {
        child->peak = peak_new(child->options->thread_count);
        if (!child->peak)
            return error_set(err, ERR_NO_MEMORY, "no memory to measure the peak");
    }
    return true;
}

/* Copies the first lines into the folder; *path then names the copy. count 0: the file as it is. */
static bool cut(const char **path, size_t count, const char *folder, const char *name,
                char copy[LIMIT_PATH_BYTES], struct error *err)
{
    struct mapping map = MAPPING_NONE;
    size_t size = 0;

    if (count == 0 || !*path)
        return true;
    if (!file_join(copy, LIMIT_PATH_BYTES, folder, name, err) || !mapping_open(&map, *path, err))
        return false;
    for (size_t lines = 0; size < map.size && lines < count; size++)
        lines += map.data[size] == '\n';
    const bool ok = file_write(copy, map.data, size, err);
    mapping_close(&map);
    *path = copy;
    return ok;
}

static bool train(struct child *child, const char *folder, struct error *err)
{
    const struct measure_options *options = child->options;
    char adapter[LIMIT_PATH_BYTES], training[LIMIT_PATH_BYTES], validation[LIMIT_PATH_BYTES];
    struct train_job job = {.base_folder = options->base_folder,
                            .base_name = "bench",
                            .training_path = options->training_path,
                            .validation_path = options->validation_path,
                            .checkpoint_folder = folder,
                            .adapter_path = adapter,
                            .device_label = options->on_card ? "cuda:0" : "cpu:0",
                            .hyper = hyperparameters_default()};
    const struct train_hooks hooks = {.context = child,
                                      .stop = &child->stop,
                                      .on_dataset = on_dataset,
                                      .on_plan = on_plan,
                                      .on_step = on_step,
                                      .on_epoch = on_epoch};
    struct counts counts[MEASURE_STEPS_MAX + 1];
    struct train_result result;
    size_t count = 0;

    job.hyper.n_epochs = 1;
    job.hyper.batch_size = options->batch_size;
    job.hyper.val_split = 0;
    if (options->max_len > 0)
        job.hyper.max_len = options->max_len;
    job.hyper.numerics = options->numerics;
    job.hyper.precision = options->precision;
    child->measure->lora_rank = job.hyper.lora_rank;
    if (!file_join(adapter, sizeof(adapter), folder, "adapter.safetensors", err) ||
        !cut(&job.training_path, options->line_count, folder, "training.jsonl", training, err) ||
        !cut(&job.validation_path, options->validation_line_count, folder, "validation.jsonl",
             validation, err) ||
        !open_backend(child, err))
        return false;
    child->started_ns = clock_monotonic_ns();
    if (!train_run(child->backend, &job, &hooks, &result, err))
        return false;

    char base[LIMIT_PATH_BYTES];
    size_t parameters;
    if (!file_join(base, sizeof(base), options->base_folder, "base.safetensors", err) ||
        !weights_check(base, &child->measure->geometry, &parameters, err) ||
        !counts_of_steps(&job, &child->measure->geometry, MEASURE_STEPS_MAX + 1, counts, &count,
                         err))
        return false;
    for (size_t i = 0; i < child->measure->step_count; i++)
        child->measure->steps[i].counts = counts[i + 1];
    return true;
}

/* Shared by parent and child. */
struct outcome {
    struct measure measure;
    struct error err;
    bool ok;
};

static void be_child(const struct measure_options *options, struct outcome *outcome)
{
    struct child child = {.options = options, .measure = &outcome->measure};
    char folder[] = "/tmp/needled-bench-XXXXXX", command[64];

    if (!mkdtemp(folder)) {
        (void)error_set(&outcome->err, ERR_IO, "no folder under /tmp");
        return;
    }
    outcome->ok = train(&child, folder, &outcome->err);
    (void)snprintf(command, sizeof(command), "rm -rf %s", folder);
    if (system(command) != 0)
        (void)fprintf(stderr, "left behind: %s\n", folder);
    backend_close(child.backend);
    peak_free(child.peak);
}

bool measure_run(const struct measure_options *options, struct measure *ret_measure,
                 struct error *err)
{
    struct outcome *outcome =
        mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rusage usage;
    int status = 0;
    bool ok = false;

    if (outcome == MAP_FAILED)
        return error_set(err, ERR_NO_MEMORY, "no memory for a result");
    (void)fflush(NULL); /* or both would write what is buffered */
    const pid_t child = fork();
    if (child == 0) {
        be_child(options, outcome);
        (void)fflush(NULL);
        _exit(0);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child) {
        error_set(err, ERR_IO, "no child process");
    } else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        error_set(err, ERR_INTERNAL, "the measured process died (status %d)", status);
    } else if (!outcome->ok) {
        *err = outcome->err;
    } else {
        *ret_measure = outcome->measure;
        ret_measure->peak_rss_mb = (double)usage.ru_maxrss / 1000; /* kB to MB */
        ok = true;
    }
    (void)munmap(outcome, sizeof(*outcome));
    return ok;
}

/* ---- figures ------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof(*values), compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

double measure_tokens_per_second(const struct measure *measure)
{
    double values[MEASURE_STEPS_MAX];

    for (size_t i = 0; i < measure->step_count; i++)
        values[i] = (double)measure->steps[i].counts.line_tokens / measure->steps[i].elapsed_s;
    return median(values, measure->step_count);
}

double measure_speedup(const struct measure *fast, const struct measure *slow)
{
    const size_t count = fast->step_count < slow->step_count ? fast->step_count : slow->step_count;
    double values[MEASURE_STEPS_MAX];

    for (size_t i = 0; i < count; i++)
        values[i] = slow->steps[i].elapsed_s / fast->steps[i].elapsed_s *
                    (double)fast->steps[i].counts.line_tokens /
                    (double)slow->steps[i].counts.line_tokens;
    return median(values, count);
}

double measure_step_ms(const struct measure *measure)
{
    double values[MEASURE_STEPS_MAX];

    for (size_t i = 0; i < measure->step_count; i++)
        values[i] = measure->steps[i].elapsed_s * 1e3;
    return median(values, measure->step_count);
}

static double flops_of(const struct measure *measure, const struct counts *counts)
{
    const struct flops flops = flops_of_step(&measure->geometry, measure->lora_rank, counts);

    return flops_total(&flops);
}

double measure_peak_share(const struct measure *measure)
{
    double values[MEASURE_STEPS_MAX];

    for (size_t i = 0; i < measure->step_count; i++)
        values[i] = flops_of(measure, &measure->steps[i].counts) /
                    (measure->steps[i].elapsed_s * measure->peak_gflops * 1e9);
    return median(values, measure->step_count);
}

double measure_total_s(const struct measure *measure)
{
    double total = 0;

    for (size_t i = 0; i < measure->step_count; i++)
        total += measure->steps[i].elapsed_s;
    return total;
}

struct counts measure_counts(const struct measure *measure)
{
    struct counts sum = {0};

    for (size_t i = 0; i < measure->step_count; i++) {
        const struct counts *counts = &measure->steps[i].counts;

        sum.line_tokens += counts->line_tokens;
        sum.rows += counts->rows;
        sum.line_rows += counts->line_rows;
        sum.target_rows += counts->target_rows;
        sum.grams += counts->grams;
        sum.window_pairs += counts->window_pairs;
        sum.global_pairs += counts->global_pairs;
    }
    return sum;
}

double measure_products_gflops(const struct measure *measure)
{
    double flops = 0, elapsed_ns = 0;

    for (size_t i = 0; i < measure->step_count; i++) {
        const struct flops step =
            flops_of_step(&measure->geometry, measure->lora_rank, &measure->steps[i].counts);

        flops += flops_products(&step);
    }
    for (size_t i = 0; i < BACKEND_PROFILE_COUNT; i++)
        if (strncmp(measure->profile[i].name, "matmul", 6) == 0)
            elapsed_ns += (double)measure->profile[i].elapsed_ns;
    return elapsed_ns > 0 ? flops / elapsed_ns : 0;
}

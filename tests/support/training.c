#include "tests/support/training.h"

#include "daemon/base/file.h"
#include "daemon/model/safetensors.h"
#include "tests/support/scratch.h"

/* ---- hooks ----------------------------------------------------------------------------------- */

static bool keep_for_resume(void *context)
{
    struct training *training = context;

    training->keep_asked++;
    return training->keep;
}

static void on_dataset(void *context, const struct dataset_report *report,
                       const struct dataset_report *validation)
{
    struct training *training = context;

    (void)validation; /* its numbers are in the plan */
    training->dataset_count++;
    training->report = *report;
}

static void on_plan(void *context, const struct train_plan *plan)
{
    struct training *training = context;

    training->plan_count++;
    training->plan = *plan;
}

static void on_step(void *context, const struct train_step *step)
{
    struct training *training = context;

    assert_true(training->step_count < TRAINING_STEPS_MAX);
    training->steps[training->step_count++] = *step;
    if (training->after_step)
        training->after_step(training, step);
}

static void on_epoch(void *context, const struct train_epoch *epoch)
{
    struct training *training = context;
    char sha256[SHA256_HEX_SIZE];
    struct error err = {0};

    assert_true(training->epoch_count < TRAINING_EPOCHS_MAX);
    if (epoch->checkpoint_path) {
        training->epoch_file_count++;
        assert_true(file_sha256(epoch->checkpoint_path, sha256, &err));
        assert_string_equal(sha256, epoch->checkpoint_sha256);
    }
    training->epochs[training->epoch_count++] = *epoch;
    if (training->after_epoch)
        training->after_epoch(training, epoch);
}

static void on_checkpoint(void *context, size_t step, const char *path, uint64_t size_bytes,
                          const char *sha256)
{
    struct training *training = context;
    char found[SHA256_HEX_SIZE];
    struct error err = {0};

    assert_true(size_bytes > 0);
    assert_true(file_sha256(path, found, &err));
    assert_string_equal(found, sha256);
    training->checkpoint_count++;
    if (training->after_checkpoint)
        training->after_checkpoint(training, step, path);
}

static void on_warning(void *context, const char *text)
{
    struct training *training = context;

    training->warning_count++;
    snprintf(training->last_warning, sizeof(training->last_warning), "%s", text);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

void training_init(struct training *training, const char *base_folder, const char *training_path)
{
    struct error err = {0};

    *training = (struct training){.scratch = scratch_new()};
    snprintf(training->adapter_path, sizeof(training->adapter_path), "%s",
             scratch_path(training->scratch, "adapter.safetensors"));
    snprintf(training->data_path, sizeof(training->data_path), "%s",
             scratch_path(training->scratch, "data.jsonl"));
    snprintf(training->checkpoint_folder, sizeof(training->checkpoint_folder), "%s",
             scratch_path(training->scratch, "checkpoints"));
    if (!file_make_folder(training->checkpoint_folder, &err))
        fail_msg("%s", err.message);
    training->job = (struct train_job){
        .base_folder = base_folder,
        .base_name = "base.safetensors",
        .training_path = training_path,
        .checkpoint_folder = training->checkpoint_folder,
        .adapter_path = training->adapter_path,
        .device_label = "cpu:0",
        .hyper = hyperparameters_default(),
    };
    training->hooks = (struct train_hooks){
        .context = training,
        .stop = &training->stop,
        .keep_for_resume = keep_for_resume,
        .on_dataset = on_dataset,
        .on_plan = on_plan,
        .on_step = on_step,
        .on_epoch = on_epoch,
        .on_checkpoint = on_checkpoint,
        .on_warning = on_warning,
    };
}

void training_release(struct training *training)
{
    scratch_free(training->scratch);
    training->scratch = NULL;
}

bool training_try(struct training *training, struct backend *be, struct error *err)
{
    const size_t before = backend_allocated_bytes(be);
    const bool ok = train_run(be, &training->job, &training->hooks, &training->result, err);

    assert_int_equal(backend_allocated_bytes(be), before); /* all memory is given back */
    return ok;
}

void training_run(struct training *training, struct backend *be)
{
    struct error err = {0};

    if (!training_try(training, be, &err))
        fail_msg("%s (%s)", err.message, err.param);
}

struct backend *training_backend(enum backend_kind kind)
{
    const struct backend_options options = {.thread_count = 2};
    struct backend *be = NULL;
    char reason[256] = "";

    if (backend_open(kind, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s: %s", backend_name(kind), reason);
    return be;
}

struct backend *training_backend_at(const char *simd_level)
{
    const struct backend_options options = {.thread_count = 2, .simd_level = simd_level};
    struct backend *be = NULL;
    char reason[256] = "";

    switch (backend_open(BACKEND_CPU, &options, &be, reason, sizeof(reason))) {
    case BACKEND_OK:
        return be;
    case BACKEND_ABSENT:
        return NULL;
    case BACKEND_NO_MEMORY:
    case BACKEND_FAULT:
    case BACKEND_CHECK_FAILED:
        break;
    }
    fail_msg("%s: %s", simd_level, reason);
    return NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

float *training_tensors(const char *path, const char *prefix, size_t *ret_count)
{
    struct safetensors *file = NULL;
    struct error err = {0};
    float *values = NULL;
    size_t count = 0;

    if (!safetensors_open(path, &file, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *tensor = safetensors_at(file, i);
        if (strncmp(tensor->name, prefix, strlen(prefix)) != 0)
            continue;
        values = reallocarray(values, count + tensor->element_count, sizeof(*values));
        assert_non_null(values);
        if (!tensor_to_f32(tensor, values + count, &err))
            fail_msg("%s", err.message);
        count += tensor->element_count;
    }
    safetensors_close(file);
    if (count == 0)
        fail_msg("%s: no tensor '%s'", path, prefix);
    *ret_count = count;
    return values;
}

bool training_same_bytes(const char *path_a, const char *path_b)
{
    size_t size_a, size_b;
    char *a = scratch_read(path_a, &size_a), *b = scratch_read(path_b, &size_b);
    const bool same = size_a == size_b && memcmp(a, b, size_a) == 0;

    free(a);
    free(b);
    return same;
}

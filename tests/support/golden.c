#include "tests/support/golden.h"

#include "daemon/base/file.h"
#include "daemon/base/json.h"

#include <math.h>

static const struct golden_bounds bounds_of[] = {
    [NUMERICS_W4A8] = {.loss = 2e-2, .valid_loss = 1e-2, .norm = 2e-2, .a = 6e-3, .b = 5e-2},
    [NUMERICS_FLOAT32] = {.loss = 2e-5, .valid_loss = 2e-5, .norm = 2e-5, .a = 1e-4, .b = 1e-4},
};
static const struct {
    const char *run, *adapter, *steps;
} names_of[] = {
    [NUMERICS_W4A8] = {"train_run.json", "adapter.safetensors", "train_steps.safetensors"},
    [NUMERICS_FLOAT32] = {"train_run_float.json", "adapter_float.safetensors",
                          "train_steps_float.safetensors"},
};

/* ---- the recorded run ------------------------------------------------------------------------ */

static double number_of(const struct json *object, const char *name)
{
    const struct json *number = json_member(object, name);

    if (!number)
        fail_msg("no '%s' in the recorded run", name);
    return json_number(number);
}

static double element_of(const struct json *object, const char *name, size_t index)
{
    const struct json *number = json_at(json_member(object, name), index);

    if (!number)
        fail_msg("no %s[%zu] in the recorded run", name, index);
    return json_number(number);
}

static struct json *read_json(const char *folder, const char *name)
{
    char path[128];
    struct mapping map = MAPPING_NONE;
    struct json *json = NULL;
    struct error err = {0};

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (!mapping_open(&map, path, &err) ||
        !json_parse((const char *)map.data, map.size, &json, &err))
        fail_msg("%s: %s", path, err.message);
    mapping_close(&map);
    return json;
}

static struct hyperparameters recorded_hyper(const struct json *run, enum numerics numerics)
{
    const struct json *args = json_member(run, "args");

    return (struct hyperparameters){
        .n_epochs = (size_t)number_of(args, "epochs"),
        .batch_size = (size_t)number_of(args, "batch_size"),
        .learning_rate = number_of(args, "lr"),
        .lora_rank = (size_t)number_of(args, "lora_rank"),
        .lora_alpha = number_of(args, "lora_alpha"),
        .max_len = (size_t)number_of(args, "max_len"),
        .val_split = number_of(args, "val_split"),
        .numerics = numerics,
        .overlong = OVERLONG_TRUNCATE,
        .data_rules = DATA_RULES_AS_REFERENCE,
        .seed = (uint64_t)number_of(args, "seed"),
    };
}

void golden_open(struct golden *golden, struct training *training, const char *folder,
                 enum numerics numerics)
{
    *golden = (struct golden){
        .training = training,
        .run = read_json(folder, names_of[numerics].run),
        .bounds = &bounds_of[numerics],
        .is_mini = strcmp(folder, GOLDEN_MINI) == 0,
    };
    snprintf(golden->data_path, sizeof(golden->data_path), "%s/train.jsonl", folder);
    snprintf(golden->adapter_path, sizeof(golden->adapter_path), "%s/%s", folder,
             names_of[numerics].adapter);
    snprintf(golden->steps_path, sizeof(golden->steps_path), "%s/%s", folder,
             names_of[numerics].steps);
    training_init(training, folder, golden->data_path);
    training->job.hyper = recorded_hyper(golden->run, numerics);
    training->context = golden;
}

void golden_close(struct golden *golden)
{
    json_free(golden->run);
    training_release(golden->training);
}

/* ---- comparing ------------------------------------------------------------------------------- */

void check_near(double found, double wanted, double bound, const char *what, size_t index)
{
    if (!(fabs(found - wanted) <= bound))
        fail_msg("%s %zu: %.9g, wanted %.9g within %g", what, index, found, wanted, bound);
}

double relative_difference(const float *found, const float *wanted, size_t count)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)found[i] - wanted[i]) * ((double)found[i] - wanted[i]);
        size += (double)wanted[i] * wanted[i];
    }
    return difference == 0 ? 0 : sqrt(difference / size);
}

/* found: all matrices side by side in order of their names, as the file has them. */
static void check_matrices(const struct golden *golden, const char *path, const char *prefix,
                           const float *found, size_t count)
{
    static const char *const groups[] = {"gate", "k", "out", "q", "v"};
    size_t at = 0;

    for (size_t i = 0; i < 2 * COUNT_OF(groups); i++) {
        char name[128];
        size_t size;
        const char matrix = i % 2 ? 'B' : 'A';

        snprintf(name, sizeof(name), "%sstack/layers/block/self_attn/%s_proj/kernel/%c", prefix,
                 groups[i / 2], matrix);
        if (golden->is_mini && i / 2 == 0)
            continue; /* its gate is all zero and left out */
        float *wanted = training_tensors(path, name, &size);
        assert_true(at + size <= count);
        const double apart = relative_difference(found + at, wanted, size);
        if (!(apart <= (matrix == 'A' ? golden->bounds->a : golden->bounds->b)))
            fail_msg("%s: %g apart", name, apart);
        free(wanted);
        at += size;
    }
    assert_int_equal(at, count);
}

static size_t recorded_steps(const struct golden *golden)
{
    return (size_t)number_of(golden->run, "total_steps");
}

/* A resume checkpoint after every step shows the adapter as it was then. */
static void check_after_step(struct training *training, size_t step, const char *path)
{
    struct golden *golden = training->context;
    char prefix[32];
    size_t count;

    if (step > 3 && step != recorded_steps(golden))
        return; /* not recorded */
    float *values = training_tensors(path, "values", &count);
    snprintf(prefix, sizeof(prefix), "after%zu/", step - 1);
    check_matrices(golden, golden->steps_path, prefix, values, count);
    free(values);
    golden->compared_steps++;
}

static void stop_when_asked(struct training *training, const struct train_step *step)
{
    const struct golden *golden = training->context;

    if (step->step == golden->stop_after_step)
        atomic_store(&training->stop, true);
}

static void check_plan(const struct golden *golden)
{
    const struct train_plan *plan = &golden->training->plan;
    const struct json *run = golden->run;

    assert_int_equal(plan->total_steps, recorded_steps(golden));
    assert_int_equal(plan->example_count, number_of(run, "train_count"));
    assert_int_equal(plan->validation_count, number_of(run, "n_val"));
    assert_int_equal(plan->steps_per_epoch, number_of(run, "steps_per_epoch"));
    assert_int_equal(plan->warmup_steps, number_of(run, "warmup_steps"));
    assert_int_equal(plan->skipped_group_count, golden->is_mini ? 1 : 0);
    assert_int_equal(golden->training->report.example_count, number_of(run, "usable_examples"));
}

static void check_steps(const struct golden *golden, size_t count)
{
    const struct training *training = golden->training;
    const struct json *run = golden->run;

    assert_int_equal(training->step_count, count);
    for (size_t i = 0; i < count; i++) {
        const struct train_step *step = &training->steps[i];
        const double norm = element_of(run, "global_grad_norm_per_step", i);

        assert_int_equal(step->step, i + 1);
        assert_int_equal(step->total_steps, recorded_steps(golden));
        assert_true(step->learning_rate == element_of(run, "lr_per_step", i));
        check_near(step->train_loss, element_of(run, "loss_per_step", i), golden->bounds->loss,
                   "loss of step", i);
        check_near(step->grad_norm, norm, golden->bounds->norm * norm, "gradient norm of step", i);
        assert_true(step->tokens_per_second > 0);
        assert_true(step->train_mean_token_accuracy >= 0 && step->train_mean_token_accuracy < 1);
    }
}

static void check_epochs(const struct golden *golden, size_t count)
{
    const struct training *training = golden->training;

    assert_int_equal(training->epoch_count, count);
    for (size_t i = 0; i < count; i++) {
        const struct train_epoch *epoch = &training->epochs[i];

        assert_int_equal(epoch->epoch, i + 1);
        assert_int_equal(epoch->step, (i + 1) * training->plan.steps_per_epoch);
        assert_true(epoch->has_validation);
        check_near(epoch->full_valid_loss, element_of(golden->run, "val_loss_per_epoch", i),
                   golden->bounds->valid_loss, "validation loss of epoch", i);
    }
}

void golden_check_run(struct golden *golden, struct backend *be)
{
    struct training *training = golden->training;
    const size_t total = recorded_steps(golden), stop = golden->stop_after_step;
    const bool is_whole = stop == 0 || stop >= total;
    const size_t steps = is_whole ? total : stop;
    size_t count;

    training->job.checkpoint_interval_steps = 1;
    training->after_checkpoint = check_after_step;
    training->after_step = is_whole ? NULL : stop_when_asked;
    training->keep = true;
    training_run(training, be);

    assert_int_equal(training->result.end, is_whole ? TRAIN_DONE : TRAIN_STOPPED);
    check_plan(golden);
    check_steps(golden, steps);
    check_epochs(golden, is_whole ? training->job.hyper.n_epochs
                                  : (steps - 1) / training->plan.steps_per_epoch);
    assert_true(golden->compared_steps >= (steps < 3 ? steps : 3));
    if (!is_whole)
        return;
    assert_int_equal(training->epoch_file_count, training->epoch_count - 1); /* and the adapter */
    float *adapter = training_tensors(training->adapter_path, "lora/", &count);
    check_matrices(golden, golden->adapter_path, "lora/", adapter, count);
    free(adapter);
}

/*
 * Proves that a whole run is the reference's: split, batches, rates, losses, gradient norms, the
 * adapter after each recorded step and at the end, in both numerics and both recorded geometries.
 */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/train/inputs.h"
#include "daemon/train/packing.h"
#include "tests/support/training.h"

#include <math.h>

#define MAIN FIXTURES "needle3"
#define MINI FIXTURES "needle3/mini"

/* ---- the recorded runs ----------------------------------------------------------------------- */

/* Bounds from the fixtures' own README: what two right implementations differ by, with room. */
struct bounds {
    double loss, valid_loss; /* absolute */
    double norm;             /* relative */
    double a, b;             /* relative, Frobenius, per matrix */
};
static const struct bounds bounds_of[] = {
    [NUMERICS_W4A8] = {.loss = 2e-2, .valid_loss = 1e-2, .norm = 2e-2, .a = 6e-3, .b = 5e-2},
    [NUMERICS_FLOAT32] = {.loss = 2e-5, .valid_loss = 2e-5, .norm = 2e-5, .a = 1e-4, .b = 1e-4},
};
static const char *const run_names[] = {
    [NUMERICS_W4A8] = "train_run.json",
    [NUMERICS_FLOAT32] = "train_run_float.json",
};
static const char *const adapter_names[] = {
    [NUMERICS_W4A8] = "adapter.safetensors",
    [NUMERICS_FLOAT32] = "adapter_float.safetensors",
};
static const char *const step_names[] = {
    [NUMERICS_W4A8] = "train_steps.safetensors",
    [NUMERICS_FLOAT32] = "train_steps_float.safetensors",
};

struct golden {
    struct json *run;
    const struct bounds *bounds;
    char data_path[128], adapter_path[128], steps_path[128];
    size_t compared_steps;
};

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

static void open_golden(struct golden *golden, struct training *training, const char *folder,
                        enum numerics numerics)
{
    *golden = (struct golden){.run = read_json(folder, run_names[numerics]),
                              .bounds = &bounds_of[numerics]};
    snprintf(golden->data_path, sizeof(golden->data_path), "%s/train.jsonl", folder);
    snprintf(golden->adapter_path, sizeof(golden->adapter_path), "%s/%s", folder,
             adapter_names[numerics]);
    snprintf(golden->steps_path, sizeof(golden->steps_path), "%s/%s", folder, step_names[numerics]);
    training_init(training, folder, golden->data_path);
    training->job.hyper = recorded_hyper(golden->run, numerics);
    training->context = golden;
}

static void close_golden(struct golden *golden, struct training *training)
{
    json_free(golden->run);
    training_release(training);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void check_near(double found, double wanted, double bound, const char *what, size_t index)
{
    if (!(fabs(found - wanted) <= bound))
        fail_msg("%s %zu: %.9g, wanted %.9g within %g", what, index, found, wanted, bound);
}

static double relative_difference(const float *found, const float *wanted, size_t count)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)found[i] - wanted[i]) * ((double)found[i] - wanted[i]);
        size += (double)wanted[i] * wanted[i];
    }
    return difference == 0 ? 0 : sqrt(difference / size);
}

/* found: all matrices side by side in order of their names, as the file has them. */
static void check_matrices(const char *path, const char *prefix, const float *found, size_t count,
                           const struct bounds *bounds)
{
    static const char *const groups[] = {"gate", "k", "out", "q", "v"};
    size_t at = 0;

    for (size_t i = 0; i < 2 * COUNT_OF(groups); i++) {
        char name[128];
        size_t size;
        const char matrix = i % 2 ? 'B' : 'A';

        snprintf(name, sizeof(name), "%sstack/layers/block/self_attn/%s_proj/kernel/%c", prefix,
                 groups[i / 2], matrix);
        if (strstr(path, "/mini/") && i / 2 == 0)
            continue; /* its gate is all zero and left out */
        float *wanted = training_tensors(path, name, &size);
        assert_true(at + size <= count);
        const double apart = relative_difference(found + at, wanted, size);
        if (!(apart <= (matrix == 'A' ? bounds->a : bounds->b)))
            fail_msg("%s: %g apart", name, apart);
        free(wanted);
        at += size;
    }
    assert_int_equal(at, count);
}

static bool is_recorded_step(const struct golden *golden, size_t step)
{
    return step < 3 || step + 1 == (size_t)number_of(golden->run, "total_steps");
}

/* A resume checkpoint after every step shows the adapter as it was then. */
static void check_after_step(struct training *training, size_t step, const char *path)
{
    struct golden *golden = training->context;
    char prefix[32];
    size_t count;

    if (!is_recorded_step(golden, step - 1))
        return;
    float *values = training_tensors(path, "values", &count);
    snprintf(prefix, sizeof(prefix), "after%zu/", step - 1);
    check_matrices(golden->steps_path, prefix, values, count, golden->bounds);
    free(values);
    golden->compared_steps++;
}

static void check_steps(const struct golden *golden, const struct training *training)
{
    const struct json *run = golden->run;
    const size_t total = (size_t)number_of(run, "total_steps");

    assert_int_equal(training->step_count, total);
    for (size_t i = 0; i < total; i++) {
        const struct train_step *step = &training->steps[i];
        const double norm = element_of(run, "global_grad_norm_per_step", i);

        assert_int_equal(step->step, i + 1);
        assert_int_equal(step->total_steps, total);
        assert_true(step->learning_rate == element_of(run, "lr_per_step", i));
        check_near(step->train_loss, element_of(run, "loss_per_step", i), golden->bounds->loss,
                   "loss of step", i);
        check_near(step->grad_norm, norm, golden->bounds->norm * norm, "gradient norm of step", i);
        assert_true(step->tokens_per_second > 0);
        assert_true(step->train_mean_token_accuracy >= 0 && step->train_mean_token_accuracy < 1);
    }
}

static void check_epochs(const struct golden *golden, const struct training *training)
{
    const size_t epochs = training->job.hyper.n_epochs;

    assert_int_equal(training->epoch_count, epochs);
    assert_int_equal(training->epoch_file_count, epochs - 1); /* the last is the adapter */
    for (size_t i = 0; i < epochs; i++) {
        const struct train_epoch *epoch = &training->epochs[i];

        assert_int_equal(epoch->epoch, i + 1);
        assert_int_equal(epoch->step, (i + 1) * training->plan.steps_per_epoch);
        assert_true(epoch->has_validation);
        check_near(epoch->full_valid_loss, element_of(golden->run, "val_loss_per_epoch", i),
                   golden->bounds->valid_loss, "validation loss of epoch", i);
    }
}

static void check_run(enum backend_kind kind, const char *folder, enum numerics numerics)
{
    struct backend *be = training_backend(kind);
    static struct training training;
    struct golden golden;
    size_t count;

    open_golden(&golden, &training, folder, numerics);
    training.job.checkpoint_interval_steps = 1;
    training.after_checkpoint = check_after_step;
    training_run(&training, be);

    assert_int_equal(training.result.end, TRAIN_DONE);
    assert_int_equal(training.plan.example_count, number_of(golden.run, "train_count"));
    assert_int_equal(training.plan.validation_count, number_of(golden.run, "n_val"));
    assert_int_equal(training.plan.steps_per_epoch, number_of(golden.run, "steps_per_epoch"));
    assert_int_equal(training.plan.warmup_steps, number_of(golden.run, "warmup_steps"));
    assert_int_equal(training.report.example_count, number_of(golden.run, "usable_examples"));
    assert_int_equal(training.plan.skipped_group_count, strstr(folder, "mini") ? 1 : 0);
    check_steps(&golden, &training);
    check_epochs(&golden, &training);
    assert_true(golden.compared_steps >= 3);
    float *adapter = training_tensors(training.adapter_path, "lora/", &count);
    check_matrices(golden.adapter_path, "lora/", adapter, count, golden.bounds);
    free(adapter);
    close_golden(&golden, &training);
    backend_close(be);
}

static void the_float_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(BACKEND_CPU, MAIN, NUMERICS_FLOAT32);
}

static void the_quantised_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(BACKEND_CPU, MAIN, NUMERICS_W4A8);
}

static void the_small_float_run_is_the_recorded_one_on_both_backends(void **state)
{
    (void)state;
    check_run(BACKEND_REF, MINI, NUMERICS_FLOAT32);
    check_run(BACKEND_CPU, MINI, NUMERICS_FLOAT32);
}

static void the_small_quantised_run_is_the_recorded_one_on_both_backends(void **state)
{
    (void)state;
    check_run(BACKEND_REF, MINI, NUMERICS_W4A8);
    check_run(BACKEND_CPU, MINI, NUMERICS_W4A8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_float_run_is_the_recorded_one),
        cmocka_unit_test(the_quantised_run_is_the_recorded_one),
        cmocka_unit_test(the_small_float_run_is_the_recorded_one_on_both_backends),
        cmocka_unit_test(the_small_quantised_run_is_the_recorded_one_on_both_backends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

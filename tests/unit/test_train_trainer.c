/*
 * Proves that a whole run is the reference's: split, batches, rates, losses, gradient norms, the
 * adapter after each recorded step and at the end, in both numerics and both recorded geometries.
 * Then what holds for any run: how batches are cut does not show, equal jobs give equal bytes, and
 * numbers that are not finite stop the job.
 */
#include "daemon/model/safetensors.h"
#include "kernels/cpu/level.h"
#include "tests/support/golden.h"

#include <math.h>

/* ---- the recorded runs ----------------------------------------------------------------------- */

/* Takes the backend. */
static void check_run(struct backend *be, const char *folder, enum numerics numerics)
{
    static struct training training;
    struct golden golden;

    golden_open(&golden, &training, folder, numerics);
    golden_check_run(&golden, be);
    golden_close(&golden);
    backend_close(be);
}

/* On ref and on every level of SIMD that this processor has. */
static void check_small_runs(enum numerics numerics)
{
    check_run(training_backend(BACKEND_REF), GOLDEN_MINI, numerics);
    for (size_t i = 0; i < level_count; i++) {
        struct backend *be = training_backend_at(levels[i].name);

        assert_true(be || strcmp(levels[i].name, "plain") != 0);
        if (be)
            check_run(be, GOLDEN_MINI, numerics);
    }
}

static void the_float_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(training_backend(BACKEND_CPU), GOLDEN_MAIN, NUMERICS_FLOAT32);
}

static void the_quantised_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(training_backend(BACKEND_CPU), GOLDEN_MAIN, NUMERICS_W4A8);
}

static void the_small_float_run_is_the_recorded_one_at_every_level(void **state)
{
    (void)state;
    check_small_runs(NUMERICS_FLOAT32);
}

static void the_small_quantised_run_is_the_recorded_one_at_every_level(void **state)
{
    (void)state;
    check_small_runs(NUMERICS_W4A8);
}

/* ---- any run --------------------------------------------------------------------------------- */

static struct training first, second;

static void init_small(struct training *training, const char *data, enum numerics numerics)
{
    training_init(training, GOLDEN_MINI, data);
    training->job.hyper.numerics = numerics;
    training->job.hyper.lora_rank = 4;
    training->job.hyper.lora_alpha = 8;
    training->job.hyper.learning_rate = 3e-3;
    training->job.hyper.max_len = 512;
}

static void check_adapters_near(const char *path_a, const char *path_b, double bound)
{
    size_t count_a, count_b;
    float *a = training_tensors(path_a, "lora/", &count_a);
    float *b = training_tensors(path_b, "lora/", &count_b);

    assert_int_equal(count_a, count_b);
    const double apart = relative_difference(a, b, count_a);
    if (!(apart <= bound))
        fail_msg("%g apart", apart);
    free(a);
    free(b);
}

#define SEVENTEEN FIXTURES "inputs/jsonl/seventeen.jsonl"

/* Sums of the same numbers in another order: float32 rounding, and in W4A8 a value or two on the
 * other side of a rounding boundary. */
static void batches_cut_in_four_give_the_same_run(void **state)
{
    (void)state;
    static const double bounds[] = {[NUMERICS_W4A8] = 6e-3, [NUMERICS_FLOAT32] = 1e-4};
    struct backend *be = training_backend(BACKEND_CPU);

    for (enum numerics numerics = NUMERICS_W4A8; numerics <= NUMERICS_FLOAT32; numerics++) {
        init_small(&first, SEVENTEEN, numerics);
        init_small(&second, SEVENTEEN, numerics);
        first.job.hyper.n_epochs = second.job.hyper.n_epochs = 1;
        first.job.hyper.val_split = second.job.hyper.val_split = 0;
        training_run(&first, be);
        second.job.batch_token_limit = first.plan.batch_tokens / 4;
        training_run(&second, be);

        assert_true(second.plan.batch_tokens < first.plan.batch_tokens);
        assert_int_equal(first.step_count, 2);
        assert_int_equal(second.step_count, 2);
        assert_int_equal(first.steps[0].tokens + first.steps[1].tokens, first.report.token_count);
        assert_true(first.steps[1].tokens > 0 && first.steps[1].train_loss > 0);
        assert_int_equal(first.result.trained_tokens, first.report.target_count);
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(first.steps[i].tokens, second.steps[i].tokens);
            check_near(second.steps[i].train_loss, first.steps[i].train_loss, bounds[numerics],
                       "loss of step", i);
            check_near(second.steps[i].train_mean_token_accuracy,
                       first.steps[i].train_mean_token_accuracy, bounds[numerics],
                       "accuracy of step", i);
        }
        check_adapters_near(second.adapter_path, first.adapter_path, bounds[numerics]);
        training_release(&first);
        training_release(&second);
    }
    backend_close(be);
}

static void less_memory_computes_layers_again_to_the_same_bytes(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);

    init_small(&first, SEVENTEEN, NUMERICS_W4A8);
    init_small(&second, SEVENTEEN, NUMERICS_W4A8);
    first.job.batch_token_limit = second.job.batch_token_limit = 1; /* as many as a line has */
    training_run(&first, be);
    assert_int_equal(first.plan.recomputed_layers, 0);
    second.job.memory_limit_bytes = first.plan.total_bytes - 1;
    training_run(&second, be);
    assert_int_equal(second.plan.batch_tokens, first.plan.batch_tokens);
    assert_int_equal(second.plan.recomputed_layers, 1);
    assert_true(second.plan.total_bytes < first.plan.total_bytes);
    assert_true(training_same_bytes(first.adapter_path, second.adapter_path));
    training_release(&first);
    training_release(&second);
    backend_close(be);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which take their own */
static size_t own_bytes(const char *field)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    size_t kilobytes = 0;

    assert_non_null(status);
    while (fgets(line, sizeof(line), status)) {
        if (strncmp(line, field, strlen(field)) == 0)
            kilobytes = strtoull(line + strlen(field) + 1, NULL, 10);
    }
    (void)fclose(status);
    assert_true(kilobytes > 0);
    return kilobytes * 1024;
}

/* The device's share is compared to the byte elsewhere (test_model_model); this is all of it. */
static void a_run_takes_no_more_memory_than_it_planned(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    FILE *forget = fopen("/proc/self/clear_refs", "w");

    assert_non_null(forget);
    assert_true(fputs("5", forget) >= 0); /* the peak starts from here */
    assert_int_equal(fclose(forget), 0);
    const size_t before = own_bytes("VmRSS");
    training_init(&first, GOLDEN_MAIN, SEVENTEEN);
    first.job.hyper.max_len = 512;
    first.job.hyper.n_epochs = 1;
    training_run(&first, be);
    const size_t taken = own_bytes("VmHWM") - before;
    if (taken > first.plan.total_bytes)
        fail_msg("%zu bytes taken, %zu planned", taken, first.plan.total_bytes);
    training_release(&first);
    backend_close(be);
}
#endif

static void too_little_memory_is_refused_in_bytes(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    struct error err = {0};

    init_small(&first, SEVENTEEN, NUMERICS_W4A8);
    first.job.memory_limit_bytes = 1000003;
    assert_false(training_try(&first, be, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_non_null(strstr(err.message, "1000003 are available"));
    assert_non_null(strstr(err.message, "bytes of memory are needed"));
    assert_int_equal(first.plan_count, 0);
    assert_int_equal(first.step_count, 0);
    training_release(&first);
    backend_close(be);
}

static void one_example_makes_three_steps_without_validation(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    size_t count;

    training_init(&first, GOLDEN_MINI, FIXTURES "inputs/jsonl/one-example.jsonl");
    first.job.hyper.max_len = 512;
    training_run(&first, be);
    assert_int_equal(first.step_count, 3);
    assert_int_equal(first.plan.validation_count, 0);
    assert_non_null(first.plan.validation_note);
    assert_non_null(strstr(first.plan.validation_note, "no validation"));
    assert_null(first.plan.warmup_note);
    assert_false(first.epochs[0].has_validation);
    assert_true(isnan(first.result.final_valid_loss) != 0);

    float *values = training_tensors(first.adapter_path,
                                     "lora/stack/layers/block/self_attn/q_proj/kernel/B", &count);
    double moved = 0;
    for (size_t i = 0; i < count; i++)
        moved += fabs((double)values[i]);
    assert_true(moved > 0); /* B starts as zeros */
    free(values);
    training_release(&first);
    backend_close(be);
}

static void a_single_step_has_no_warm_up_and_says_so(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);

    init_small(&first, FIXTURES "inputs/jsonl/one-example.jsonl", NUMERICS_FLOAT32);
    first.job.hyper.n_epochs = 1;
    training_run(&first, be);
    assert_int_equal(first.step_count, 1);
    assert_non_null(first.plan.warmup_note);
    assert_true(first.steps[0].learning_rate == (double)3e-3f);
    training_release(&first);
    backend_close(be);
}

static void equal_jobs_give_equal_bytes_and_another_seed_others(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);

    init_small(&first, SEVENTEEN, NUMERICS_W4A8);
    init_small(&second, SEVENTEEN, NUMERICS_W4A8);
    training_run(&first, be);
    training_run(&second, be);
    assert_true(training_same_bytes(first.adapter_path, second.adapter_path));
    assert_string_equal(first.result.adapter_sha256, second.result.adapter_sha256);
    training_release(&second);

    init_small(&second, SEVENTEEN, NUMERICS_W4A8);
    second.job.hyper.seed = 1;
    training_run(&second, be);
    assert_false(training_same_bytes(first.adapter_path, second.adapter_path));
    training_release(&first);
    training_release(&second);
    backend_close(be);
}

static void the_adapter_says_what_made_it(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    struct safetensors *file = NULL;
    struct error err = {0};

    init_small(&first, FIXTURES "inputs/jsonl/one-example.jsonl", NUMERICS_FLOAT32);
    training_run(&first, be);
    assert_true(safetensors_open(first.adapter_path, &file, &err));
    assert_string_equal(safetensors_metadata(file, "device"), "\"cpu:0\"");
    assert_string_equal(safetensors_metadata(file, "numerics"), "\"float32\"");
    assert_string_equal(safetensors_metadata(file, "precision"), "\"float32\"");
    assert_string_equal(safetensors_metadata(file, "needled"), "\"" NEEDLED_VERSION "\"");
    assert_string_equal(safetensors_metadata(file, "base"), "\"base.safetensors\"");
    safetensors_close(file);
    training_release(&first);
    backend_close(be);
}

static void a_precision_that_the_device_lacks_is_float32_with_a_warning(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    struct safetensors *file = NULL;
    struct error err = {0};

    init_small(&first, FIXTURES "inputs/jsonl/one-example.jsonl", NUMERICS_FLOAT32);
    init_small(&second, FIXTURES "inputs/jsonl/one-example.jsonl", NUMERICS_FLOAT32);
    second.job.hyper.precision = BACKEND_BF16;
    training_run(&first, be);
    training_run(&second, be);
    assert_int_equal(first.warning_count, 0);
    assert_int_equal(second.warning_count, 1);
    assert_string_equal(second.last_warning,
                        "precision is 'bf16', which cpu:0 does not have: it computes in float32");
    assert_true(training_same_bytes(first.adapter_path, second.adapter_path));
    assert_true(safetensors_open(second.adapter_path, &file, &err));
    assert_string_equal(safetensors_metadata(file, "precision"), "\"float32\"");
    safetensors_close(file);
    training_release(&first);
    training_release(&second);
    backend_close(be);
}

static void a_loss_that_is_not_finite_stops_the_job_at_its_step(void **state)
{
    (void)state;
    for (enum numerics numerics = NUMERICS_W4A8; numerics <= NUMERICS_FLOAT32; numerics++) {
        struct backend *be = training_backend(BACKEND_CPU);
        struct error err = {0};
        char words[32];

        init_small(&first, SEVENTEEN, numerics);
        first.job.hyper.learning_rate = 1e9;
        first.job.hyper.batch_size = 4;
        first.job.hyper.n_epochs = 20;
        first.job.checkpoint_interval_steps = 1;
        assert_false(training_try(&first, be, &err));
        assert_int_equal(err.code, ERR_INVALID);
        snprintf(words, sizeof(words), "step %zu: ", first.step_count + 1);
        if (strncmp(err.message, words, strlen(words)) != 0 ||
            !strstr(err.message, "the loss is not a finite"))
            fail_msg("after step %zu: %s", first.step_count, err.message);
        assert_true(first.step_count >= 2);
        assert_int_equal(first.checkpoint_count, first.step_count);
        training_release(&first);
        backend_close(be);
    }
}

static void a_batch_without_targets_is_a_step_of_loss_zero(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    size_t without = 0;

    init_small(&first, FIXTURES "inputs/jsonl/over-long-prompt.jsonl", NUMERICS_FLOAT32);
    first.job.hyper.max_len = 256;
    first.job.hyper.overlong = OVERLONG_TRUNCATE;
    first.job.hyper.batch_size = 1;
    first.job.hyper.val_split = 0;
    training_run(&first, be);
    assert_int_equal(first.report.targetless_count, 1);
    assert_int_equal(first.step_count, 6);
    for (size_t i = 0; i < first.step_count; i++) {
        const struct train_step *step = &first.steps[i];
        const bool is_empty = step->tokens == 256;

        without += is_empty;
        assert_int_equal(step->train_loss == 0, is_empty);
        assert_int_equal(step->grad_norm == 0, is_empty);
    }
    assert_int_equal(without, 3);
    training_release(&first);
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_float_run_is_the_recorded_one),
        cmocka_unit_test(the_quantised_run_is_the_recorded_one),
        cmocka_unit_test(the_small_float_run_is_the_recorded_one_at_every_level),
        cmocka_unit_test(the_small_quantised_run_is_the_recorded_one_at_every_level),
        cmocka_unit_test(batches_cut_in_four_give_the_same_run),
        cmocka_unit_test(less_memory_computes_layers_again_to_the_same_bytes),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(a_run_takes_no_more_memory_than_it_planned),
#endif
        cmocka_unit_test(too_little_memory_is_refused_in_bytes),
        cmocka_unit_test(one_example_makes_three_steps_without_validation),
        cmocka_unit_test(a_single_step_has_no_warm_up_and_says_so),
        cmocka_unit_test(equal_jobs_give_equal_bytes_and_another_seed_others),
        cmocka_unit_test(the_adapter_says_what_made_it),
        cmocka_unit_test(a_precision_that_the_device_lacks_is_float32_with_a_warning),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_the_job_at_its_step),
        cmocka_unit_test(a_batch_without_targets_is_a_step_of_loss_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Proves that training on a card is the reference's: the recorded runs, in both numerics and both
 * geometries, on the first device of the plug-in in NEEDLED_PLUGINS; and that the faster precisions
 * follow float32's curve. Each test is skipped, with the loader's reason, where there is no card.
 *
 *   STEPS=3 test_golden       no more than the first three steps of each run; unset: all of them
 *   ONLY='*float*' test_golden    the tests whose names are like that
 */
#include "tests/support/golden.h"

#include <math.h>

static struct training training;

/* NULL: no card, and the reason is printed. */
static struct backend *open_card(void)
{
    char reason[256] = "";

    if (backend_device_count(BACKEND_CUDA, reason, sizeof(reason)) > 0)
        return training_backend(BACKEND_CUDA);
    print_message("no card: %s\n", reason);
    return NULL;
}

static size_t steps_asked_for(void)
{
    const char *steps = getenv("STEPS");

    return steps ? strtoul(steps, NULL, 10) : 0;
}

static void check_run(const char *folder, enum numerics numerics)
{
    struct backend *be = open_card();
    struct golden golden;

    if (!be)
        skip();
    golden_open(&golden, &training, folder, numerics);
    golden.stop_after_step = steps_asked_for();
    golden_check_run(&golden, be);
    golden_close(&golden);
    backend_close(be);
}

static void the_small_float_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(GOLDEN_MINI, NUMERICS_FLOAT32);
}

static void the_small_quantised_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(GOLDEN_MINI, NUMERICS_W4A8);
}

static void the_float_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(GOLDEN_MAIN, NUMERICS_FLOAT32);
}

static void the_quantised_run_is_the_recorded_one(void **state)
{
    (void)state;
    check_run(GOLDEN_MAIN, NUMERICS_W4A8);
}

/* ---- the faster precisions ------------------------------------------------------------------- */

/* Little is said by more steps, and the stand-in is slow. */
#define CURVE_STEPS 4
#define CURVE_LINES 2

struct curve {
    double losses[CURVE_STEPS], norms[CURVE_STEPS];
};

static void stop_at_the_end_of_the_curve(struct training *running, const struct train_step *step)
{
    if (step->step == CURVE_STEPS)
        atomic_store(&running->stop, true);
}

/* The recorded run's start, but with few lines a step. */
static void train_curve(struct backend *be, enum numerics numerics,
                        enum backend_precision precision, struct curve *ret_curve)
{
    struct golden golden;
    struct curve curve;

    golden_open(&golden, &training, GOLDEN_MINI, numerics);
    training.job.hyper.batch_size = CURVE_LINES;
    training.job.hyper.precision = precision;
    training.after_step = stop_at_the_end_of_the_curve;
    training_run(&training, be);
    assert_int_equal(training.warning_count, 0); /* the device has the precision */
    assert_int_equal(training.step_count, CURVE_STEPS);
    for (size_t i = 0; i < CURVE_STEPS; i++) {
        curve.losses[i] = training.steps[i].train_loss;
        curve.norms[i] = training.steps[i].grad_norm;
    }
    golden_close(&golden);
    *ret_curve = curve;
}

/*
 * A factor is off by 2^-8 (bf16) or 2^-11 (tf32) of itself at most. Where float32 is all there is
 * else, these errors are independent and their sums are float32: logits, of size 1 here, and so a
 * loss in nats, stay closer than one of them. In W4A8 the least difference moves some activations to
 * the next of their 8-bit values, and that alone gives what golden.c allows.
 */
static double curve_bound(enum numerics numerics, enum backend_precision precision)
{
    return (numerics == NUMERICS_W4A8 ? 2e-2 : 0) + (precision == BACKEND_BF16 ? 0x1p-8 : 0x1p-11);
}

/* By how much the curve leaves float32's at most. */
static double check_curve(const struct curve *curve, const struct curve *float32, double bound)
{
    double most = 0;

    for (size_t i = 0; i < CURVE_STEPS; i++) {
        if (curve->losses[i] == float32->losses[i] || curve->norms[i] == float32->norms[i])
            fail_msg("step %zu is float32's to the bit: the precision is not in use", i + 1);
        check_near(curve->losses[i], float32->losses[i], bound, "loss of step", i);
        most = fmax(most, fabs(curve->losses[i] - float32->losses[i]));
    }
    return most;
}

static void check_curves(enum numerics numerics)
{
    struct backend *be = open_card();
    struct curve curves[BACKEND_PRECISION_COUNT], again;
    double apart[BACKEND_PRECISION_COUNT] = {0};

    if (!be)
        skip();
    for (int p = BACKEND_FLOAT32; p < BACKEND_PRECISION_COUNT; p++)
        train_curve(be, numerics, (enum backend_precision)p, &curves[p]);
    for (int p = BACKEND_TF32; p < BACKEND_PRECISION_COUNT; p++) {
        apart[p] = check_curve(&curves[p], &curves[BACKEND_FLOAT32],
                               curve_bound(numerics, (enum backend_precision)p));
        print_message("%s: at most %.2g from float32\n", backend_precision_names[p], apart[p]);
    }
    if (numerics == NUMERICS_FLOAT32) {
        assert_true(apart[BACKEND_TF32] < apart[BACKEND_BF16]);
        train_curve(be, numerics, BACKEND_FLOAT32, &again); /* a job leaves nothing to the next */
        assert_memory_equal(&again, &curves[BACKEND_FLOAT32], sizeof(again));
    }
    backend_close(be);
}

static void faster_precisions_follow_the_float_curve(void **state)
{
    (void)state;
    check_curves(NUMERICS_FLOAT32);
}

static void faster_precisions_follow_the_quantised_curve(void **state)
{
    (void)state;
    check_curves(NUMERICS_W4A8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_float_run_is_the_recorded_one),
        cmocka_unit_test(the_small_quantised_run_is_the_recorded_one),
        cmocka_unit_test(the_float_run_is_the_recorded_one),
        cmocka_unit_test(the_quantised_run_is_the_recorded_one),
        cmocka_unit_test(faster_precisions_follow_the_float_curve),
        cmocka_unit_test(faster_precisions_follow_the_quantised_curve),
    };

    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

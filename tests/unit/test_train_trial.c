/*
 * Proves that the tiny job by which devices are compared gives the same losses on every backend and
 * level of SIMD, far within its tolerances, that each op it runs is seen when it does nothing, and that
 * it can be stopped.
 */
#include "daemon/train/trial.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/level.h"
#include "tests/support/left_out.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>

static bool always(void)
{
    return true;
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static const struct {
    enum numerics numerics;
    double tolerance;
} trials[] = {
    {NUMERICS_FLOAT32, TRIAL_TOLERANCE_FLOAT32},
    {NUMERICS_W4A8, TRIAL_TOLERANCE_W4A8},
};

static struct backend *open_kind(enum backend_kind kind, const char *level)
{
    const struct backend_options options = {.thread_count = 1, .simd_level = level};
    struct backend *be = NULL;
    char reason[256] = "";

    if (backend_open(kind, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s", reason);
    return be;
}

static void run(struct backend *be, const char *folder, enum numerics numerics,
                double ret_losses[TRIAL_STEPS])
{
    struct error err = {0};

    if (!trial_run(be, folder, numerics, NULL, ret_losses, &err))
        fail_msg("%s", err.message);
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
}

static void every_level_has_the_losses_of_ref(void **state)
{
    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        double expected[TRIAL_STEPS], losses[TRIAL_STEPS];

        run(open_kind(BACKEND_REF, NULL), *state, trials[t].numerics, expected);
        for (size_t i = 0; i < TRIAL_STEPS; i++)
            assert_true(expected[i] > 1 && expected[i] < 20); /* some words of 64 */
        for (size_t i = 0; i < level_count; i++) {
            if (!levels[i].is_supported())
                continue;
            run(open_kind(BACKEND_CPU, levels[i].name), *state, trials[t].numerics, losses);
            const double difference = trial_difference(losses, expected);
            if (!(difference < trials[t].tolerance / 10))
                fail_msg("%s: %g", levels[i].name, difference);
        }
    }
}

/* The largest difference over the tolerance, of both trials; a run that fails is infinitely far. */
static double share_without(size_t op, const char *folder,
                            double expected[COUNT_OF(trials)][TRIAL_STEPS])
{
    const struct backend_table table = left_out(op);
    const struct level level = {"test", &table, always};
    double losses[TRIAL_STEPS], share = 0;

    for (size_t t = 0; t < COUNT_OF(trials); t++) {
        struct backend *be = NULL;
        struct error err = {0};
        char reason[256] = "";

        if (cpu_open_level(&level, 1, &be, reason, sizeof(reason)) != BACKEND_OK)
            fail_msg("%s", reason);
        if (trial_run(be, folder, trials[t].numerics, NULL, losses, &err))
            share = fmax(share, trial_difference(losses, expected[t]) / trials[t].tolerance);
        else
            share = INFINITY;
        backend_close(be);
    }
    return share;
}

/* Not left_out_called are ops of full fine-tuning. What the codes of a few weights change is less than what a
 * value on an edge may: that op is left to the check of ops. */
static void an_op_that_does_nothing_is_seen(void **state)
{
    double expected[COUNT_OF(trials)][TRIAL_STEPS];
    size_t called_count = 0;

    for (size_t t = 0; t < COUNT_OF(trials); t++)
        run(open_kind(BACKEND_REF, NULL), *state, trials[t].numerics, expected[t]);
    for (size_t op = 0; op < WITHOUT_COUNT; op++) {
        left_out_called = false;
        const double share = share_without(op, *state, expected);
        called_count += left_out_called;
        if (left_out_called && share < 2 && strcmp(left_out_names[op], "round_code") != 0)
            fail_msg("%s does nothing, and the losses differ by %g of what is allowed",
                     left_out_names[op], share);
        if (!left_out_called)
            assert_true(share < 0.1);
    }
    assert_true(called_count > WITHOUT_COUNT * 3 / 4);
}

static void a_stop_is_seen(void **state)
{
    const atomic_bool stop = true;
    double losses[TRIAL_STEPS];
    struct error err = {0};
    struct backend *be = open_kind(BACKEND_CPU, NULL);

    assert_false(trial_run(be, *state, NUMERICS_W4A8, &stop, losses, &err));
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
}

static void what_is_no_number_is_infinitely_far(void **state)
{
    static const double expected[TRIAL_STEPS] = {1, 2, 3, 4};
    static const double close[TRIAL_STEPS] = {1, 2, 3.03, 4};
    static const double bad[TRIAL_STEPS] = {1, NAN, 3, 4};

    (void)state;
    assert_true(trial_difference(expected, expected) == 0);
    assert_true(fabs(trial_difference(close, expected) - 0.01) < 1e-12);
    assert_true(isinf(trial_difference(bad, expected)));
}

static int set_up(void **state)
{
    struct error err = {0};

    *state = scratch_new();
    return trial_write_base(*state, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    scratch_free(*state);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_has_the_losses_of_ref),
        cmocka_unit_test(an_op_that_does_nothing_is_seen),
        cmocka_unit_test(a_stop_is_seen),
        cmocka_unit_test(what_is_no_number_is_infinitely_far),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}

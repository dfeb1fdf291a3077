/*
 * Proves that training on a card is the reference's: the recorded runs, in both numerics and both
 * geometries, on the first device of the plug-in in NEEDLED_PLUGINS. Each test is skipped, with the
 * loader's reason, where there is no card.
 *
 *   STEPS=3 test_golden       no more than the first three steps of each run; unset: all of them
 *   ONLY='*float*' test_golden    the tests whose names are like that
 */
#include "tests/support/golden.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_float_run_is_the_recorded_one),
        cmocka_unit_test(the_small_quantised_run_is_the_recorded_one),
        cmocka_unit_test(the_float_run_is_the_recorded_one),
        cmocka_unit_test(the_quantised_run_is_the_recorded_one),
    };

    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}

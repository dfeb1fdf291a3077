/*
 * Proves that the check at start passes on every level of SIMD, that no op of a backend can be left
 * out without being named, and that a level that computes wrongly is passed over once and for all.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/verdict.h"
#include "kernels/examples/op_cases.h"
#include "kernels/host.h"
#include "kernels/selfcheck.h"
#include "tests/support/left_out.h"
#include "tests/support/test.h"

#include <pthread.h>

/* ---- tables with faults ---------------------------------------------------------------------- */

static size_t wrong_count;

static void wrong_rmsnorm(struct backend *be, float *y, float *r, const float *x, const float *gain,
                          size_t N, size_t C, enum rounding rounding)
{
    levels[LEVEL_COUNT - 1].table->rmsnorm_forward(be, y, r, x, gain, N, C, rounding);
    y[N * C - 1] *= 1.001f; /* the last value of the tail */
    wrong_count++;
}

static bool always(void)
{
    return true;
}

static bool never(void)
{
    return false;
}

static struct backend_table wrong_table(void)
{
    struct backend_table table = *levels[LEVEL_COUNT - 1].table;

    table.rmsnorm_forward = wrong_rmsnorm;
    wrong_count = 0;
    return table;
}

static struct backend *open_table(const struct backend_table *table)
{
    const struct level level = {"test", table, always};
    struct backend *be = NULL;
    char reason[256] = "";

    if (cpu_open_level(&level, 1, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s", reason);
    return be;
}

static enum backend_status check(const struct backend_table *table, char reason[256])
{
    struct backend *be = open_table(table);
    const enum backend_status status = selfcheck_run(be, NULL, reason, 256);

    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
    return status;
}

/* ---- the check ------------------------------------------------------------------------------- */

static void every_level_passes(void **state)
{
    (void)state;
    for (size_t i = 0; i < level_count; i++) {
        char reason[256] = "";

        if (levels[i].is_supported() && check(levels[i].table, reason) != BACKEND_OK)
            fail_msg("%s: %s", levels[i].name, reason);
    }
}

static void no_op_can_be_left_out(void **state)
{
    (void)state;
    for (size_t op = 0; op < WITHOUT_COUNT; op++) {
        const struct backend_table table = left_out(op);
        char reason[256] = "";

        if (check(&table, reason) != BACKEND_CHECK_FAILED || !reason[0])
            fail_msg("without %s the check passes (%s)", left_out_names[op], reason);
    }
}

static void an_op_that_differs_is_named_with_error_and_tolerance(void **state)
{
    (void)state;
    const struct backend_table table = wrong_table();
    char reason[256] = "";

    assert_int_equal(check(&table, reason), BACKEND_CHECK_FAILED);
    if (strncmp(reason, "rmsnorm, ", 9) != 0 || !strstr(reason, "normalised squared error") ||
        !strstr(reason, "allowed 1e-11"))
        fail_msg("'%s'", reason);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t allocations_left;

static void *scarce_alloc(struct backend *be, size_t size_bytes)
{
    if (allocations_left == 0)
        return NULL;
    allocations_left--;
    return host_alloc(be, size_bytes);
}

static void without_memory_the_check_says_so_and_gives_back_what_it_took(void **state)
{
    (void)state;
    struct backend_table table = *levels[LEVEL_COUNT - 1].table;
    enum backend_status status = BACKEND_NO_MEMORY;

    table.alloc = scarce_alloc;
    for (size_t n = 0; n < 12; n++) { /* past the first case: the tree, then its arrays */
        char reason[256] = "";

        allocations_left = n;
        status = check(&table, reason);
        if (status != BACKEND_NO_MEMORY || !strstr(reason, "memory"))
            fail_msg("allocation %zu fails: status %d, '%s'", n, status, reason);
    }
}

static void an_example_takes_no_more_than_its_bound(void **state)
{
    (void)state;
    struct backend *be = open_table(levels[LEVEL_COUNT - 1].table);
    static struct op_run run;
    bool ok = false;

    for (size_t bytes = 0; !ok; bytes += 256) {
        ok = op_init(&run, be, &op_cases[0], &op_sizes[1], bytes);
        assert_true(run.host_bytes <= bytes);
        if (!ok && !strstr(op_fault(&run), "more than"))
            fail_msg("'%s'", op_fault(&run));
        if (!ok) { /* what follows a failure does nothing, and fails */
            assert_false(op_forward(&run));
            assert_false(op_backward(&run));
        }
        op_release(&run);
    }
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
}

/* ---- which level ----------------------------------------------------------------------------- */

static void a_wrong_level_is_passed_over_once_and_for_all(void **state)
{
    (void)state;
    const struct backend_table wrong = wrong_table();
    const struct level three[] = {{"absent", &wrong, never},
                                  {"wrong", &wrong, always},
                                  {"right", levels[LEVEL_COUNT - 1].table, always}};
    struct verdict verdicts[3] = {0};
    const struct verdict_list list = {three, verdicts, COUNT_OF(three)};
    static const char *const wanted[] = {NULL, "wrong", NULL};

    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        const struct level *level = NULL;
        char reason[256] = "";

        assert_int_equal(verdict_choose(&list, wanted[i], &level, reason, sizeof(reason)),
                         BACKEND_OK);
        assert_string_equal(level->name, "right");
        if (!strstr(reason, "level wrong ") || !strstr(reason, "rmsnorm, "))
            fail_msg("'%s'", reason);
        assert_int_equal(wrong_count,
                         1); /* the verdict is kept, of a level not supported none made */
    }
    assert_int_equal(verdicts[0].state, VERDICT_NONE);

    const struct level *level = NULL;
    char reason[256] = "left";
    assert_int_equal(verdict_choose(&list, "right", &level, reason, sizeof(reason)), BACKEND_OK);
    assert_string_equal(reason, ""); /* nothing wrong with what was asked for */
}

static void when_no_level_passes_none_is_used(void **state)
{
    (void)state;
    const struct backend_table wrong = wrong_table(), empty = left_out(WITHOUT_matmul);
    const struct level two[] = {{"wrong", &wrong, always}, {"empty", &empty, always}};
    struct verdict verdicts[2] = {0};
    const struct verdict_list list = {two, verdicts, COUNT_OF(two)};

    for (int i = 0; i < 2; i++) {
        const struct level *level = NULL;
        char reason[256] = "";

        assert_int_equal(verdict_choose(&list, NULL, &level, reason, sizeof(reason)),
                         BACKEND_CHECK_FAILED);
        assert_null(level);
        if (!strstr(reason, "level wrong ") || !strstr(reason, "rmsnorm, "))
            fail_msg("'%s'", reason);
    }
}

static void a_check_that_is_not_finished_gives_no_verdict(void **state)
{
    (void)state;
    struct backend_table scarce = *levels[LEVEL_COUNT - 1].table;
    const struct level one[] = {{"scarce", &scarce, always}};
    struct verdict verdicts[1] = {0};
    const struct verdict_list list = {one, verdicts, 1};
    const struct level *level = NULL;
    char reason[256] = "";

    scarce.alloc = scarce_alloc;
    allocations_left = 7;
    assert_int_equal(verdict_choose(&list, NULL, &level, reason, sizeof(reason)),
                     BACKEND_NO_MEMORY);
    assert_non_null(strstr(reason, "scarce"));
    allocations_left = SIZE_MAX; /* memory is back: checked again, and right */
    assert_int_equal(verdict_choose(&list, NULL, &level, reason, sizeof(reason)), BACKEND_OK);
    assert_string_equal(level->name, "scarce");
}

static void an_unknown_level_is_refused_with_what_there_is(void **state)
{
    (void)state;
    const char *level = "untouched";
    char reason[256] = "";

    assert_int_equal(backend_choose_simd(BACKEND_CPU, "avx3", &level, reason, sizeof(reason)),
                     BACKEND_ABSENT);
    if (!strstr(reason, "'avx3'") || !strstr(reason, "plain"))
        fail_msg("'%s'", reason);
    assert_string_equal(level, "untouched");
    assert_int_equal(backend_choose_simd(BACKEND_REF, "avx3", &level, reason, sizeof(reason)),
                     BACKEND_OK);
    assert_string_equal(level, ""); /* it has none */

    const struct backend_table *table = levels[LEVEL_COUNT - 1].table;
    const struct level two[] = {{"newer", table, never}, {"plain", table, always}};
    assert_null(level_find(two, 2, "newer", reason, sizeof(reason)));
    assert_string_equal(reason, "this processor does not have 'newer'; it has plain");
}

/* ---- threads --------------------------------------------------------------------------------- */

struct asker {
    const struct verdict_list *list;
    const struct level *level;
    pthread_t thread;
};

static void *choose(void *context)
{
    struct asker *asker = context;
    char reason[256] = "";

    if (verdict_choose(asker->list, NULL, &asker->level, reason, sizeof(reason)) != BACKEND_OK ||
        !strstr(reason, "level wrong "))
        asker->level = NULL;
    return NULL;
}

static void threads_that_ask_at_once_get_the_same_level(void **state)
{
    (void)state;
    const struct backend_table empty = left_out(WITHOUT_gate_forward);
    const struct level two[] = {{"wrong", &empty, always},
                                {"right", levels[LEVEL_COUNT - 1].table, always}};
    struct verdict verdicts[2] = {0};
    const struct verdict_list list = {two, verdicts, COUNT_OF(two)};
    struct asker askers[4] = {{0}};

    for (size_t i = 0; i < COUNT_OF(askers); i++) {
        askers[i].list = &list;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, choose, &askers[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(askers); i++) {
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
        assert_non_null(askers[i].level);
        assert_string_equal(askers[i].level->name, "right");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_passes),
        cmocka_unit_test(no_op_can_be_left_out),
        cmocka_unit_test(an_op_that_differs_is_named_with_error_and_tolerance),
        cmocka_unit_test(without_memory_the_check_says_so_and_gives_back_what_it_took),
        cmocka_unit_test(an_example_takes_no_more_than_its_bound),
        cmocka_unit_test(a_wrong_level_is_passed_over_once_and_for_all),
        cmocka_unit_test(when_no_level_passes_none_is_used),
        cmocka_unit_test(a_check_that_is_not_finished_gives_no_verdict),
        cmocka_unit_test(an_unknown_level_is_refused_with_what_there_is),
        cmocka_unit_test(threads_that_ask_at_once_get_the_same_level),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

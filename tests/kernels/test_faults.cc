/*
 * Proves that each fault made on purpose is caught by the builds that say so, and that the same
 * kernels without a fault give right numbers and no report, in whatever order their threads run.
 */
#include "tests/kernels/test.h"

#include "tests/kernels/faults/faults.h"
#include "tests/kernels/standin/standin.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX 65536

#define NUMBERS "outcome: wrong numbers"
#define NOTHING NULL /* not this build's to see */

/* What a build says: words of its output. The fast build sees what a user's program would. */
static const struct expectation {
    enum fault fault;
    const char *name, *fast, *asan, *race;
} expectations[] = {
    {NO_BARRIER_BEFORE_READ, "no barrier between write and read", NUMBERS, NUMBERS,
     "race in shared memory"},
    {NO_BARRIER_BEFORE_REUSE, "no barrier before reuse", NOTHING, NOTHING,
     "race in shared memory: write here, read by another thread"},
    {NO_BARRIER_BEFORE_TILE, "no barrier before the next tile", NOTHING, NOTHING,
     "race in shared memory: write here, read by another thread"},
    {DIVERGENT_BARRIER, "a barrier in a branch", "divergent barrier: at ", "divergent barrier: at ",
     "divergent barrier: at "},
    {HALF_WARP_SHUFFLE, "a shuffle by half a warp", "deadlock: ", "deadlock: ", "deadlock: "},
    {WARP_SYNCHRONOUS_TAIL, "no barrier within a warp", NOTHING, NOTHING, "race in shared memory"},
    {NO_BOUND, "no bound", NOTHING, "AddressSanitizer: use-after-poison",
     "outside of device memory"},
    {SHARED_TOO_SHORT, "a shared array too short", NOTHING, "runtime error: index 7 out of bounds",
     NOTHING},
    {SHARED_OVER_32_KB, "more shared memory than every card has", NOTHING, NOTHING,
     "bytes of shared memory, more than the 32768 every card has"},
    {SHARED_NOT_WRITTEN, "shared memory nobody wrote", NUMBERS, NOTHING,
     "read of uninitialised shared memory"},
    {DEVICE_NOT_WRITTEN, "device memory nobody wrote", NUMBERS, NUMBERS,
     "read of uninitialised device memory"},
    {FREED_MEMORY, "freed memory", "signal", "AddressSanitizer", "outside of device memory"},
    {MISALIGNED_VECTOR, "a misaligned vector", NOTHING,
     "runtime error: store to misaligned address", NOTHING},
    {HOST_POINTER_IN_KERNEL, "a host pointer in a kernel", NOTHING, NOTHING,
     "kernel reads a variable of the host"},
    {DEVICE_POINTER_IN_HOST, "a device pointer in host code", NOTHING, NOTHING,
     "host code reads device memory"},
    {SUM_ACROSS_BLOCKS, "a sum by many blocks", NOTHING, NOTHING,
     "race in device memory: read here, written by another block"},
    {NOT_SYNCHRONISED, "a result read too early", NUMBERS, "AddressSanitizer: use-after-poison",
     "host code reads memory that a queued copy has not written yet"},
    {BLOCK_TOO_LARGE, "2,048 threads to a block", "launch: cudaErrorInvalidConfiguration",
     "launch: cudaErrorInvalidConfiguration", "launch: cudaErrorInvalidConfiguration"},
    {MASK_OFF_BY_ONE, "a mask off by one", NUMBERS, NUMBERS, NUMBERS},
};
static_assert(COUNT_OF(expectations) == FAULT_COUNT - 1, "a line for each fault");

static const char *expected_of(const struct expectation *expectation)
{
    const char *build = standin_build();

    return strcmp(build, "race") == 0   ? expectation->race
           : strcmp(build, "asan") == 0 ? expectation->asan
                                        : expectation->fast;
}

/* Runs the fault in a child; its standard error, and "signal" when one ended it. */
static void run_in_child(enum fault fault, char *ret_output)
{
    FILE *file = tmpfile();
    size_t size;
    int status;

    assert_non_null(file);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(file), STDERR_FILENO);
        alarm(60);
        signal(SIGSEGV, SIG_DFL); /* cmocka would go on */
        const char *outcome = fault_run(fault);
        fprintf(stderr, "outcome: %s\n", outcome);
        fflush(stderr);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(file);
    size = fread(ret_output, 1, OUTPUT_MAX - 32, file);
    ret_output[size] = '\0';
    fclose(file);
    if (WIFSIGNALED(status))
        snprintf(ret_output + size, 32, "signal %d\n", WTERMSIG(status));
}

static void each_fault_is_caught_by_the_builds_that_say_so(void **)
{
    static char output[OUTPUT_MAX];
    size_t caught = 0;

    for (size_t i = 0; i < COUNT_OF(expectations); i++) {
        const struct expectation *e = &expectations[i];
        const char *expected = expected_of(e);

        assert_true(e->fast || e->asan || e->race);
        if (!expected)
            continue;
        run_in_child(e->fault, output);
        if (!strstr(output, expected))
            fail_msg("%s: the %s build should say '%s', it says:\n%s", e->name, standin_build(),
                     expected, output);
        caught++;
    }
    print_message("%zu of %zu faults are this build's, all caught\n", caught,
                  COUNT_OF(expectations));
}

#if defined(STANDIN_RACE)
static void reports_name_the_line_in_the_kernel(void **)
{
    static char output[OUTPUT_MAX];

    run_in_child(SUM_ACROSS_BLOCKS, output);
    if (!strstr(output, "kernel fault_columns, block (1,0), thread 0: race") ||
        !strstr(output, "faults.cu:"))
        fail_msg("neither kernel nor line:\n%s", output);
}
#endif

static void kernels_without_a_fault_give_no_report_in_any_order(void **)
{
    struct standin_options options = standin_defaults;
    const size_t before = standin_report_count();

    for (int order = 0; order < 2 + 8; order++) {
        options.order = order < 2 ? (enum standin_order)order : STANDIN_SEEDED;
        options.seed = (uint64_t)order;
        options.deferred = order % 2 == 1;
        standin_set(&options);

        const char *outcome = fault_run(FAULT_NONE);
        if (outcome[0] != '\0' || standin_report_count() != before)
            fail_msg("order %d: %s, %zu reports", order, outcome[0] ? outcome : "right numbers",
                     standin_report_count() - before);
    }
    assert_int_equal(standin_allocation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_is_caught_by_the_builds_that_say_so),
#if defined(STANDIN_RACE)
        cmocka_unit_test(reports_name_the_line_in_the_kernel),
#endif
        cmocka_unit_test(kernels_without_a_fault_give_no_report_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

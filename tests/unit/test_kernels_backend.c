/*
 * Proves the border itself: which backends there are and why others are not, memory that is aligned,
 * zeroed and counted, the first fault kept and everything after it undone, and shapes asserted.
 */
#include "kernels/host.h"
#include "kernels/table.h"
#include "tests/support/op_run.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_backend_that_is_not_built_says_so(void **state)
{
    (void)state;
    const struct backend_options options = {.thread_count = 1};
    struct backend *be = NULL;
    struct backend_device device;
    char reason[64] = "";

    assert_int_equal(backend_device_count(BACKEND_CUDA, reason, sizeof(reason)), 0);
    assert_string_equal(reason, "needled-cuda.so is not installed");
    reason[0] = 0;
    assert_int_equal(backend_open(BACKEND_CUDA, &options, &be, reason, sizeof(reason)),
                     BACKEND_ABSENT);
    assert_string_equal(reason, "needled-cuda.so is not installed");
    assert_null(be);
    assert_int_equal(backend_describe(BACKEND_CUDA, 0, &device), BACKEND_ABSENT);
    assert_string_equal(device.trouble, "needled-cuda.so is not installed");
}

static void a_device_that_does_not_exist_is_refused_by_number(void **state)
{
    (void)state;
    const struct backend_options options = {.device_index = 3, .thread_count = 1};
    struct backend *be = NULL;
    struct backend_device device;
    char reason[64] = "";

    assert_int_equal(backend_open(BACKEND_REF, &options, &be, reason, sizeof(reason)),
                     BACKEND_ABSENT);
    assert_non_null(strstr(reason, "3"));
    assert_null(be);
    assert_int_equal(backend_describe(BACKEND_REF, 1, &device), BACKEND_ABSENT);
    assert_string_equal(device.trouble, "no device 1: there is one, number 0");
}

static void backends_are_named_as_in_the_platform_list(void **state)
{
    (void)state;
    assert_string_equal(backend_name(BACKEND_REF), "ref");
    assert_string_equal(backend_name(BACKEND_CPU), "cpu");
    assert_string_equal(backend_name(BACKEND_CUDA), "cuda");
}

static void the_processor_is_described(void **state)
{
    (void)state;
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++) {
        struct backend_device device = {0};

        assert_int_equal(backend_describe(kind, 0, &device), BACKEND_OK);
        assert_true(strlen(device.name) > 0);
        assert_true(strlen(device.library) > 0);
        assert_string_equal(device.trouble, "");
        assert_int_equal(device.precisions, BACKEND_PRECISION_BIT(BACKEND_FLOAT32));
        assert_true(device.core_count >= 1);
        assert_true(device.memory_total_bytes > 0);
        assert_true(device.memory_free_bytes > 0);
        assert_true(device.memory_free_bytes <= device.memory_total_bytes);
    }
}

/* ---- memory ------------------------------------------------------------------------------------- */

static void check_memory(struct backend *be)
{
    static const size_t sizes[] = {1, 63, 64, 65, 4096, 100001};
    unsigned char *host = malloc(100001);
    void *blocks[COUNT_OF(sizes)];
    size_t total = 0;

    assert_non_null(host);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        blocks[i] = backend_alloc(be, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        total += sizes[i];
        assert_true(backend_allocated_bytes(be) >= total);
        memset(host, 0xAA, sizes[i]);
        backend_download(be, host, blocks[i], sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(host[k], 0);
        memset(host, (int)(0x10 + i), sizes[i]);
        backend_upload(be, blocks[i], host, sizes[i]);
    }
    for (size_t i = 0; i < COUNT_OF(sizes); i++) { /* blocks do not overlap */
        backend_download(be, host, blocks[i], sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(host[k], 0x10 + i);
    }
    backend_copy(be, blocks[4], blocks[3], 65);
    backend_zero(be, blocks[3], 64);
    backend_download(be, host, blocks[4], 66);
    assert_int_equal(host[64], 0x13);
    assert_int_equal(host[65], 0x14);
    backend_download(be, host, blocks[3], 65);
    assert_int_equal(host[63], 0);
    assert_int_equal(host[64], 0x13);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        backend_free(be, blocks[i]);
    backend_free(be, NULL);
    assert_int_equal(backend_allocated_bytes(be), 0);
    free(host);
}

static void memory_is_aligned_zeroed_counted_and_apart(void **state)
{
    (void)state;
    each_backend(check_memory);
}

static void check_import(struct backend *be)
{
    float host[] = {3, 1, 4, 1, 5}, read[4];
    const size_t before = backend_allocated_bytes(be);
    const char *at = (const char *)host + sizeof(float); /* not at the start of a block */
    const void *imported = backend_import(be, at, sizeof(read));
    const struct table table = {.values = imported};
    float *copy;

    assert_non_null(imported);
    if (be->kind != BACKEND_CUDA) { /* the host's memory is the device's: nothing is taken */
        assert_ptr_equal(imported, at);
        assert_int_equal(backend_allocated_bytes(be), before);
    }
    copy = backend_alloc(be, sizeof(read));
    backend_merge(be, copy, &table, NULL, NULL, 0, 2, 2, 0, true);
    backend_download(be, read, copy, sizeof(read));
    assert_memory_equal(read, at, sizeof(read));
    backend_free(be, copy);
    backend_release_import(be, imported);
    backend_release_import(be, NULL);
    assert_int_equal(backend_allocated_bytes(be), before);
}

static void host_memory_is_read_by_ops_until_it_is_released(void **state)
{
    (void)state;
    each_backend(check_import);
}

/* ---- faults ------------------------------------------------------------------------------------- */

static void check_faults(struct backend *be)
{
    const float start[] = {1, 2, 3};
    float result[3] = {9, 9, 9};
    float *x = backend_alloc(be, sizeof(start)), *y = backend_alloc(be, sizeof(start));

    backend_upload(be, x, start, sizeof(start));
    assert_int_equal(backend_sync(be), BACKEND_OK);
    assert_string_equal(backend_fault(be), "");
    assert_null(backend_alloc(be, SIZE_MAX / 2));
    assert_int_equal(backend_sync(be), BACKEND_NO_MEMORY);
    assert_non_null(strstr(backend_fault(be), "9223372036854775807 bytes needed"));
    backend_set_fault(be, BACKEND_FAULT, "a later one");
    assert_int_equal(backend_sync(be), BACKEND_NO_MEMORY); /* the first is kept */
    assert_null(strstr(backend_fault(be), "later"));

    backend_add_scaled(be, y, x, 1, 3); /* nothing happens any more */
    backend_zero(be, x, sizeof(start));
    assert_null(backend_alloc(be, 4));
    backend_download(be, result, x, sizeof(result));
    assert_true(result[0] == 9);
    assert_memory_equal(x, start, sizeof(start)); /* both backends compute in host memory */
    assert_true(y[0] == 0);
    backend_free(be, x); /* but memory is given back */
    backend_free(be, y);
}

static void after_the_first_fault_nothing_happens_but_giving_back(void **state)
{
    (void)state;
    each_backend(check_faults);
}

/* ---- shapes ------------------------------------------------------------------------------------- */

/* Whether the body ends the process it runs in by SIGABRT. */
static bool aborts(void (*body)(struct backend *be), struct backend *be)
{
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr); /* the assertion's own words */
        signal(SIGABRT, SIG_DFL);
        body(be);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static float few[64];
static const int32_t numbers[4];

static void call_matmul_with_a_short_row(struct backend *be)
{
    const struct matmul shape = {.M = 2, .N = 3, .K = 4, .lda = 3, .ldb = 3, .ldc = 3};

    backend_matmul(be, few, few + 20, few + 40, &shape);
}

static void call_rmsnorm_without_gain(struct backend *be)
{
    backend_rmsnorm_forward(be, few, few + 8, few + 16, NULL, 1, 4, ROUND_NONE);
}

static void call_heads_of_odd_size(struct backend *be)
{
    const struct tree tree = {1, numbers, numbers, numbers, numbers};
    const struct heads heads = {
        .head_count = 1, .head_size = 3, .gain = few, .cos = few, .sin = few};

    backend_heads_forward(be, few, NULL, few + 8, few + 16, &heads, &tree);
}

static void call_attention_with_heads_that_do_not_divide(struct backend *be)
{
    const struct tree tree = {1, numbers, numbers, numbers, numbers};
    const struct attention shape = {
        .head_count = 3, .kv_head_count = 2, .qk_size = 2, .v_size = 2, .scale = 1};

    backend_attention_forward(be, few, few + 8, few + 16, few + 24, few + 32, &shape, &tree);
}

static void call_round_code_with_a_group_of_96(struct backend *be)
{
    const struct codebook codebook = {.values = few, .count = 16, .group = 96};

    backend_round_code(be, few + 16, NULL, NULL, few + 24, &codebook, 1, 4, false);
}

static void call_hyper_write_onto_its_input(struct backend *be)
{
    backend_hyper_write_forward(be, few, few, few + 16, few + 32, few + 40, 1, 2, 2);
}

static void call_close_with_memory_out(struct backend *be)
{
    (void)backend_alloc(be, 4);
    backend_close(be);
}

static void call_close_with_an_import_out(struct backend *be)
{
    static const float host[1];

    (void)backend_import(be, host, sizeof(host));
    backend_close(be);
}

static void call_merge_without_an_update(struct backend *be)
{
    const struct table table = {.values = few};

    backend_merge(be, few + 16, &table, NULL, NULL, 1, 2, 2, 1, true);
}

static void call_gather_of_nothing(struct backend *be)
{
    const struct table table = {.values = NULL};

    backend_gather_forward(be, few + 16, &table, numbers, 1, 1, 1, 1, ROUND_NONE);
}

static void check_asserts(struct backend *be)
{
    static const struct {
        const char *name;
        void (*body)(struct backend *be);
    } cases[] = {
        {"a row shorter than the matrix", call_matmul_with_a_short_row},
        {"no gain", call_rmsnorm_without_gain},
        {"an odd rotated head", call_heads_of_odd_size},
        {"heads that do not divide", call_attention_with_heads_that_do_not_divide},
        {"a group that is no power of two", call_round_code_with_a_group_of_96},
        {"output on input", call_hyper_write_onto_its_input},
        {"a rank without a product", call_merge_without_an_update},
        {"a table without values", call_gather_of_nothing},
        {"closing before freeing", call_close_with_memory_out},
        {"closing before releasing", call_close_with_an_import_out},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (!aborts(cases[i].body, be))
            fail_msg("%s: %s is not asserted", backend_name(be->kind), cases[i].name);
}

static void wrong_shapes_end_the_process(void **state)
{
    (void)state;
    each_backend(check_asserts);
}

/* ---- profile ------------------------------------------------------------------------------------ */

static struct backend_profile find_profile(const struct backend *be, const char *name)
{
    struct backend_profile all[BACKEND_PROFILE_COUNT], found = {0};
    size_t hits = 0;

    backend_profile_read(be, all);
    for (size_t i = 0; i < BACKEND_PROFILE_COUNT; i++) {
        if (strcmp(all[i].name, name) == 0) {
            found = all[i];
            hits++;
        }
    }
    assert_int_equal(hits, 1);
    return found;
}

static void check_profile(struct backend *be)
{
    float *x = backend_alloc(be, 4096 * sizeof(float)),
          *y = backend_alloc(be, 4096 * sizeof(float));

    assert_true(x && y);
    backend_add_scaled(be, y, x, 1, 4096); /* nobody asked */
    assert_int_equal(find_profile(be, "add_scaled").call_count, 0);

    backend_profile_start(be);
    backend_add_scaled(be, y, x, 1, 4096);
    backend_add_scaled(be, y, x, 1, 4096);
    backend_zero(be, x, 4096 * sizeof(float));
    backend_profile_stop(be);
    backend_add_scaled(be, y, x, 1, 4096);
    assert_int_equal(find_profile(be, "add_scaled").call_count, 2);
    assert_true(find_profile(be, "add_scaled").elapsed_ns > 0);
    assert_int_equal(find_profile(be, "memory").call_count, 1);
    assert_int_equal(find_profile(be, "matmul").call_count, 0);

    backend_profile_start(be); /* from zero again */
    backend_profile_stop(be);
    assert_int_equal(find_profile(be, "add_scaled").call_count, 0);
    assert_int_equal(find_profile(be, "add_scaled").elapsed_ns, 0);
    backend_free(be, x);
    backend_free(be, y);
}

static void a_profile_counts_what_is_called_while_it_is_on(void **state)
{
    (void)state;
    each_backend(check_profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backend_that_is_not_built_says_so),
        cmocka_unit_test(a_device_that_does_not_exist_is_refused_by_number),
        cmocka_unit_test(backends_are_named_as_in_the_platform_list),
        cmocka_unit_test(the_processor_is_described),
        cmocka_unit_test(memory_is_aligned_zeroed_counted_and_apart),
        cmocka_unit_test(host_memory_is_read_by_ops_until_it_is_released),
        cmocka_unit_test(after_the_first_fault_nothing_happens_but_giving_back),
        cmocka_unit_test(wrong_shapes_end_the_process),
        cmocka_unit_test(a_profile_counts_what_is_called_while_it_is_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Proves what the cpu backend promises beyond the shared op table: results depend neither on
 * leftovers nor (where said) on the number of threads, and a second pass allocates nothing.
 */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"
#include "kernels/ref/ref.h"
#include "tests/support/op_cases.h"

#include <math.h>

/* ---- ops ------------------------------------------------------------ */

static struct cpu *open_cpu(int thread_count)
{
    const struct backend_options options = {.device_index = 0, .thread_count = thread_count};
    struct backend *be = NULL;
    char reason[256] = "";

    if (backend_open(BACKEND_CPU, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("cpu does not open: %s", reason);
    return (struct cpu *)be;
}

static void run_op(struct op_run *run, struct backend *be, const struct op_case *op,
                   const struct op_size *size)
{
    op_run_init(run, be, op, size);
    op_run_forward(run);
    if (op->backward)
        op_run_backward(run);
}

typedef void compare_fn(const struct op_run *run, const struct op_array *a,
                        const struct op_array *b);

static void compare_runs(const struct op_run *run, const struct op_run *other, compare_fn *compare)
{
    assert_int_equal(run->array_count, other->array_count);
    for (size_t i = 0; i < run->array_count; i++) {
        const struct op_array *a = &run->arrays[i];
        if (a->written && (!a->gradient_of || run->op->backward))
            compare(run, a, &other->arrays[i]);
    }
}

static void must_be_same_bits(const struct op_run *run, const struct op_array *a,
                              const struct op_array *b)
{
    const size_t size = a->count * (a->bytes ? 1 : sizeof(float));

    if (memcmp(a->result, b->result, size) != 0)
        fail_msg("%s, %s: %s has other bits", run->op->name, run->size->name, a->name);
}

static struct backend *other_backend; /* what `against_other` compares with */

static void close_to_other(struct backend *be, const struct op_case *op, const struct op_size *size)
{
    struct op_run run, other;
    char reason[200];

    run_op(&run, be, op, size);
    run_op(&other, other_backend, op, size);
    if (!op_agrees(&run, &other, reason, sizeof(reason)))
        fail_msg("%s", reason);
    op_run_release(&run);
    op_run_release(&other);
}

static void one_and_three_threads_agree_with_ref(void **state)
{
    static const int thread_counts[] = {1, 3};
    (void)state;

    other_backend = backend_for_test(BACKEND_REF);
    for (size_t i = 0; i < COUNT_OF(thread_counts); i++) {
        struct cpu *cpu = open_cpu(thread_counts[i]);
        assert_int_equal(team_thread_count(cpu->team), thread_counts[i]);
        each_op_case(&cpu->base, op_size_count, close_to_other);
        backend_close(&cpu->base);
    }
    backend_close(other_backend);
}

static void same_as_other(struct backend *be, const struct op_case *op, const struct op_size *size)
{
    struct op_run run, other;

    run_op(&run, be, op, size);
    run_op(&other, other_backend, op, size);
    compare_runs(&run, &other, must_be_same_bits);
    op_run_release(&run);
    op_run_release(&other);
}

static void two_backends_of_three_threads_give_the_same_bits(void **state)
{
    struct cpu *a = open_cpu(3), *b = open_cpu(3);
    (void)state;

    other_backend = &b->base;
    each_op_case(&a->base, op_size_count, same_as_other);
    backend_close(&a->base);
    backend_close(&b->base);
}

static bool cuts_products(const struct op_case *op)
{
    return strncmp(op->name, "matmul", 6) == 0 || strcmp(op->name, "cross_entropy") == 0;
}

static void same_unless_products(struct backend *be, const struct op_case *op,
                                 const struct op_size *size)
{
    if (!cuts_products(op))
        same_as_other(be, op, size);
}

static void ops_without_cut_products_have_the_same_bits_at_any_thread_count(void **state)
{
    struct cpu *one = open_cpu(1), *three = open_cpu(3);
    (void)state;

    other_backend = &three->base;
    each_op_case(&one->base, op_size_count, same_unless_products);
    backend_close(&one->base);
    backend_close(&three->base);
}

static void spoil_scratch(struct cpu *cpu)
{
    for (size_t i = 0; i < cpu->scratch_count; i++)
        cpu->scratch[i] = NAN;
}

/* Outputs start as NaN: none is left. */
static void must_be_numbers(const struct op_run *run, const struct op_array *a,
                            const struct op_array *b)
{
    (void)b;
    for (size_t k = 0; !a->bytes && k < a->count; k++)
        if (isnan(a->result[k]))
            fail_msg("%s, %s: %s[%zu] was not written", run->op->name, run->size->name, a->name, k);
}

static void same_with_spoiled_scratch(struct backend *be, const struct op_case *op,
                                      const struct op_size *size)
{
    struct op_run run, other;

    run_op(&run, be, op, size);
    spoil_scratch((struct cpu *)be);
    op_run_init(&other, be, op, size);
    op_run_forward(&other);
    spoil_scratch((struct cpu *)be);
    if (op->backward)
        op_run_backward(&other);
    compare_runs(&run, &other, must_be_same_bits);
    compare_runs(&run, &other, must_be_numbers);
    op_run_release(&run);
    op_run_release(&other);
}

static void leftovers_in_scratch_and_outputs_do_not_matter(void **state)
{
    struct cpu *cpu = open_cpu(3);
    (void)state;

    each_op_case(&cpu->base, op_size_count, same_with_spoiled_scratch);
    backend_close(&cpu->base);
}

static void run_and_forget(struct backend *be, const struct op_case *op, const struct op_size *size)
{
    struct op_run run;

    run_op(&run, be, op, size);
    op_run_release(&run);
}

static void a_second_pass_allocates_nothing(void **state)
{
    struct cpu *cpu = open_cpu(2);
    (void)state;

    each_op_case(&cpu->base, op_size_count, run_and_forget);
    const float *scratch = cpu->scratch;
    const size_t count = cpu->scratch_count;
    assert_true(count > 0);
    each_op_case(&cpu->base, op_size_count, run_and_forget);
    assert_ptr_equal(cpu->scratch, scratch);
    assert_int_equal(cpu->scratch_count, count);
    backend_close(&cpu->base);
}

static void eight_bit_rounding_has_the_bits_of_ref_on_hard_rows(void **state)
{
    static const float rows[][8] = {
        {0, -0.0f, 0, 0, 0, 0, 0, 0},
        {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f},
        {-254, 1, 3, 5, -1, -3, 253, 251},
        {1e-42f, -3e-43f, 5e-44f, 0, 1e-45f, -1e-45f, 2e-43f, 0},
        {1.2e-38f, -3e-39f, 1e-40f, 0, 1e-45f, 6e-39f, 2e-38f, 0},
        {3e38f, -3.4e38f, 1e30f, 1, 0, -1e38f, 2e38f, 1.7e38f},
        {INFINITY, 1, 2, 0, -1, -INFINITY, 3, 4},
        {NAN, 1, 2, 0, -1, -2, 3, 4},
        {-0.3f, 0.1f, -127.49f, 63.5f, -63.5f, 0.49999997f, -0.5f, 127.5f},
    };
    struct cpu *cpu = open_cpu(2);
    float got[COUNT_OF(rows)][8], want[COUNT_OF(rows)][8];
    (void)state;

    backend_round_a8(&cpu->base, &got[0][0], &rows[0][0], COUNT_OF(rows), 8);
    ref_round_a8(&want[0][0], &rows[0][0], COUNT_OF(rows), 8);
    for (size_t n = 0; n < COUNT_OF(rows); n++)
        for (size_t c = 0; c < 8; c++)
            if (vector_bits(got[n][c]) != vector_bits(want[n][c]) &&
                !(isnan(got[n][c]) && isnan(want[n][c])))
                fail_msg("row %zu, %g: %.9g, ref %.9g", n, (double)rows[n][c], (double)got[n][c],
                         (double)want[n][c]);
    backend_close(&cpu->base);
}

static void exp_and_log_are_within_two_units_of_the_last_place(void **state)
{
    const double bound = 2 * 0x1p-23; /* of the result */
    (void)state;

    for (double x = -87; x < 87; x += 0.00137) {
        const double want = exp((double)(float)x);
        if (!(fabs((double)vector_exp((float)x) - want) <= bound * want))
            fail_msg("exp(%.9g) is %.9g, not %.9g", x, (double)vector_exp((float)x), want);
    }
    for (double x = 1e-30; x < 1e30; x *= 1.0093) {
        const double want = log((double)(float)x);
        if (!(fabs((double)vector_log((float)x) - want) <= bound * fmax(fabs(want), 1e-2)))
            fail_msg("log(%.9g) is %.9g, not %.9g", x, (double)vector_log((float)x), want);
    }
    /* cut at 87 either way, so that a softmax meets neither infinity nor a subnormal number */
    assert_true(vector_exp(0) == 1 && vector_exp(-INFINITY) == vector_exp(-87));
    assert_true(vector_exp(-87) < 2e-38f && vector_exp(-87) > 1e-38f);
    assert_true(vector_exp(INFINITY) == vector_exp(87) && isfinite(vector_exp(87)));
    assert_true(isnan(vector_exp(NAN)) && isnan(vector_exp(-NAN)));
    assert_true(isnan(vector_log(NAN)) && vector_log(1) == 0);
    assert_true(vector_sigmoid(-200) < 2e-38f && vector_sigmoid(200) == 1);
}

static void what_is_not_a_number_comes_out_of_every_reduction(void **state)
{
    struct cpu *cpu = open_cpu(2);
    float x[3 * 8] = {0}, y[3 * 8], r[3], sum[1], gain[8] = {0};
    const float table[4 * 8] = {1};
    const int32_t row[1] = {1};
    const uint32_t label[1] = {2};
    const float weight[1] = {1};
    float loss[1] = {0}, hit[1], dx[3 * 8];
    (void)state;

    x[8 + 3] = NAN;
    backend_sum_squares(&cpu->base, sum, x, COUNT_OF(x));
    assert_true(isnan(sum[0]));
    backend_rmsnorm_forward(&cpu->base, y, r, x, gain, 3, 8, ROUND_A8);
    assert_true(isnan(y[8]) && isnan(y[15]) && !isnan(y[0]) && !isnan(y[16]));
    backend_cross_entropy(&cpu->base, loss, hit, dx, NULL, x, table, row, label, weight, 1, 1, 3, 4,
                          8);
    assert_true(isnan(loss[0]) && isnan(dx[8]) && dx[0] == 0 && dx[16] == 0);
    backend_close(&cpu->base);
}

/* The largest score sits two lists of ancestors above the token that asks, far above the others. */
static void attention_holds_where_scores_grow_by_hundreds_up_the_tree(void **state)
{
    enum { N = 200 };
    struct cpu *cpu = open_cpu(2);
    const struct attention shape = {1, 1, 1, 1, 0, 1.0f};
    float q[N], k[N], v[N], o[N], lse[N], want_o[N], want_lse[N];
    int32_t parent[N];
    struct tree tree;
    (void)state;

    for (int i = 0; i < N; i++) {
        parent[i] = i - 1;
        q[i] = 1;
        k[i] = (float)(N - i) * 3.5f;
        v[i] = (float)(i % 7) - 3;
    }
    tree_from_parents(&cpu->base, parent, N, &tree);
    backend_attention_forward(&cpu->base, o, lse, q, k, v, &shape, &tree);
    ref_attention_forward(want_o, want_lse, q, k, v, &shape, &tree);
    assert_true(normalised_squared_error(o, want_o, N, 0.1) <= CLOSE);
    assert_true(normalised_squared_error(lse, want_lse, N, 0.1) <= CLOSE);
    tree_release(&cpu->base, &tree);
    backend_close(&cpu->base);
}

static void a_row_may_have_more_targets_than_a_tile_has_rows(void **state)
{
    enum { TARGETS = 150, D = 8, VOCAB = 20, N = 3 };
    struct cpu *cpu = open_cpu(2);
    float x[N * D], table[VOCAB * D], weight[TARGETS], loss[TARGETS], hit[TARGETS], dx[N * D];
    float want_loss[TARGETS], want_hit[TARGETS], want_dx[N * D];
    uint32_t label[TARGETS];
    int32_t row[TARGETS];
    uint64_t random = 7;
    (void)state;

    for (size_t i = 0; i < N * D; i++)
        x[i] = (float)op_normal(&random);
    for (size_t i = 0; i < VOCAB * D; i++)
        table[i] = (float)op_normal(&random);
    for (size_t m = 0; m < TARGETS; m++) {
        row[m] = m < 140 ? 1 : 2;
        label[m] = (uint32_t)(m % VOCAB);
        weight[m] = (float)(m % 3);
    }
    backend_cross_entropy(&cpu->base, loss, hit, dx, NULL, x, table, row, label, weight, 0.5f,
                          TARGETS, N, VOCAB, D);
    ref_cross_entropy(want_loss, want_hit, want_dx, NULL, x, table, row, label, weight, 0.5f,
                      TARGETS, N, VOCAB, D);
    assert_true(normalised_squared_error(loss, want_loss, TARGETS, 0.1) <= CLOSE);
    assert_true(normalised_squared_error(dx, want_dx, N * D, 0.1) <= CLOSE);
    assert_memory_equal(hit, want_hit, sizeof(hit));
    backend_close(&cpu->base);
}

/* ---- the backend ------------------------------------------------------------ */

static void no_more_threads_than_the_library_allows_are_started(void **state)
{
    struct cpu *cpu = open_cpu(1000);
    (void)state;

    assert_true(team_thread_count(cpu->team) == blas_callers_max());
    assert_true(blas_callers_max() < 1000);
    backend_close(&cpu->base);
}

static void the_inventory_shows_processor_memory_and_library(void **state)
{
    struct backend_device device = {0};
    (void)state;

    assert_int_equal(backend_describe(BACKEND_CPU, 0, &device), BACKEND_OK);
    assert_true(device.name[0] != 0 && device.core_count >= 1);
    assert_true(device.memory_total_bytes > device.memory_free_bytes);
    assert_true(device.memory_free_bytes > 0);
    if (!strstr(device.library, "OpenBLAS"))
        fail_msg("'%s' names no library", device.library);
}

static void scratch_that_does_not_fit_is_a_fault_that_says_bytes(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizers end the process instead of returning NULL */
#else
    struct cpu *cpu = open_cpu(1);

    assert_null(cpu_scratch(cpu, SIZE_MAX / 64));
    assert_int_equal(backend_sync(&cpu->base), BACKEND_NO_MEMORY);
    if (!strstr(backend_fault(&cpu->base), "bytes needed") ||
        !strstr(backend_fault(&cpu->base), "free"))
        fail_msg("'%s'", backend_fault(&cpu->base));
    backend_close(&cpu->base);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_and_three_threads_agree_with_ref),
        cmocka_unit_test(two_backends_of_three_threads_give_the_same_bits),
        cmocka_unit_test(ops_without_cut_products_have_the_same_bits_at_any_thread_count),
        cmocka_unit_test(leftovers_in_scratch_and_outputs_do_not_matter),
        cmocka_unit_test(a_second_pass_allocates_nothing),
        cmocka_unit_test(eight_bit_rounding_has_the_bits_of_ref_on_hard_rows),
        cmocka_unit_test(exp_and_log_are_within_two_units_of_the_last_place),
        cmocka_unit_test(what_is_not_a_number_comes_out_of_every_reduction),
        cmocka_unit_test(attention_holds_where_scores_grow_by_hundreds_up_the_tree),
        cmocka_unit_test(a_row_may_have_more_targets_than_a_tile_has_rows),
        cmocka_unit_test(no_more_threads_than_the_library_allows_are_started),
        cmocka_unit_test(the_inventory_shows_processor_memory_and_library),
        cmocka_unit_test(scratch_that_does_not_fit_is_a_fault_that_says_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

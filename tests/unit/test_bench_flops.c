/*
 * Proves the denominator of a claim about speed: the useful operations of a step agree with counting
 * every product of a small network by hand, and rows, targets and pairs are counted on the tree.
 */
#include "tests/bench/flops.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>

/* C [M,N] = A [M,K] B [K,N]. */
static double product(double M, double N, double K)
{
    return 2 * M * N * K;
}

/* Widths that no two parts share. */
static const struct geometry small = {
    .vocab_size = 101,
    .out_vocab = 97,
    .d_model = 6,
    .layer_count = 3,
    .head_count = 4,
    .kv_head_count = 2,
    .qk_head_size = 3,
    .v_head_size = 5,
    .engram_site_count = 2,
    .global_layer_count = 1,
    .global_layers = {1},
    .sliding_window = 7,
    .lane_count = 2,
    .monarch_size = 8,
    .monarch_a = 4,
    .monarch_b = 2,
};
static const struct counts few = {.line_tokens = 40,
                                  .rows = 23,
                                  .target_rows = 9,
                                  .grams = 19,
                                  .window_pairs = 111,
                                  .global_pairs = 131};

static void check_equal(double value, double expected)
{
    if (fabs(value - expected) > 1e-12 * fabs(expected)) /* sums in another order */
        fail_msg("%.17g is not %.17g", value, expected);
}

static void the_forward_pass_is_the_sum_of_its_products(void **state)
{
    (void)state;
    const struct flops flops = flops_of_forward(&small, &few);
    const double N = 23, D = 6, q = 4 * 3, k = 2 * 3, v = 2 * 5, o = 4 * 5;
    const double layer = product(N, q, D) + product(N, k, D) + product(N, v, D) + product(N, o, D) +
                         product(N, D, o);
    double monarch = 0, hyper = 0;

    check_equal(flops.projections, 3 * layer);
    /* two layers with a window, one without; a score of 3 and a value of 5 for each head */
    check_equal(flops.attention, (111 + 131 + 111) * 4 * (2 * 3 + 2 * 5));
    for (int kronecker = 0; kronecker < 3; kronecker++) /* [4,2] times [2,2], [4,4] times [4,2] */
        monarch += product(4, 2, 2) + product(4, 2, 4);
    monarch += product(1, CONDITION_RANK, 6) + product(1, 8, CONDITION_RANK);
    check_equal(flops.monarch, 3 * N * monarch);
    hyper += product(1, 8, 2 * 6);                /* coefficients: 2 + 2 + 4 */
    hyper += product(1, 6, 2) + product(2, 6, 2); /* read one, mix two */
    hyper += product(2, 6, 1);                    /* write to two */
    check_equal(flops.hyper, 3 * N * hyper);
    check_equal(flops.engram, 2 * 2 * product(19, D, D));
    check_equal(flops.head, product(9, 97, D));
    check_equal(flops.adapter, 0);
}

static void a_step_adds_the_gradients_that_are_needed(void **state)
{
    (void)state;
    const struct flops forward = flops_of_forward(&small, &few);
    const struct flops step = flops_of_step(&small, 2, &few);
    const double N = 23, D = 6, widths[] = {12, 6, 10, 20};
    double adapter = 0, inputs = 0;

    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        const double out = widths[i];

        /* dY Bt, Xt (dY Bt), X A, (X A)t dY; A B */
        adapter += product(N, 2, out) + product(D, 2, N) + product(N, 2, D) + product(2, out, N) +
                   product(D, out, 2);
        inputs += product(N, D, out);
    }
    adapter += product(N, 2, D) + product(20, 2, N) + product(N, 2, 20) + product(2, D, N) +
               product(20, D, 2);
    check_equal(step.adapter, 3 * adapter);
    /* what enters the first layer needs no gradient, what leaves its heads does */
    check_equal(step.projections - forward.projections, 2 * inputs + 3 * product(N, 20, D));
    check_equal(step.attention, 3 * forward.attention);
    check_equal(step.monarch, 2 * forward.monarch);
    check_equal(step.head, 2 * forward.head);
    check_equal(step.engram, forward.engram);
    check_equal(flops_total(&step), step.projections + step.adapter + step.attention +
                                        step.monarch + step.hyper + step.engram + step.head);
}

static void rows_are_counted_once_however_many_lines_pass_them(void **state)
{
    (void)state;
    static const char line[] = "{\"query\":\"la la la la la la\",\"tools\":[],\"answers\":[]}\n"
                               "{\"query\":\"la la la la la la\",\"tools\":[],\"answers\":[]}\n";
    char *scratch = scratch_new();
    const struct geometry geometry = {
        .sliding_window = 4, .engram_order_count = 1, .engram_orders = {2}};
    struct train_job job = {.base_folder = FIXTURES "needle3", .hyper = hyperparameters_default()};
    struct counts one, two;
    size_t steps;
    struct error err = {0};

    job.hyper.val_split = 0;
    job.hyper.max_len = 64;
    job.training_path = scratch_path(scratch, "two.jsonl");
    scratch_write(job.training_path, line, strlen(line));
    if (!counts_of_steps(&job, &geometry, 5, &two, &steps, &err))
        fail_msg("%s", err.message);
    assert_int_equal(steps, 1);
    scratch_write(job.training_path, line, strlen(line) / 2);
    if (!counts_of_steps(&job, &geometry, 5, &one, &steps, &err))
        fail_msg("%s", err.message);

    assert_true(one.rows > 4);
    assert_int_equal(one.rows, one.line_rows);
    assert_int_equal(one.line_tokens, one.rows + 1); /* nothing is predicted from the last */
    assert_int_equal(two.rows, one.rows);
    assert_int_equal(two.line_rows, 2 * one.rows);
    assert_int_equal(two.line_tokens, 2 * one.line_tokens);
    assert_int_equal(two.target_rows, one.target_rows);
    assert_int_equal(two.grams, one.grams);
    assert_true(one.grams > 1);
    assert_true(one.grams + 3 <= one.rows); /* la after la, again and again */
    check_equal(one.global_pairs, (double)(one.rows * (one.rows + 1) / 2));
    check_equal(one.window_pairs, (double)(4 * one.rows - 6)); /* 1 + 2 + 3 + 4 + 4 ... */
    scratch_free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_forward_pass_is_the_sum_of_its_products),
        cmocka_unit_test(a_step_adds_the_gradients_that_are_needed),
        cmocka_unit_test(rows_are_counted_once_however_many_lines_pass_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Proves the fast paths of the hyper-connections at every level of SIMD that this processor has:
 * four lanes against ref, logits too far apart for products beside others that are not, rounding to
 * the oracle's bits, and results that do not depend on neighbours, threads or wanted gradients.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/level.h"
#include "kernels/cpu/ops/vector.h"
#include "kernels/ref/ref.h"
#include "tests/support/op_cases.h"

#include <math.h>

#define LANE_COUNT 4
#define M (2 * LANE_COUNT + LANE_COUNT * LANE_COUNT)

static struct backend *open_level(const char *name, int thread_count)
{
    const struct backend_options options = {.thread_count = thread_count, .simd_level = name};
    struct backend *be = NULL;
    char reason[256] = "";

    if (backend_open(BACKEND_CPU, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s does not open: %s", name, reason);
    return be;
}

static void each_level(void (*check)(struct backend *be, const char *level))
{
    for (size_t i = 0; i < level_count; i++) {
        if (!levels[i].is_supported())
            continue;
        struct backend *be = open_level(levels[i].name, 2);
        check(be, levels[i].name);
        backend_close(be);
    }
}

/* ---- the op table ------------------------------------------------------------ */

static struct backend *reference;
static const char *level_name;
static size_t compared_count;

static void run_op(struct op_run *run, struct backend *be, const struct op_case *op,
                   const struct op_size *size)
{
    op_run_init(run, be, op, size);
    op_run_forward(run);
    op_run_backward(run);
}

static void compare_with_ref(struct backend *be, const struct op_case *op,
                             const struct op_size *size)
{
    struct op_run run, want;

    if ((strncmp(op->name, "hyper_", 6) != 0 && strncmp(op->name, "lanes_", 6) != 0) ||
        !op->backward)
        return;
    run_op(&run, be, op, size);
    run_op(&want, reference, op, size);
    for (size_t i = 0; i < run.array_count; i++) {
        const struct op_array *a = &run.arrays[i];
        if (!a->written)
            continue;
        const double error =
            normalised_squared_error(a->result, want.arrays[i].result, a->count, 0.1);
        if (!(error <= op->tolerance))
            fail_msg("%s, %s, %s, %s: normalised squared error %.3g", level_name, op->name,
                     size->name, a->name, error);
    }
    compared_count++;
    op_run_release(&run);
    op_run_release(&want);
}

static void check_op_table(struct backend *be, const char *level)
{
    level_name = level;
    compared_count = 0;
    each_op_case(be, op_size_count, compare_with_ref);
    assert_int_equal(compared_count, 6 * op_size_count);
}

static void lanes_agree_with_ref_at_every_level(void **state)
{
    (void)state;
    reference = backend_for_test(BACKEND_REF);
    each_level(check_op_table);
    backend_close(reference);
}

/* ---- chosen logits ------------------------------------------------------------ */

enum { D = 8, WIDTH = LANE_COUNT * D, N = 37 };

/* raw[m] is the normalised value m of a token, so that logits are chosen by S. */
struct chosen {
    float S[N * WIDTH], phi[WIDTH * M], bias[M], scale[3];
    float u[N * D], h[N * M], raw[N * M], r[N];
    float du[N * D], dh[N * M], dS[N * WIDTH];
};

static struct hyper chosen_weights(const struct chosen *c, enum rounding rounding)
{
    return (struct hyper){.lanes = LANE_COUNT,
                          .D = D,
                          .phi = c->phi,
                          .bias = c->bias,
                          .scale = c->scale,
                          .rounding = rounding};
}

static void choose(struct chosen *c, float mix_scale)
{
    uint64_t random = 5;

    *c = (struct chosen){.scale = {0.7f, 0.8f, mix_scale}};
    for (size_t m = 0; m < M; m++)
        c->phi[m * M + m] = 1;
    for (size_t m = 0; m < M; m++)
        c->bias[m] = (float)op_normal(&random);
    for (size_t k = 0; k < N * WIDTH; k++)
        c->S[k] = (float)op_normal(&random);
    for (size_t k = 0; k < N * D; k++)
        c->du[k] = (float)op_normal(&random);
    for (size_t n = 0; n < N; n++)
        for (size_t m = LANE_COUNT; m < M; m++)
            c->dh[n * M + m] = (float)op_normal(&random);
}

static void run_chosen(struct backend *be, struct chosen *c, size_t first, size_t count)
{
    const struct hyper weights = chosen_weights(c, ROUND_NONE);
    const struct hyper_gradients none = {0};
    float *h = &c->h[first * M], *raw = &c->raw[first * M], *r = &c->r[first];
    const float *S = &c->S[first * WIDTH];

    backend_hyper_read_forward(be, &c->u[first * D], h, raw, r, S, &weights, count);
    backend_hyper_read_backward(be, &c->dS[first * WIDTH], &none, &c->du[first * D],
                                &c->dh[first * M], S, h, raw, r, &weights, count);
}

/* How far apart the mix's logits of a token are. */
static double range_of(const struct chosen *c, size_t token)
{
    double least = INFINITY, most = -INFINITY;

    for (size_t m = 2 * LANE_COUNT; m < M; m++) {
        const double logit = (double)(c->scale[2] * c->raw[token * M + m] + c->bias[m]);
        least = fmin(least, logit);
        most = fmax(most, logit);
    }
    return most - least;
}

static struct chosen got, want, alone;

/* 20 rounds are far from settled: number and order of the rounds show. Allowed are 40 half-rounds
 * in steps of the largest logit. */
static void check_mix_scale(struct backend *be, const char *level, float mix_scale, double allowed)
{
    size_t far_count = 0, near_count = 0;

    choose(&got, mix_scale);
    want = got;
    run_chosen(be, &got, 0, N);
    run_chosen(reference, &want, 0, N);
    for (size_t n = 0; n < N; n++) {
        *(range_of(&want, n) > 32 ? &far_count : &near_count) += 1;
        for (size_t m = 0; m < M; m++) {
            const double a = (double)got.h[n * M + m], b = (double)want.h[n * M + m];
            if (!(fabs(a - b) <= 1e-30 + allowed * b))
                fail_msg("%s: token %zu, coefficient %zu: %.9g, not %.9g", level, n, m, a, b);
        }
    }
    assert_true(far_count >= 5 && (near_count >= 5 || mix_scale > 9));
    const double error = normalised_squared_error(got.dS, want.dS, N * WIDTH, 0.1);
    if (!(error <= CLOSE))
        fail_msg("%s: dS has normalised squared error %.3g", level, error);
}

static void check_far_logits(struct backend *be, const char *level)
{
    check_mix_scale(be, level, 9, 2e-5);
    check_mix_scale(be, level, 40, 1e-3);
}

static void logits_too_far_apart_for_products_agree_with_ref(void **state)
{
    (void)state;
    reference = backend_for_test(BACKEND_REF);
    each_level(check_far_logits);
    backend_close(reference);
}

static void must_be_same(const char *level, const char *what, const float *a, const float *b,
                         size_t count)
{
    if (memcmp(a, b, count * sizeof(float)) != 0)
        fail_msg("%s: %s has other bits", level, what);
}

static void check_neighbours(struct backend *be, const char *level)
{
    choose(&got, 9);
    alone = got;
    run_chosen(be, &got, 0, N);
    for (size_t n = 0; n < N; n++)
        run_chosen(be, &alone, n, 1);
    must_be_same(level, "u", got.u, alone.u, N * D);
    must_be_same(level, "h", got.h, alone.h, N * M);
    must_be_same(level, "raw", got.raw, alone.raw, N * M);
    must_be_same(level, "r", got.r, alone.r, N);
    must_be_same(level, "dS", got.dS, alone.dS, N * WIDTH);
}

static void a_token_has_the_same_bits_alone_and_among_others(void **state)
{
    (void)state;
    each_level(check_neighbours);
}

static void check_not_a_number(struct backend *be, const char *level)
{
    const size_t token = 18;

    choose(&got, 1);
    alone = got;
    alone.S[token * WIDTH + 20] = NAN;
    run_chosen(be, &got, 0, N);
    run_chosen(be, &alone, 0, N);
    for (size_t m = 0; m < M; m++)
        if (!isnan(alone.h[token * M + m]))
            fail_msg("%s: coefficient %zu is %g", level, m, (double)alone.h[token * M + m]);
    assert_true(isnan(alone.r[token]) && isnan(alone.u[token * D]));
    assert_true(isnan(alone.dS[token * WIDTH]));
    must_be_same(level, "h before", got.h, alone.h, token * M);
    must_be_same(level, "dS after", &got.dS[(token + 1) * WIDTH], &alone.dS[(token + 1) * WIDTH],
                 (N - token - 1) * WIDTH);
}

static void what_is_not_a_number_stays_with_its_token(void **state)
{
    (void)state;
    each_level(check_not_a_number);
}

static void check_wanted_gradients(struct backend *be, const char *level)
{
    static float dphi[WIDTH * M], dbias[M], dscale[3];
    const struct hyper_gradients gradients = {dphi, dbias, dscale};

    choose(&got, 1);
    run_chosen(be, &got, 0, N);
    alone = got;
    memset(alone.dS, 0, sizeof(alone.dS));
    const struct hyper weights = chosen_weights(&alone, ROUND_NONE);
    backend_hyper_read_backward(be, alone.dS, &gradients, alone.du, alone.dh, alone.S, alone.h,
                                alone.raw, alone.r, &weights, N);
    must_be_same(level, "dS", got.dS, alone.dS, N * WIDTH);
    memset(alone.dS, 0, sizeof(alone.dS));
    backend_hyper_read_backward(be, alone.dS, NULL, alone.du, alone.dh, alone.S, alone.h, alone.raw,
                                alone.r, &weights, N);
    must_be_same(level, "dS without gradients", got.dS, alone.dS, N * WIDTH);
}

static void wanted_gradients_leave_the_lanes_gradient_as_it_is(void **state)
{
    (void)state;
    each_level(check_wanted_gradients);
}

/* ---- rounding ------------------------------------------------------------ */

static void check_rounding(struct backend *be, const char *level)
{
    static const float factors[N] = {1,      0,      1e-20f, 1e-38f, 3e-42f, 1e-45f,
                                     1e-36f, 1e-35f, 1e19f,  1e25f,  3e37f,  1e-10f};
    const double eps = CPU_EPSILON;

    choose(&got, 1);
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; n % 3 == 0 && k < WIDTH; k++) /* halves: where rounding is even or not */
            got.S[n * WIDTH + k] = 0.5f * (float)(int)(k * k % 255) - 63.5f;
        got.S[n * WIDTH + 3] = n % 3 == 0 ? 127.0f : 0.0f;
        for (size_t k = 0; factors[n] != 0 && k < WIDTH; k++)
            got.S[n * WIDTH + k] *= factors[n];
    }
    memset(&got.S[1 * WIDTH], 0, WIDTH * sizeof(float));
    const struct hyper weights = chosen_weights(&got, ROUND_A8);
    backend_hyper_read_forward(be, got.u, got.h, got.raw, got.r, got.S, &weights, N);
    for (size_t n = 0; n < N; n++) {
        float nx[WIDTH], rounded[WIDTH];
        double mean = 0;
        for (size_t k = 0; k < WIDTH; k++) {
            mean += (double)got.S[n * WIDTH + k] * (double)got.S[n * WIDTH + k] / WIDTH;
            nx[k] = got.S[n * WIDTH + k] * got.r[n];
        }
        ref_round_a8_row(rounded, nx, WIDTH);
        if (!(fabs((double)got.r[n] * sqrt(mean + eps) - 1) <= 2e-7))
            fail_msg("%s, token %zu: r is %.9g, not %.9g", level, n, (double)got.r[n],
                     1 / sqrt(mean + eps));
        for (size_t m = 0; m < M; m++)
            if (got.raw[n * M + m] != rounded[m])
                fail_msg("%s, token %zu, value %zu: %.9g, ref %.9g", level, n, m,
                         (double)got.raw[n * M + m], (double)rounded[m]);
    }
}

static void lanes_are_rounded_to_the_bits_of_ref(void **state)
{
    (void)state;
    each_level(check_rounding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_agree_with_ref_at_every_level),
        cmocka_unit_test(logits_too_far_apart_for_products_agree_with_ref),
        cmocka_unit_test(a_token_has_the_same_bits_alone_and_among_others),
        cmocka_unit_test(what_is_not_a_number_stays_with_its_token),
        cmocka_unit_test(wanted_gradients_leave_the_lanes_gradient_as_it_is),
        cmocka_unit_test(lanes_are_rounded_to_the_bits_of_ref),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Proves what ops on single rows promise beyond the op table's cases, on each level of SIMD: 8-bit
 * rows bit for bit as ref at every length and for the smallest and largest numbers, codes with the
 * oracle's choice around every threshold, norms of rows whose squares leave float32, gradients of
 * taps where a token has several children.
 */
#include "kernels/ref/ref.h"
#include "tests/support/op_run.h"

#include <math.h>
#include <stdlib.h>

/* Each level of SIMD that the processor has, its memory the host's. */
static void each_level(void (*body)(struct backend *be))
{
    static const char *const levels[] = {"plain", "avx2", "avx512"};
    size_t count = 0;

    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        const struct backend_options options = {.thread_count = 2, .simd_level = levels[l]};
        struct backend *be = NULL;
        char reason[256];
        enum backend_status status =
            backend_open(BACKEND_CPU, &options, &be, reason, sizeof reason);

        if (status == BACKEND_ABSENT)
            continue;
        if (status != BACKEND_OK)
            fail_msg("%s does not open: %s", levels[l], reason);
        body(be);
        backend_close(be);
        count++;
    }
    assert_true(count > 0);
}

/* ---- 8 bits ---------------------------------------------------------------------------------- */

#define LENGTH_MAX 200

static void check_8_bits(struct backend *be)
{
    static const float factors[] = {1, 0, 1e-20f, 3e-38f, 3e-42f, 1e-45f, 1e25f, 1e38f};
    uint64_t random = 1;
    float x[LENGTH_MAX], y[LENGTH_MAX], expected[LENGTH_MAX];

    for (size_t C = 1; C <= LENGTH_MAX; C += C < 70 ? 1 : 13) {
        for (size_t f = 0; f < COUNT_OF(factors); f++) {
            for (size_t c = 0; c < C; c++) /* every other one midway between two steps of 127 */
                x[c] = factors[f] * (c % 2 ? (float)op_normal(&random)
                                           : 0.5f * (float)((int)c * 7 % 255 - 127) / 127);
            x[C / 2] = factors[f];
            ref_round_a8_row(expected, x, C);
            backend_round_a8(be, y, x, 1, C);
            for (size_t c = 0; c < C; c++)
                if (y[c] != expected[c] && !(isnan(y[c]) && isnan(expected[c])))
                    fail_msg("%zu of %zu, factor %g: %.9g, ref %.9g", c, C, (double)factors[f],
                             (double)y[c], (double)expected[c]);
        }
    }
}

static void rows_of_8_bits_have_the_bits_of_ref(void **state)
{
    (void)state;
    each_level(check_8_bits);
}

/* ---- codes ----------------------------------------------------------------------------------- */

#define OUTPUTS 33 /* two whole tiles and one more */

/* Groups of two: x = (a, b) becomes (a + b, a - b) / sqrt(2), so that for a = b the first is the
 * norm and the second 0. Groups of one are their own unit: 1 or -1. Here the units are chosen: a
 * second member of size u and a first that makes the norm 1 to the last bit or so. */
static void check_thresholds(struct backend *be)
{
    static const float values[16] = {-0.9f, -0.8f, -0.61f, -0.5f, -0.4f, -0.25f, -0.125f, -0.03125f,
                                     0.03f, 0.1f,  0.2f,   0.3f,  0.45f, 0.6f,   0.75f,   0.875f};
    const size_t counts[] = {4, 8, 16};

    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        float w[OUTPUTS * 2], y[OUTPUTS * 2], expected[OUTPUTS * 2];
        float norm[OUTPUTS], norm_expected[OUTPUTS];
        uint8_t index[OUTPUTS * 2], index_expected[OUTPUTS * 2];
        const struct codebook codebook = {values, counts[i], 2};

        for (size_t k = 0; k + 1 < counts[i]; k++) {
            for (size_t o = 0; o < OUTPUTS; o++) { /* angles around the one of the threshold */
                const double sine = 0.5 * ((double)values[k] + (double)values[k + 1]) +
                                    6e-8 * ((double)o - OUTPUTS / 2);
                const double cosine = sqrt(1 - sine * sine);
                w[o * 2] = (float)((cosine + sine) * sqrt(0.5));
                w[o * 2 + 1] = (float)((cosine - sine) * sqrt(0.5));
            }
            for (size_t columns = 0; columns < 2; columns++) {
                const size_t rows = columns ? 2 : OUTPUTS, cols = columns ? OUTPUTS : 2;
                float turned[OUTPUTS * 2];

                for (size_t o = 0; o < OUTPUTS; o++)
                    for (size_t j = 0; j < 2; j++)
                        turned[columns ? j * OUTPUTS + o : o * 2 + j] = w[o * 2 + j];
                backend_round_code(be, y, index, norm, turned, &codebook, rows, cols, columns);
                ref_round_code(expected, index_expected, norm_expected, turned, &codebook, rows,
                               cols, columns);
                /* A group of two adds once: f32 and f64 sums round alike, nearly always. */
                size_t differing = 0;
                for (size_t n = 0; n < OUTPUTS * 2; n++)
                    differing += index[n] != index_expected[n];
                if (differing > 3)
                    fail_msg("%zu codes, threshold %zu: %zu of %d differ", counts[i], k, differing,
                             OUTPUTS * 2);
            }
        }
    }
}

static void codes_around_each_threshold_are_the_choice_of_ref(void **state)
{
    (void)state;
    each_level(check_thresholds);
}

/* Wide matrices, both ways, with and without indices: the same values. */
static void check_indices_wanted_or_not(struct backend *be)
{
    enum { ROWS = 130, COLS = 37, GROUPS = COLS * 2 };
    static float w[ROWS * COLS], with[ROWS * COLS], without[ROWS * COLS], expected[ROWS * COLS];
    static uint8_t index[GROUPS * 128], index_expected[GROUPS * 128];
    float values[16], norm[GROUPS], norm_expected[GROUPS];
    const struct codebook codebook = {values, 16, 128};
    uint64_t random = 9;
    size_t differing = 0;

    for (size_t k = 0; k < 16; k++)
        values[k] = ((float)k - 7.5f) * 0.3f / sqrtf(128);
    for (size_t i = 0; i < COUNT_OF(w); i++)
        w[i] = (float)op_normal(&random);
    backend_round_code(be, with, index, norm, w, &codebook, ROWS, COLS, true);
    backend_round_code(be, without, NULL, NULL, w, &codebook, ROWS, COLS, true);
    ref_round_code(expected, index_expected, norm_expected, w, &codebook, ROWS, COLS, true);
    assert_memory_equal(with, without, sizeof with);
    for (size_t i = 0; i < COUNT_OF(index); i++)
        differing += index[i] != index_expected[i];
    assert_true(differing <= COUNT_OF(index) / 1000);
    assert_true(normalised_squared_error(with, expected, COUNT_OF(w), 0.1) < FLIP);
}

static void values_are_the_same_whether_indices_are_wanted_or_not(void **state)
{
    (void)state;
    each_level(check_indices_wanted_or_not);
}

/* ---- norms ----------------------------------------------------------------------------------- */

#define WIDTH 40

/* Relative to the largest of the row: f32 with a few roundings of 6e-8. */
static void must_be_near(const char *what, double factor, const float *a, const float *b)
{
    double largest = 0, error = 0;

    for (size_t c = 0; c < WIDTH; c++) {
        largest = fmax(largest, fabs((double)b[c]));
        error = fmax(error, fabs((double)a[c] - (double)b[c]));
    }
    if (!(error <= 1e-6 * largest))
        fail_msg("%s of a row of size %g: off by %g of %g", what, factor, error, largest);
}

static void check_large_rows(struct backend *be)
{
    static const float factors[] = {1, 1e-10f, 1e-30f, 1e18f, 1e20f, 1e30f};
    float x[WIDTH], y[WIDTH], dy[WIDTH], dx[WIDTH], gain[WIDTH], r, gate = 0.3f;
    float ref_y[WIDTH], ref_dx[WIDTH], ref_r;
    uint64_t random = 3;

    for (size_t f = 0; f < COUNT_OF(factors); f++) {
        for (size_t c = 0; c < WIDTH; c++) {
            x[c] = factors[f] * (float)op_normal(&random);
            dy[c] = (float)op_normal(&random);
            gain[c] = 0.1f * (float)op_normal(&random);
        }
        backend_rmsnorm_forward(be, y, &r, x, gain, 1, WIDTH, ROUND_NONE);
        ref_rmsnorm_forward(ref_y, &ref_r, x, gain, 1, WIDTH, ROUND_NONE);
        assert_true(fabs((double)r / (double)ref_r - 1) < 1e-6);
        must_be_near("norm", factors[f], y, ref_y);
        backend_rmsnorm_backward(be, dx, NULL, dy, x, gain, &ref_r, 1, WIDTH);
        ref_rmsnorm_backward(ref_dx, NULL, dy, x, gain, &ref_r, 1, WIDTH);
        must_be_near("gradient", factors[f], dx, ref_dx);
        backend_residual_norm_forward(be, y, &r, dy, x, gain, &gate, 1, WIDTH);
        ref_residual_norm_forward(ref_y, &ref_r, dy, x, gain, &gate, 1, WIDTH);
        must_be_near("residual norm", factors[f], y, ref_y);
        backend_inject_forward(be, y, &r, dy, x, gain, 1, WIDTH);
        ref_inject_forward(ref_y, &ref_r, dy, x, gain, 1, WIDTH);
        assert_true(fabs((double)r / (double)ref_r - 1) < 1e-6);
    }
}

static void norms_of_rows_whose_squares_leave_float32_are_those_of_ref(void **state)
{
    (void)state;
    each_level(check_large_rows);
}

/* ---- taps ------------------------------------------------------------------------------------ */

static void check_branches(struct backend *be)
{
    /* A trunk of 4, whose tokens have up to four children, some of which branch again. */
    static const int32_t parent[] = {-1, 0, 1,  2, 3,  4,  5,  3,  7,  3,  9,  9,
                                     11, 2, 13, 0, 15, 16, 17, 18, -1, 20, 21, 20};
    enum { N = sizeof parent / sizeof parent[0], C = 37 };
    static float dy[N * C], taps[7 * C], dx[N * C], expected[N * C];
    struct tree tree;
    uint64_t random = 5;

    for (size_t i = 0; i < COUNT_OF(dy); i++)
        dy[i] = (float)op_normal(&random);
    for (size_t i = 0; i < COUNT_OF(taps); i++)
        taps[i] = (float)op_normal(&random);
    tree_from_parents(be, parent, N, &tree);
    for (size_t count = 1; count <= 7; count++) {
        for (size_t dilation = 1; dilation <= 3; dilation++) {
            backend_taps_backward(be, dx, NULL, dy, dy, taps, &tree, C, count, dilation);
            ref_taps_backward(expected, NULL, dy, dy, taps, &tree, C, count, dilation);
            if (!(normalised_squared_error(dx, expected, COUNT_OF(dx), 0.1) < CLOSE))
                fail_msg("%zu taps, dilation %zu: dx is not that of ref", count, dilation);
        }
    }
    tree_release(be, &tree);
}

static void gradients_of_taps_gather_from_every_branch(void **state)
{
    (void)state;
    each_level(check_branches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_8_bits_have_the_bits_of_ref),
        cmocka_unit_test(codes_around_each_threshold_are_the_choice_of_ref),
        cmocka_unit_test(values_are_the_same_whether_indices_are_wanted_or_not),
        cmocka_unit_test(norms_of_rows_whose_squares_leave_float32_are_those_of_ref),
        cmocka_unit_test(gradients_of_taps_gather_from_every_branch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

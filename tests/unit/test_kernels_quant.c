/*
 * Proves that rounding gives the reference implementation's numbers: 8-bit rows bit for bit, code
 * indices and norms, straight-through sums, groups along either axis. Recorded from the reference
 * implementation, cactus-needle 3.2.8.
 */
#include "kernels/table.h"
#include "tests/support/op_fixture.h"
#include "tests/support/op_run.h"

#include <float.h>
#include <math.h>

static const char *const quant_files[] = {FIXTURES "needle3/quant.safetensors",
                                          FIXTURES "needle3/mini/quant.safetensors"};

/* A device copy of host values, or zeroes when values is NULL. */
static float *to_device(struct backend *be, const float *values, size_t count)
{
    float *device = backend_alloc(be, count * sizeof(*device));

    assert_non_null(device);
    if (values)
        backend_upload(be, device, values, count * sizeof(*device));
    return device;
}

static void check_rows_of_8_bits(struct backend *be, struct fixture *fixture, const char *in_name,
                                 const char *out_name)
{
    const size_t C = fixture_axis(fixture, in_name, 0);
    size_t count;
    const float *in = fixture_values(fixture, in_name, &count);
    const float *golden = fixture_values(fixture, out_name, NULL);
    float *x = to_device(be, in, count), *y = to_device(be, NULL, count);
    float *result = malloc(count * sizeof(*result));

    backend_round_a8(be, y, x, count / C, C);
    backend_download(be, result, y, count * sizeof(*result));
    for (size_t i = 0; i < count; i++) {
        /* The reference flushes denormals: an exponent we keep is zero there. */
        if (result[i] != golden[i] && !(golden[i] == 0 && fabsf(result[i]) < FLT_MIN))
            fail_msg("%s: %s[%zu] of %.9g is %.9g, recorded %.9g", backend_name(be->kind), out_name,
                     i, in[i], result[i], golden[i]);
    }
    backend_free(be, x);
    backend_free(be, y);
    free(result);
}

static void check_8_bits(struct backend *be)
{
    for (size_t i = 0; i < COUNT_OF(quant_files); i++) {
        struct fixture *fixture = fixture_open(quant_files[i]);

        check_rows_of_8_bits(be, fixture, "act/in", "act/out");
        check_rows_of_8_bits(be, fixture, "kv/in", "kv/a8");
        fixture_close(fixture);
    }
}

static void rows_of_8_bits_are_bit_equal_to_the_reference(void **state)
{
    (void)state;
    each_backend(check_8_bits);
}

/* ---- codes -------------------------------------------------------------------------------------
 */

struct code_result {
    float *y, *norm;
    uint8_t *index;
    size_t count, groups;
};

static struct code_result run_code(struct backend *be, const float *w, size_t rows, size_t cols,
                                   const float *values, size_t values_count, size_t group,
                                   bool columns)
{
    const size_t outputs = columns ? cols : rows, inputs = columns ? rows : cols;
    struct code_result r = {.count = rows * cols,
                            .groups = outputs * ((inputs + group - 1) / group)};
    float *w_device = to_device(be, w, r.count), *y = to_device(be, NULL, r.count);
    float *norm = to_device(be, NULL, r.groups), *v = to_device(be, values, values_count);
    uint8_t *index = backend_alloc(be, r.groups * group);
    const struct codebook codebook = {.values = v, .count = values_count, .group = group};

    r.y = malloc(r.count * sizeof(*r.y));
    r.norm = malloc(r.groups * sizeof(*r.norm));
    r.index = malloc(r.groups * group);
    backend_round_code(be, y, index, norm, w_device, &codebook, rows, cols, columns);
    backend_download(be, r.y, y, r.count * sizeof(*r.y));
    backend_download(be, r.norm, norm, r.groups * sizeof(*r.norm));
    backend_download(be, r.index, index, r.groups * group);
    backend_free(be, w_device);
    backend_free(be, y);
    backend_free(be, norm);
    backend_free(be, v);
    backend_free(be, index);
    return r;
}

static void release_code(struct code_result *r)
{
    free(r->y);
    free(r->norm);
    free(r->index);
}

/* Values: 2e-6 of the row's largest covers the order of two sums of 128 terms and the last bit of
 * w + (q - w); a wrong index is 1e-2 of it. */
static void check_values(const char *what, const float *y, const float *golden, size_t rows,
                         size_t cols)
{
    for (size_t r = 0; r < rows; r++) {
        float largest = 0;

        for (size_t c = 0; c < cols; c++)
            largest = fmaxf(largest, fabsf(golden[r * cols + c]));
        for (size_t c = 0; c < cols; c++) {
            const float ours = y[r * cols + c], theirs = golden[r * cols + c];

            if (isnan(theirs) ? !isnan(ours) : !(fabsf(ours - theirs) <= 2e-6f * largest))
                fail_msg("%s [%zu,%zu]: %.9g, recorded %.9g", what, r, c, ours, theirs);
        }
    }
}

static void check_matrix(struct backend *be, struct fixture *fixture, const char *matrix)
{
    char name[64];
    size_t count;

    snprintf(name, sizeof(name), "%s/in", matrix);
    const size_t cols = fixture_axis(fixture, name, 0);
    const float *w = fixture_values(fixture, name, &count);
    const size_t rows = count / cols;

    for (int bits = 2; bits <= 4; bits++) {
        for (size_t group = 64; group <= 128; group *= 2) {
            snprintf(name, sizeof(name), "codebook/b%d_g%zu", bits, group);
            struct code_result r = run_code(be, w, rows, cols, fixture_values(fixture, name, NULL),
                                            (size_t)1 << bits, group, false);

            snprintf(name, sizeof(name), "%s/cq%d%s", matrix, bits, group == 64 ? "_g64" : "");
            check_values(name, r.y, fixture_values(fixture, name, NULL), rows, cols);
            if (bits == 4 && group == 128) {
                snprintf(name, sizeof(name), "%s/ste4", matrix);
                check_values(name, r.y, fixture_values(fixture, name, NULL), rows, cols);
                snprintf(name, sizeof(name), "%s/idx4", matrix);
                const float *index = fixture_values(fixture, name, NULL);
                for (size_t i = 0; i < r.groups * group; i++)
                    if (index[i] != r.index[i])
                        fail_msg("%s[%zu]: %d, recorded %g", name, i, r.index[i], index[i]);
                snprintf(name, sizeof(name), "%s/norm4", matrix);
                const float *norm = fixture_values(fixture, name, NULL);
                for (size_t i = 0; i < r.groups; i++)
                    if (norm[i] != r.norm[i])
                        fail_msg("%s[%zu]: %.9g, recorded %.9g", name, i, r.norm[i], norm[i]);
            }
            release_code(&r);
        }
    }
}

static void check_codes(struct backend *be)
{
    static const char *const matrices[] = {"m10", "m96", "m128", "m192", "m256", "m300"};

    for (size_t i = 0; i < COUNT_OF(quant_files); i++) {
        struct fixture *fixture = fixture_open(quant_files[i]);

        for (size_t k = 0; k < COUNT_OF(matrices); k++)
            check_matrix(be, fixture, matrices[k]);
        fixture_close(fixture);
    }
}

static void codes_indices_and_norms_are_those_of_the_reference(void **state)
{
    (void)state;
    each_backend(check_codes);
}

static void check_head_codes(struct backend *be)
{
    for (size_t i = 0; i < COUNT_OF(quant_files); i++) {
        struct fixture *fixture = fixture_open(quant_files[i]);
        const size_t cols = fixture_axis(fixture, "kv/in", 0);
        size_t count;
        const float *w = fixture_values(fixture, "kv/in", &count);

        for (int bits = 2; bits <= 4; bits++) {
            char name[64];

            snprintf(name, sizeof(name), "codebook/b%d_g64", bits);
            struct code_result r =
                run_code(be, w, count / cols, cols, fixture_values(fixture, name, NULL),
                         (size_t)1 << bits, 64, false);
            snprintf(name, sizeof(name), "kv/cq%d_g64", bits);
            check_values(name, r.y, fixture_values(fixture, name, NULL), count / cols, cols);
            release_code(&r);
        }
        fixture_close(fixture);
    }
}

static void heads_shorter_than_a_group_are_padded(void **state)
{
    (void)state;
    each_backend(check_head_codes);
}

static void check_columns(struct backend *be)
{
    struct fixture *fixture = fixture_open(quant_files[0]);
    const float *values = fixture_values(fixture, "codebook/b4_g128", NULL);
    const float *w = fixture_values(fixture, "m300/in", NULL);
    float turned[4 * 300];

    for (size_t r = 0; r < 4; r++)
        for (size_t c = 0; c < 300; c++)
            turned[c * 4 + r] = w[r * 300 + c];
    struct code_result rows = run_code(be, w, 4, 300, values, 16, 128, false);
    struct code_result columns = run_code(be, turned, 300, 4, values, 16, 128, true);
    for (size_t r = 0; r < 4; r++)
        for (size_t c = 0; c < 300; c++)
            assert_true(columns.y[c * 4 + r] == rows.y[r * 300 + c]);
    assert_memory_equal(columns.index, rows.index, rows.groups * 128);
    assert_memory_equal(columns.norm, rows.norm, rows.groups * sizeof(float));
    release_code(&rows);
    release_code(&columns);
    fixture_close(fixture);
}

static void columns_are_rounded_as_the_rows_of_the_transpose(void **state)
{
    (void)state;
    each_backend(check_columns);
}

/* ---- written out again -------------------------------------------------------------------------- */

static float in_8_bits(float x, float scale, float scaled)
{
    const float q = fminf(fmaxf(nearbyintf(scaled), -128.0f), 127.0f) * scale;

    return x + (q - x);
}

/* Enough rows that each way of computing it nearly right shows at least once. */
static void check_many_rows(struct backend *be)
{
    enum { ROWS = 4000, COLS = 19 };
    float *x = calloc(ROWS * COLS, sizeof(*x)), *y = calloc(ROWS * COLS, sizeof(*y));
    uint64_t random = 11;
    size_t divided = 0;

    for (size_t i = 0; i < ROWS * COLS; i++) { /* the largest; plain values; edges of steps */
        const float step = fabsf(x[i / COLS * COLS]) * (1.0f / 127.0f);

        x[i] = i % COLS == 0 ? (float)(1 + fabs(op_normal(&random)))
               : i % 2       ? (float)(op_normal(&random) / 8)
                             : ((float)(op_random(&random) % 126) + 0.5f) * step;
    }
    float *x_at = to_device(be, x, ROWS * COLS), *y_at = to_device(be, NULL, ROWS * COLS);
    backend_round_a8(be, y_at, x_at, ROWS, COLS);
    backend_download(be, y, y_at, ROWS * COLS * sizeof(*y));
    for (size_t row = 0; row < ROWS; row++) {
        float largest = 0;

        for (size_t c = 0; c < COLS; c++)
            largest = fmaxf(largest, fabsf(x[row * COLS + c]));
        const float scale = largest * (1.0f / 127.0f), inverse = 1.0f / scale;
        for (size_t c = 0; c < COLS; c++) {
            const float value = x[row * COLS + c];
            const float expected = in_8_bits(value, scale, value * inverse);

            divided += in_8_bits(value, scale, value / scale) != expected;
            if (y[row * COLS + c] != expected)
                fail_msg("%s: row %zu, column %zu: %.9g of %.9g, expected %.9g",
                         backend_name(be->kind), row, c, y[row * COLS + c], value, expected);
        }
    }
    assert_true(divided > 0); /* x / s for x (1 / s) would have been seen */
    backend_free(be, x_at);
    backend_free(be, y_at);
    free(x);
    free(y);
}

static void rows_of_8_bits_multiply_by_the_reciprocal(void **state)
{
    (void)state;
    each_backend(check_many_rows);
}

/* With groups of one the norm is |w| and the code's sign that of w: every step shows. */
static void check_single_norms(struct backend *be)
{
    static const float halves[][2] = {
        /* |w|, the nearest float16 */
        {1, 1},
        {2049, 2048},                 /* a tie goes to the even one, below */
        {2051, 2052},                 /* and above */
        {65504, 65504},               /* the largest */
        {65519.996f, 65504},          /* still nearer to it */
        {65520, INFINITY},            /* halfway to what would come next */
        {0x1p-14f, 0x1p-14f},         /* the smallest normal one */
        {0x1.004p-14f, 0x1.004p-14f}, /* its neighbour */
        {0x1.008p-15f, 0x1.008p-15f}, /* a subnormal one */
        {0x1.006p-15f, 0x1.008p-15f}, /* rounded to it: steps of 2^-24 */
        {0x1.8p-24f, 0x1p-23f},       /* a tie, to even */
        {0x1p-25f, 0},                /* a tie, to even: nothing */
        {0x1.000002p-25f, 0x1p-24f},  /* just above */
    };
    static const float values[] = {-2, -0.3f, 0.3f, 2}; /* the nearest to 1 is 0.3 */
    float w[COUNT_OF(halves)];
    size_t unsummed = 0;

    for (size_t i = 0; i < COUNT_OF(w); i++)
        w[i] = i % 2 ? -halves[i][0] : halves[i][0];
    struct code_result r = run_code(be, w, COUNT_OF(w), 1, values, 4, 1, false);
    for (size_t i = 0; i < COUNT_OF(w); i++) {
        const float q = values[w[i] < 0 ? 1 : 2] * halves[i][1], expected = w[i] + (q - w[i]);

        if (r.norm[i] != halves[i][1])
            fail_msg("%s: norm %.9g became %.9g, expected %.9g", backend_name(be->kind),
                     halves[i][0], r.norm[i], halves[i][1]);
        assert_int_equal(r.index[i], w[i] < 0 ? 1 : 2);
        if (r.y[i] != expected)
            fail_msg("%s: %.9g became %.9g, expected %.9g", backend_name(be->kind), w[i], r.y[i],
                     expected);
        unsummed += q != expected;
    }
    assert_true(unsummed > 0); /* q for w + (q - w) would have been seen */
    release_code(&r);
}

static void norms_are_rounded_to_float16_half_to_even(void **state)
{
    (void)state;
    each_backend(check_single_norms);
}

static void check_ties(struct backend *be)
{
    static const float values[] = {-3, -1, 1, 3}, w[32] = {0}; /* 0 lies midway between -1 and 1 */
    struct code_result r = run_code(be, w, 1, 32, values, 4, 32, false);

    for (size_t i = 0; i < 32; i++) {
        assert_int_equal(r.index[i], 1);
        assert_true(r.y[i] == 0);
    }
    release_code(&r);
}

static void a_value_midway_takes_the_lower_code(void **state)
{
    (void)state;
    each_backend(check_ties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_8_bits_are_bit_equal_to_the_reference),
        cmocka_unit_test(codes_indices_and_norms_are_those_of_the_reference),
        cmocka_unit_test(heads_shorter_than_a_group_are_padded),
        cmocka_unit_test(rows_of_8_bits_multiply_by_the_reciprocal),
        cmocka_unit_test(norms_are_rounded_to_float16_half_to_even),
        cmocka_unit_test(a_value_midway_takes_the_lower_code),
        cmocka_unit_test(columns_are_rounded_as_the_rows_of_the_transpose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

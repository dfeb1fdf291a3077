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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_8_bits_are_bit_equal_to_the_reference),
        cmocka_unit_test(codes_indices_and_norms_are_those_of_the_reference),
        cmocka_unit_test(heads_shorter_than_a_group_are_padded),
        cmocka_unit_test(columns_are_rounded_as_the_rows_of_the_transpose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

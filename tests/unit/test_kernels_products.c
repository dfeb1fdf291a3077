/*
 * Proves that products are right on each level of SIMD, at the edges of tiles, panels and stretches,
 * that with AVX an element has the same bits whatever stands beside it and on any number of threads,
 * and that cross-entropy over several tiles is that of ref on each level.
 */
#include "kernels/backend.h"
#include "tests/support/op_run.h"

#include <math.h>
#include <stdlib.h>

static const char *const levels[] = {"plain", "avx2", "avx512"};

/* NULL: this processor does not have the level. */
static struct backend *open_level(const char *level, int thread_count)
{
    const struct backend_options options = {.thread_count = thread_count, .simd_level = level};
    struct backend *be = NULL;
    char reason[256];
    enum backend_status status = backend_open(BACKEND_CPU, &options, &be, reason, sizeof reason);

    if (status != BACKEND_OK && status != BACKEND_ABSENT)
        fail_msg("%s does not open: %s", level, reason);
    return be;
}

static float *random_floats(size_t count, uint64_t seed)
{
    float *values = malloc((count + 1) * sizeof *values);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)op_normal(&seed);
    return values;
}

struct product {
    struct matmul s;
    float *A, *B, *C; /* C before the product */
};

#define GAP 3 /* between rows; belongs to no matrix */

static struct product product_make(struct matmul s)
{
    struct product p = {.s = s};

    p.s.lda = (s.transpose_a ? s.M : s.K) + GAP;
    p.s.ldb = (s.transpose_b ? s.K : s.N) + GAP;
    p.s.ldc = s.N + GAP;
    p.A = random_floats((s.transpose_a ? s.K : s.M) * p.s.lda, 1);
    p.B = random_floats((s.transpose_b ? s.N : s.K) * p.s.ldb, 2);
    p.C = random_floats(s.M * p.s.ldc, 3);
    if (s.beta == 0)
        for (size_t i = 0; i < s.M * p.s.ldc; i++)
            p.C[i] = NAN;
    return p;
}

static void product_free(struct product *p)
{
    free(p->A);
    free(p->B);
    free(p->C);
}

/* The result; the caller frees it. */
static float *product_run(struct backend *be, const struct product *p)
{
    const struct matmul *s = &p->s;
    const size_t count = s->M * s->ldc;
    float *C = malloc((count + 1) * sizeof *C);

    assert_non_null(C);
    memcpy(C, p->C, count * sizeof *C);
    backend_matmul(be, C, p->A, p->B, s);
    assert_int_equal(backend_sync(be), BACKEND_OK);
    return C;
}

static void check_product(const char *level, const struct product *p, const float *C)
{
    const struct matmul *s = &p->s;

    for (size_t m = 0; m < s->M; m++) {
        for (size_t n = 0; n < s->ldc; n++) {
            const size_t at = m * s->ldc + n;
            double sum = 0, size = 0;

            if (n >= s->N) { /* the gap */
                if (memcmp(&C[at], &p->C[at], sizeof *C) != 0)
                    fail_msg("%s: [%zu,%zu] is outside of C and was written", level, m, n);
                continue;
            }
            for (size_t k = 0; k < s->K; k++) {
                const double a = p->A[s->transpose_a ? k * s->lda + m : m * s->lda + k];
                const double b = p->B[s->transpose_b ? n * s->ldb + k : k * s->ldb + n];
                sum += a * b;
                size += fabs(a * b);
            }
            const double before = s->beta == 0 ? 0 : s->beta * (double)p->C[at];
            const double expected = s->alpha * sum + before;
            /* f32 sums of up to 2000 terms in one chain: each is off by 6e-8 of what it adds to,
             * which grows like the root of the number of terms. */
            const double allowed = 2e-6 * (fabs((double)s->alpha) * size + fabs(before)) + 1e-30;
            if (!(fabs((double)C[at] - expected) <= allowed))
                fail_msg("%s: %zu x %zu x %zu, transposed %d %d, [%zu,%zu] is %g, not %g", level,
                         s->M, s->N, s->K, s->transpose_a, s->transpose_b, m, n, (double)C[at],
                         expected);
        }
    }
}

/* Sizes around tiles of 4 and 8 rows, panels of 24 and 48, items of 48, blocks of 512, stretches of
 * 1024 and 1536; from 512 rows on B is copied. */
static const struct matmul shapes[] = {
    {.M = 1, .N = 1, .K = 1, .alpha = 1},
    {.M = 3, .N = 5, .K = 7, .alpha = 1, .beta = 1},
    {.M = 8, .N = 48, .K = 16, .alpha = -2, .beta = 0.5f},
    {.M = 49, .N = 16, .K = 513, .alpha = 1},
    {.M = 16, .N = 96, .K = 1025, .alpha = 0.5f, .beta = 1},
    {.M = 97, .N = 71, .K = 33, .alpha = 1, .beta = 1},
    {.M = 515, .N = 64, .K = 40, .alpha = 1},
    {.M = 5, .N = 1601, .K = 20, .alpha = 1, .beta = 1},
    {.M = 9, .N = 40, .K = 0, .alpha = 1, .beta = 1},
    {.M = 9, .N = 40, .K = 0, .alpha = 1},
};

static void products_are_right_at_every_edge_on_every_level(void **state)
{
    (void)state;
    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        struct backend *be = open_level(levels[l], 2);

        for (size_t i = 0; be && i < COUNT_OF(shapes) * 4; i++) {
            struct matmul s = shapes[i / 4];
            s.transpose_a = i & 1;
            s.transpose_b = i & 2;
            struct product p = product_make(s);
            float *C = product_run(be, &p);

            check_product(levels[l], &p, C);
            free(C);
            product_free(&p);
        }
        backend_close(be);
    }
}

static void with_avx_an_element_does_not_depend_on_its_neighbours_or_threads(void **state)
{
    (void)state;
    static const struct {
        size_t row, rows, column, columns;
    } parts[] = {{0, 1, 0, 1}, {131, 9, 17, 3}, {600, 35, 100, 71}, {3, 600, 1, 16}};

    for (size_t l = 1; l < COUNT_OF(levels); l++) {
        struct backend *be = open_level(levels[l], 1), *two = open_level(levels[l], 2);

        for (int bits = 0; be && bits < 4; bits++) {
            struct product p = product_make((struct matmul){.M = 635,
                                                            .N = 171,
                                                            .K = 1100,
                                                            .alpha = 0.7f,
                                                            .beta = 1,
                                                            .transpose_a = bits & 1,
                                                            .transpose_b = bits & 2});
            float *whole = product_run(be, &p), *shared = product_run(two, &p);

            assert_memory_equal(whole, shared, p.s.M * p.s.ldc * sizeof *whole);
            for (size_t i = 0; i < COUNT_OF(parts); i++) {
                const size_t row = parts[i].row, column = parts[i].column;
                struct product part = p;
                part.s.M = parts[i].rows;
                part.s.N = parts[i].columns;
                part.A += p.s.transpose_a ? row : row * p.s.lda;
                part.B += p.s.transpose_b ? column * p.s.ldb : column;
                part.C += row * p.s.ldc + column;
                float *C = malloc(part.s.M * p.s.ldc * sizeof *C);
                assert_non_null(C);
                for (size_t m = 0; m < part.s.M; m++)
                    memcpy(&C[m * p.s.ldc], &part.C[m * p.s.ldc], part.s.N * sizeof *C);
                backend_matmul(two, C, part.A, part.B, &part.s);
                for (size_t m = 0; m < part.s.M; m++)
                    assert_memory_equal(&C[m * p.s.ldc], &whole[(row + m) * p.s.ldc + column],
                                        part.s.N * sizeof *C);
                free(C);
            }
            free(shared);
            free(whole);
            product_free(&p);
        }
        backend_close(two);
        backend_close(be);
    }
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

#define ROWS 600 /* three tiles */
#define VOCAB 333
#define WIDTH 20
#define TARGETS 700

struct entropy {
    float loss[TARGETS], hit[TARGETS], dx[ROWS * WIDTH], dtable[VOCAB * WIDTH];
};

static struct entropy *entropy_run(struct backend *be)
{
    float *x = random_floats((size_t)ROWS * WIDTH, 4);
    float *table = random_floats((size_t)VOCAB * WIDTH, 5);
    float weight[TARGETS];
    int32_t row[TARGETS];
    uint32_t label[TARGETS];
    struct entropy *e = calloc(1, sizeof *e);

    assert_non_null(e);
    for (size_t w = 0; w < WIDTH;
         w++) /* the largest logit twice, in two chunks: the first counts */
        table[300 * WIDTH + w] = table[7 * WIDTH + w];
    for (size_t m = 0; m < TARGETS; m++) {
        row[m] = (int32_t)(m < 100 ? 5 : m - 100); /* the first has a hundred and six */
        row[m] = m < 106 ? 5 : row[m];
        label[m] = m % 3 == 0 ? 7 : m % 3 == 1 ? 300 : (uint32_t)(m % VOCAB);
        weight[m] = m % 5 == 0 ? 0.0f : 0.1f * (float)(m % 7);
    }
    for (size_t n = 100; n < 200; n++)
        memcpy(&x[n * WIDTH], &table[7 * WIDTH], WIDTH * sizeof *x); /* hits of 7, not of 300 */
    backend_cross_entropy(be, e->loss, e->hit, e->dx, e->dtable, x, table, row, label, weight, 0.3f,
                          TARGETS, ROWS, VOCAB, WIDTH);
    assert_int_equal(backend_sync(be), BACKEND_OK);
    free(table);
    free(x);
    return e;
}

static void cross_entropy_over_several_tiles_is_that_of_ref_on_every_level(void **state)
{
    (void)state;
    struct backend *ref = backend_for_test(BACKEND_REF);
    struct entropy *expected = entropy_run(ref);

    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        struct backend *be = open_level(levels[l], 2);
        if (!be)
            continue;
        struct entropy *e = entropy_run(be);
        assert_memory_equal(e->hit, expected->hit, sizeof e->hit);
        assert_true(normalised_squared_error(e->loss, expected->loss, TARGETS, 0.1) < CLOSE);
        assert_true(normalised_squared_error(e->dx, expected->dx, (size_t)ROWS * WIDTH, 1e-3) <
                    CLOSE);
        assert_true(normalised_squared_error(e->dtable, expected->dtable, (size_t)VOCAB * WIDTH,
                                             1e-3) < CLOSE);
        free(e);
        backend_close(be);
    }
    free(expected);
    backend_close(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_at_every_edge_on_every_level),
        cmocka_unit_test(with_avx_an_element_does_not_depend_on_its_neighbours_or_threads),
        cmocka_unit_test(cross_entropy_over_several_tiles_is_that_of_ref_on_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

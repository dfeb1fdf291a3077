/*
 * blas: sgemm of OpenBLAS, row-major.
 *
 *   C = alpha op(A) op(B) + beta C
 *
 * Shapes    op(A) [M,K], op(B) [K,N], C [M,N]; ld* are strides of rows in elements.
 * Writes    C; beta 0 sets it without reading it. K 0 scales by beta.
 * Numerics  f32, sums in the order of the library's kernel; checked to 1e-5 of sum |a b| at start.
 * Source    BLAS level 3.
 */
#include "kernels/cpu/blas.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void blas_gemm(float *C, const float *A, const float *B, const struct matmul *s)
{
    if (s->M == 0 || s->N == 0)
        return;
    assert(s->M <= INT_MAX && s->N <= INT_MAX && s->K <= INT_MAX);
    assert(s->lda <= INT_MAX && s->ldb <= INT_MAX && s->ldc <= INT_MAX);
    /* With K 0 a row of A or B may have no length; the library still wants strides of 1. */
    size_t lda = s->lda ? s->lda : 1, ldb = s->ldb ? s->ldb : 1;
    cblas_sgemm(CblasRowMajor, s->transpose_a ? CblasTrans : CblasNoTrans,
                s->transpose_b ? CblasTrans : CblasNoTrans, (blasint)s->M, (blasint)s->N,
                (blasint)s->K, s->alpha, A, (blasint)lda, B, (blasint)ldb, s->beta, C,
                (blasint)s->ldc);
}

void blas_use_one_thread(void)
{
    openblas_set_num_threads(1);
}

size_t blas_callers_max(void)
{
    static const char key[] = "MAX_THREADS=";
    const char *config = openblas_get_config();
    const char *value = config ? strstr(config, key) : NULL;
    unsigned long limit = value ? strtoul(value + strlen(key), NULL, 10) : 0;

    /* A build without threads of its own has buffers for about 50 callers and does not say so. */
    return limit >= 1 ? (size_t)limit : 32;
}

size_t blas_share_callers(size_t thread_count, size_t core_count, size_t callers_max)
{
    if (core_count > callers_max)
        thread_count = thread_count * callers_max / core_count;
    if (thread_count < 1)
        return 1;
    return thread_count < callers_max ? thread_count : callers_max;
}

void blas_describe(char *ret_text, size_t size)
{
    const char *config = openblas_get_config(); /* "OpenBLAS 0.3.21 NO_LAPACKE ..." */
    size_t name = strcspn(config, " ");
    size_t length = name + (config[name] ? 1 + strcspn(config + name + 1, " ") : 0);

    (void)snprintf(ret_text, size, "%.*s (%s)", (int)length, config, /* cut is fine */
                   openblas_get_corename());
}

/* ---- the check ------------------------------------------------------------------------------- */

#define CHECK_MAX 160
#define CHECK_GAP 3 /* elements between rows that belong to no matrix */
#define CHECK_TOLERANCE 1e-5

struct check_arrays {
    float A[CHECK_MAX * (CHECK_MAX + CHECK_GAP)], B[CHECK_MAX * (CHECK_MAX + CHECK_GAP)];
    float before[CHECK_MAX * (CHECK_MAX + CHECK_GAP)], C[CHECK_MAX * (CHECK_MAX + CHECK_GAP)];
};

/* Small whole numbers and halves would hide lost bits: values from a generator, in [-1, 1). */
static void fill(float *values, size_t count, uint32_t seed)
{
    uint32_t state = seed;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

static bool same_or_both_nan(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* One element of C against the product in plain loops. */
static bool element_is_right(const struct check_arrays *x, const struct matmul *s, size_t i,
                             size_t j)
{
    const double got = x->C[i * s->ldc + j];
    const double before = s->beta != 0 ? x->before[i * s->ldc + j] : 0; /* not read at 0 */
    double sum = 0, size = 0;

    for (size_t k = 0; k < s->K; k++) {
        double a = x->A[s->transpose_a ? k * s->lda + i : i * s->lda + k];
        double b = x->B[s->transpose_b ? j * s->ldb + k : k * s->ldb + j];

        sum += a * b;
        size += fabs(a * b);
    }
    return fabs(got - (s->alpha * sum + s->beta * before)) <=
           CHECK_TOLERANCE * (fabs(s->alpha) * size + fabs(s->beta * before));
}

/* Every element, and the gap behind each row, which must be as before. */
static bool compare(const struct check_arrays *x, const struct matmul *s, size_t *ret_row,
                    size_t *ret_col)
{
    for (size_t i = 0; i < s->M; i++) {
        for (size_t j = 0; j < s->ldc; j++) {
            *ret_row = i;
            *ret_col = j;
            if (j < s->N ? !element_is_right(x, s, i, j)
                         : !same_or_both_nan(x->C[i * s->ldc + j], x->before[i * s->ldc + j]))
                return false;
        }
    }
    return true;
}

static bool check_one(blas_gemm_fn *gemm, struct check_arrays *x, const struct matmul *s,
                      char *ret_reason, size_t reason_size)
{
    size_t count = s->M * s->ldc, row = 0, col = 0;

    fill(x->A, (s->transpose_a ? s->K : s->M) * s->lda, 1);
    fill(x->B, (s->transpose_b ? s->N : s->K) * s->ldb, 2);
    fill(x->before, count, 3);
    for (size_t i = 0; s->beta == 0 && i < count; i++)
        x->before[i] = NAN; /* what is not read cannot spread */
    memcpy(x->C, x->before, count * sizeof(float));
    gemm(x->C, x->A, x->B, s);
    if (compare(x, s, &row, &col))
        return true;
    (void)snprintf(
        ret_reason, reason_size,
        "sgemm gives a wrong product: M=%zu N=%zu K=%zu, A%s [ld %zu], B%s [ld %zu], ld of C "
        "%zu, alpha %g, beta %g: element [%zu,%zu] is %g",
        s->M, s->N, s->K, s->transpose_a ? " transposed" : "", s->lda,
        s->transpose_b ? " transposed" : "", s->ldb, s->ldc, (double)s->alpha, (double)s->beta, row,
        col, (double)x->C[row * s->ldc + col]);
    return false;
}

bool blas_check(blas_gemm_fn *gemm, char *ret_reason, size_t reason_size)
{
    static const struct {
        size_t M, N, K;
        float alpha, beta;
    } cases[] = {
        {1, 1, 1, 1, 0},         {3, 5, 7, 1, 0},    {17, 33, 9, 1, 1},      {1, 67, 31, 1, 0},
        {67, 1, 31, 1, 0},       {64, 64, 64, 1, 0}, {65, 63, 129, 0.5f, 1}, {97, 131, 151, 1, 0},
        {151, 24, 160, -2, .5f}, {13, 11, 0, 1, 0},  {13, 11, 0, 1, 1},      {16, 48, 32, 1, 1},
    };
    struct check_arrays *x = malloc(sizeof *x);
    bool ok = x != NULL;

    if (!x)
        (void)snprintf(ret_reason, reason_size, "no memory for the check of the matrix product");
    for (size_t i = 0; ok && i < sizeof cases / sizeof cases[0]; i++) {
        for (int bits = 0; ok && bits < 8; bits++) {
            size_t gap = bits & 4 ? CHECK_GAP : 0;
            struct matmul s = {.M = cases[i].M, .N = cases[i].N, .K = cases[i].K};
            s.transpose_a = bits & 1;
            s.transpose_b = bits & 2;
            s.lda = (s.transpose_a ? s.M : s.K) + gap;
            s.ldb = (s.transpose_b ? s.K : s.N) + gap;
            s.ldc = s.N + gap;
            s.alpha = cases[i].alpha;
            s.beta = cases[i].beta;
            ok = check_one(gemm, x, &s, ret_reason, reason_size);
        }
    }
    free(x);
    return ok;
}

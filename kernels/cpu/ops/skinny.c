/*
 * skinny: see skinny.h.
 *
 * Forward walks the rows of B, 24 floats that stay in registers as three vectors of 8, and adds each
 * times one value of every token. Backward has B transposed in panels [K / PANEL, 24, PANEL]: a
 * panel's columns of the result are 24 terms each.
 *
 * Numerics  f32; forward sums CHUNK terms at a time, so that the error grows as for short rows.
 */
#include "kernels/cpu/ops/skinny.h"

#include "kernels/cpu/cpu.h"

#define CHUNK 256
#if defined(__AVX__)
#define PIECE 8 /* floats of a row of B in one register */
#else
#define PIECE 4
#endif
#define LINE 16 /* floats of a line of the cache */
#define PIECES (SKINNY_COLUMNS / PIECE)

typedef float piece __attribute__((vector_size(PIECE * sizeof(float))));
typedef float piece_anywhere
    __attribute__((vector_size(PIECE * sizeof(float)), aligned(sizeof(float)), may_alias));

static const float *row_of(const float *A, size_t stride, size_t row, size_t count)
{
    return &A[(row < count ? row : count - 1) * stride];
}

/* C (+)= A B over k in [begin, end). Rows past `count` repeat the last one and are not stored. */
static void forward_chunk(float *C, const float *A, size_t stride, const float *B, size_t count,
                          size_t begin, size_t end)
{
    const float *a[SKINNY_ROWS];
    piece sum[SKINNY_ROWS][PIECES];

#pragma GCC unroll 8
    for (size_t t = 0; t < SKINNY_ROWS; t++) {
        a[t] = row_of(A, stride, t, count);
#pragma GCC unroll 6
        for (size_t c = 0; c < PIECES; c++)
            sum[t][c] = (piece){0};
    }
    for (size_t k = begin; k < end; k++) {
        piece b[PIECES];
#pragma GCC unroll 6
        for (size_t c = 0; c < PIECES; c++)
            b[c] = *(const piece_anywhere *)(const void *)&B[k * SKINNY_COLUMNS + c * PIECE];
#pragma GCC unroll 8
        for (size_t t = 0; t < SKINNY_ROWS; t++)
#pragma GCC unroll 6
            for (size_t c = 0; c < PIECES; c++)
                sum[t][c] += a[t][k] * b[c];
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < SKINNY_ROWS; t++) {
        if (t >= count)
            break;
#pragma GCC unroll 6
        for (size_t c = 0; c < PIECES; c++) {
            piece_anywhere *target = (void *)&C[t * SKINNY_COLUMNS + c * PIECE];
            if (begin)
                sum[t][c] += *target;
            *target = sum[t][c];
        }
    }
}

void skinny_forward(float *C, const float *A, size_t stride, const float *B, size_t count, size_t K,
                    size_t M)
{
    if (M != SKINNY_COLUMNS) {
        const struct matmul product = {
            .M = count, .N = M, .K = K, .lda = stride, .ldb = M, .ldc = M, .alpha = 1};
        cpu_product(C, A, B, &product);
        return;
    }
    for (size_t k = 0; k < K; k += CHUNK)
        forward_chunk(C, A, stride, B, count, k, K - k < CHUNK ? K : k + CHUNK);
}

/* ---- with the transpose ---------------------------------------------------------------------- */

size_t skinny_panel_count(size_t K, size_t M)
{
    return M == SKINNY_COLUMNS ? (K + SKINNY_PANEL - 1) / SKINNY_PANEL : 0;
}

size_t skinny_packed_count(size_t K, size_t M)
{
    return skinny_panel_count(K, M) * SKINNY_PANEL * M;
}

void skinny_pack(float *packed, const float *B, size_t K, size_t M, size_t begin, size_t end)
{
    for (size_t p = begin; p < end; p++) {
        float *panel = &packed[p * SKINNY_PANEL * M];
        const size_t first = p * SKINNY_PANEL;
        for (size_t m = 0; m < M; m++)
            for (size_t k = 0; k < SKINNY_PANEL; k++)
                panel[m * SKINNY_PANEL + k] = first + k < K ? B[(first + k) * M + m] : 0.0f;
    }
}

/* `ahead` are rows of K values, `left` of them from here on. */
static void backward_panel(float *C, const float *A, const float *panel, size_t count,
                           size_t stride, const float *ahead, size_t K, size_t left)
{
    const float *a[SKINNY_ROWS];
    wide sum[SKINNY_ROWS][2];

#pragma GCC unroll 8
    for (size_t t = 0; t < SKINNY_ROWS; t++) {
        a[t] = row_of(A, SKINNY_COLUMNS, t, count);
        const float *line = row_of(ahead, K, t, count);
        for (size_t k = 0; k < SKINNY_PANEL && k < left; k += LINE)
            __builtin_prefetch(&line[k], 1, 2);
        sum[t][0] = sum[t][1] = (wide){0};
    }
    for (size_t m = 0; m < SKINNY_COLUMNS; m++) {
        const wide b0 = wide_load(&panel[m * SKINNY_PANEL]);
        const wide b1 = wide_load(&panel[m * SKINNY_PANEL + WIDE]);
#pragma GCC unroll 8
        for (size_t t = 0; t < SKINNY_ROWS; t++) {
            sum[t][0] += a[t][m] * b0;
            sum[t][1] += a[t][m] * b1;
        }
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < SKINNY_ROWS; t++) {
        if (t >= count)
            break;
        wide_store(&C[t * stride], sum[t][0]);
        wide_store(&C[t * stride + WIDE], sum[t][1]);
    }
}

void skinny_backward(float *C, const float *A, const float *packed, const float *B, size_t count,
                     size_t K, size_t M, const float *ahead)
{
    const size_t stride = skinny_stride(K), panels = skinny_panel_count(K, M);

    if (M != SKINNY_COLUMNS) {
        const struct matmul product = {.M = count,
                                       .N = K,
                                       .K = M,
                                       .transpose_b = true,
                                       .lda = M,
                                       .ldb = M,
                                       .ldc = stride,
                                       .alpha = 1};
        cpu_product(C, A, B, &product);
        return;
    }
    for (size_t p = 0; p < panels; p++)
        backward_panel(&C[p * SKINNY_PANEL], A, &packed[p * SKINNY_PANEL * M], count, stride,
                       &ahead[p * SKINNY_PANEL], K, K - p * SKINNY_PANEL);
}

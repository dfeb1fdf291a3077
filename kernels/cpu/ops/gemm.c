/*
 * gemm: the matrix product, see kernels/ref/matmul.c.
 *
 * Without AVX: the larger side of C is cut into one share a thread, in steps that fill a kernel's
 * registers; each share is one call of the library. With AVX:
 *
 * C is made in tiles of ROWS rows and a panel of PANEL columns whose sums stay in registers for up
 * to K_BLOCK steps: a step multiplies a vector or three of a row of B by ROWS values of A. B is
 * copied first into panels [K][PANEL], zero-padded; for few rows of C it is read where it lies if
 * its rows are whole vectors. A is read where it lies when it is not transposed.
 *
 * Work is dealt in items of ITEM_ROWS rows (and, when there are few of them, some panels), so that
 * no thread waits for another for long. Large K goes in stretches between which all threads meet:
 * they read the same stretch of B while it is in the cache.
 *
 * Numerics  f32; K_BLOCK steps ascending in one sum a column (fused), blocks added to C in order.
 *           Tiles at an edge are made as whole ones in a copy, so that their bits are no others.
 */
#include "kernels/cpu/ops/gemm.h"

#include "kernels/cpu/blas.h"
#include "kernels/cpu/ops/wide.h"

#include <assert.h>

#if !defined(__AVX__)

#define STEP 16               /* rows or columns of C a share is a multiple of */
#define WORTH_A_THREAD 262144 /* multiplications a share holds at least */

struct product {
    float *C;
    const float *A, *B;
    const struct matmul *shape;
    bool cut_rows;
};

static void product_share(void *context, size_t begin, size_t end, size_t part)
{
    const struct product *p = context;
    struct matmul s = *p->shape;
    size_t side = p->cut_rows ? s.M : s.N, first = begin * STEP;
    size_t past = end * STEP < side ? end * STEP : side;
    const float *A = p->A, *B = p->B;
    float *C = p->C;

    (void)part;
    if (p->cut_rows) {
        A += s.transpose_a ? first : first * s.lda;
        C += first * s.ldc;
        s.M = past - first;
    } else {
        B += s.transpose_b ? first * s.ldb : first;
        C += first;
        s.N = past - first;
    }
    blas_gemm(C, A, B, &s);
}

size_t gemm_space(const struct matmul *shape)
{
    (void)shape;
    return 0;
}

void gemm_run(struct cpu *cpu, float *C, const float *A, const float *B, const struct matmul *shape,
              float *space)
{
    struct product p = {C, A, B, shape, .cut_rows = shape->M >= shape->N};
    size_t side = p.cut_rows ? shape->M : shape->N, other = p.cut_rows ? shape->N : shape->M;
    size_t grain = WORTH_A_THREAD / (other * shape->K * STEP + 1) + 1;

    (void)space;
    team_run(cpu->team, (side + STEP - 1) / STEP, grain, product_share, &p);
}

#else

#if defined(__AVX512F__)
#define ROWS 8
#define VECTORS 3 /* 24 sums, 3 of B in 32 registers */
#else
#define ROWS 4
#define VECTORS 3 /* 12 sums, 3 of B and 1 of A in 16 registers */
#endif
#define PANEL (VECTORS * WIDE)
#define K_BLOCK 512
#define K_STRETCH 1024
#define N_STRETCH 1536
#define ITEM_ROWS 48 /* a multiple of ROWS */
#define ITEMS_MIN 8
#define WORTH_A_COPY 512 /* rows of C */

static_assert(N_STRETCH % PANEL == 0 && ITEM_ROWS % ROWS == 0, "whole panels, whole tiles");

struct gemm {
    float *C;
    const float *A, *B;
    float *packed; /* panels of B, or NULL: B is read where it lies */
    struct matmul s;
    size_t item_panels, row_items; /* panels of an item; items down the rows */
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Long rows lie far apart: a copy pays once enough rows of C are made with it. */
static bool reads_in_place(const struct matmul *s)
{
    return !s->transpose_b && s->N % WIDE == 0 && s->M < WORTH_A_COPY;
}

size_t gemm_space(const struct matmul *s)
{
    size_t panels = (smaller(s->N, N_STRETCH) + PANEL - 1) / PANEL;
    return reads_in_place(s) ? 0 : smaller(s->K, K_STRETCH) * panels * PANEL;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* to [K][width], of which `used` columns come from rows of `from`, the rest is 0. */
static void pack_transposed(float *to, const float *from, size_t stride, size_t K, size_t used,
                            size_t width)
{
    size_t n = 0;

    for (; n + 4 <= used; n += 4) {
        size_t k = 0;
        for (; k + 4 <= K; k += 4)
            wide_transpose_quad(&to[k * width + n], width, &from[n * stride + k], stride);
        for (; k < K; k++)
            for (size_t i = 0; i < 4; i++)
                to[k * width + n + i] = from[(n + i) * stride + k];
    }
    for (; n < width; n++)
        for (size_t k = 0; k < K; k++)
            to[k * width + n] = n < used ? from[n * stride + k] : 0.0f;
}

/* The same from columns of `from`: `width` is a constant where this is called. */
static inline __attribute__((always_inline)) void
pack_rows(float *to, const float *from, size_t stride, size_t K, size_t used, size_t width)
{
    for (size_t k = 0; used == width && k < K; k++)
        memcpy(&to[k * width], &from[k * stride], width * sizeof *to);
    for (size_t k = 0; used < width && k < K; k++)
        for (size_t n = 0; n < width; n++)
            to[k * width + n] = n < used ? from[k * stride + n] : 0.0f;
}

static void pack_panels(void *context, size_t begin, size_t end, size_t part)
{
    const struct gemm *g = context;
    const struct matmul *s = &g->s;

    (void)part;
    for (size_t p = begin; p < end; p++) {
        const size_t n = p * PANEL, used = smaller(s->N - n, PANEL);
        float *to = &g->packed[p * PANEL * s->K];
        if (s->transpose_b)
            pack_transposed(to, &g->B[n * s->ldb], s->ldb, s->K, used, PANEL);
        else
            pack_rows(to, &g->B[n], s->ldb, s->K, used, PANEL);
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

struct tile {
    float *c;
    const float *a, *b;
    size_t a_row, a_k, b_row, c_row; /* steps in floats */
    size_t K;
    float alpha, beta;
};

static inline __attribute__((always_inline)) void tile_vectors(const struct tile *t, size_t vectors,
                                                               size_t a_row, size_t a_k)
{
    const float *a = t->a, *b = t->b;
    const size_t K = t->K, b_row = t->b_row;
    wide sum[ROWS][VECTORS];

#pragma GCC unroll 8
    for (size_t m = 0; m < ROWS; m++)
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++)
            sum[m][n] = (wide){0};
#pragma GCC unroll 4
    for (size_t k = 0; k < K; k++, a += a_k, b += b_row) {
        wide row[VECTORS];
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++)
            row[n] = wide_load(&b[n * WIDE]);
#pragma GCC unroll 8
        for (size_t m = 0; m < ROWS; m++)
#pragma GCC unroll 3
            for (size_t n = 0; n < vectors; n++)
                sum[m][n] += a[m * a_row] * row[n];
    }
#pragma GCC unroll 8
    for (size_t m = 0; m < ROWS; m++)
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++) {
            float *c = &t->c[m * t->c_row + n * WIDE];
            wide value = t->alpha * sum[m][n];
            if (t->beta != 0)
                value += t->beta * wide_load(c);
            wide_store(c, value);
        }
}

static void tile_whole(const struct tile *t, size_t vectors)
{
    const bool packed = t->a_row == 1;

    if (vectors == 1)
        packed ? tile_vectors(t, 1, 1, ROWS) : tile_vectors(t, 1, t->a_row, 1);
    else if (vectors == 2)
        packed ? tile_vectors(t, 2, 1, ROWS) : tile_vectors(t, 2, t->a_row, 1);
    else
        packed ? tile_vectors(t, VECTORS, 1, ROWS) : tile_vectors(t, VECTORS, t->a_row, 1);
}

/* A tile of which `rows` and `columns` are C's. */
static void tile_make(struct tile *t, size_t rows, size_t columns)
{
    const size_t vectors = (columns + WIDE - 1) / WIDE;
    float copy[ROWS][PANEL] = {{0}}, *c = t->c;
    const size_t c_row = t->c_row;

    if (rows == ROWS && columns == vectors * WIDE) {
        tile_whole(t, vectors);
        return;
    }
    for (size_t m = 0; m < rows && t->beta != 0; m++)
        memcpy(copy[m], &c[m * c_row], columns * sizeof *c);
    t->c = copy[0];
    t->c_row = PANEL;
    tile_whole(t, vectors);
    for (size_t m = 0; m < rows; m++)
        memcpy(&c[m * c_row], copy[m], columns * sizeof *c);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The rows of op(A) from m, steps [k, k + K), as tiles [K][ROWS]. */
static void pack_item(float *to, const struct gemm *g, size_t m, size_t rows, size_t k, size_t K)
{
    const struct matmul *s = &g->s;
    const size_t whole = s->transpose_a ? rows / ROWS * ROWS : 0;
    const float *from = g->A + (s->transpose_a ? k * s->lda + m : m * s->lda + k);

    for (size_t step = 0; step < K; step++)
        for (size_t i = 0; i < whole; i += ROWS)
            memcpy(&to[i * K + step * ROWS], &from[step * s->lda + i], ROWS * sizeof *to);
    for (size_t i = whole; i < rows; i += ROWS) {
        const size_t used = smaller(rows - i, ROWS);
        if (s->transpose_a)
            pack_rows(&to[i * K], &from[i], s->lda, K, used, ROWS);
        else
            pack_transposed(&to[i * K], &from[i * s->lda], s->lda, K, used, ROWS);
    }
}

static void item_block(const struct gemm *g, const float *tiles, size_t m, size_t rows, size_t k,
                       size_t K, size_t n, size_t columns)
{
    const struct matmul *s = &g->s;

    for (size_t i = 0; i < rows; i += ROWS) {
        struct tile t = {.c = &g->C[(m + i) * s->ldc + n], .c_row = s->ldc, .K = K};
        t.a = tiles ? &tiles[i * K] : &g->A[(m + i) * s->lda + k];
        t.a_row = tiles ? 1 : s->lda;
        t.b = g->packed ? &g->packed[n * s->K + k * PANEL] : &g->B[k * s->ldb + n];
        t.b_row = g->packed ? PANEL : s->ldb;
        t.alpha = s->alpha;
        t.beta = k == 0 ? s->beta : 1.0f;
        tile_make(&t, smaller(rows - i, ROWS), columns);
    }
}

static void gemm_items(void *context, size_t begin, size_t end, size_t part)
{
    const struct gemm *g = context;
    const struct matmul *s = &g->s;
    float tiles[ITEM_ROWS * K_BLOCK];

    (void)part;
    for (size_t item = begin; item < end; item++) {
        const size_t m = item % g->row_items * ITEM_ROWS, rows = smaller(s->M - m, ITEM_ROWS);
        const size_t first = item / g->row_items * g->item_panels * PANEL;
        const size_t past = smaller(first + g->item_panels * PANEL, s->N);
        /* In place only whole tiles, whose rows are not neighbours in a column of one. */
        const bool pack = s->transpose_a || rows % ROWS != 0 || s->lda == 1;

        for (size_t k = 0; k < s->K; k += K_BLOCK) {
            const size_t K = smaller(s->K - k, K_BLOCK);
            if (pack)
                pack_item(tiles, g, m, rows, k, K);
            for (size_t n = first; n < past; n += PANEL)
                item_block(g, pack ? tiles : NULL, m, rows, k, K, n, smaller(past - n, PANEL));
        }
    }
}

/* One stretch of K and N. */
static void gemm_stretch(struct cpu *cpu, struct gemm *g)
{
    const size_t panels = (g->s.N + PANEL - 1) / PANEL;

    g->row_items = (g->s.M + ITEM_ROWS - 1) / ITEM_ROWS;
    size_t cuts = (ITEMS_MIN + g->row_items - 1) / g->row_items; /* of the columns */
    g->item_panels = (panels + cuts - 1) / cuts;
    if (g->packed)
        team_deal(cpu->team, panels, pack_panels, g);
    team_deal(cpu->team, g->row_items * ((panels + g->item_panels - 1) / g->item_panels),
              gemm_items, g);
}

static void scale_rows(float *C, const struct matmul *s)
{
    for (size_t m = 0; m < s->M; m++)
        for (size_t n = 0; n < s->N; n++)
            C[m * s->ldc + n] = s->beta == 0 ? 0 : s->beta * C[m * s->ldc + n];
}

void gemm_run(struct cpu *cpu, float *C, const float *A, const float *B, const struct matmul *shape,
              float *space)
{
    if (shape->M == 0 || shape->N == 0)
        return;
    if (shape->K == 0)
        scale_rows(C, shape);
    for (size_t n = 0; n < shape->N; n += N_STRETCH) {
        for (size_t k = 0; k < shape->K; k += K_STRETCH) {
            struct gemm g = {.C = C + n, .s = *shape};
            g.A = A + (shape->transpose_a ? k * shape->lda : k);
            g.B = B + (shape->transpose_b ? n * shape->ldb + k : k * shape->ldb + n);
            g.s.N = smaller(shape->N - n, N_STRETCH);
            g.s.K = smaller(shape->K - k, K_STRETCH);
            g.s.beta = k == 0 ? shape->beta : 1.0f;
            g.packed = reads_in_place(shape) ? NULL : space;
            gemm_stretch(cpu, &g);
        }
    }
}

#endif

/*
 * tile: small products whose operands lie in the cache, a few rows at a time.
 *
 * Purpose    TILE_ROWS rows of C = A B (+ C), the accumulators in registers, for tiles that are
 *            too small or too oddly cut for a library call and are wanted at once by what follows.
 * Ownership  Plain memory of the caller; the rows of B and C hold whole chunks of TILE_CHUNK.
 * Threads    Any.
 * Failure    None. Sums run over k ascending: the same bits wherever a row stands.
 */
#ifndef NEEDLED_TILE_H
#define NEEDLED_TILE_H

#include <stddef.h>

#define TILE_CHUNK 16 /* columns come in chunks of these; a multiple of every vector's width */

#if defined(__AVX512F__)
#define TILE_WIDTH 16
#define TILE_ROWS 8 /* rows x 3 vectors of sums and 3 of B fit the registers */
#elif defined(__AVX__)
#define TILE_WIDTH 8
#define TILE_ROWS 4
#else
#define TILE_WIDTH 4
#define TILE_ROWS 4
#endif

typedef float tile_vector __attribute__((vector_size(TILE_WIDTH * sizeof(float))));

/* A vector at any address of floats. */
typedef float tile_memory
    __attribute__((vector_size(TILE_WIDTH * sizeof(float)), aligned(sizeof(float)), may_alias));

/* C = keep C + A B. A [TILE_ROWS,K] has any steps between rows and along k. */
struct tile_product {
    const float *a, *b;
    size_t a_row, a_k, b_row, c_row; /* steps in floats */
    size_t K;
    const float *keep; /* a factor for each row of C; NULL: C is set, not read */
};

static inline __attribute__((always_inline)) void
tile_columns(float *c, const struct tile_product *p, size_t column, size_t vectors)
{
    tile_vector sum[TILE_ROWS][3];
    const float *b = p->b + column, *a = p->a;

    c += column;
#pragma GCC unroll 8
    for (size_t m = 0; m < TILE_ROWS; m++)
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++)
            if (p->keep)
                sum[m][n] = *(tile_memory *)&c[m * p->c_row + n * TILE_WIDTH] * p->keep[m];
            else
                sum[m][n] = (tile_vector){0};
    for (size_t k = 0; k < p->K; k++, a += p->a_k, b += p->b_row) {
        tile_vector row[3];
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++)
            row[n] = *(const tile_memory *)&b[n * TILE_WIDTH];
#pragma GCC unroll 8
        for (size_t m = 0; m < TILE_ROWS; m++)
#pragma GCC unroll 3
            for (size_t n = 0; n < vectors; n++)
                sum[m][n] += a[m * p->a_row] * row[n];
    }
#pragma GCC unroll 8
    for (size_t m = 0; m < TILE_ROWS; m++)
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++)
            *(tile_memory *)&c[m * p->c_row + n * TILE_WIDTH] = sum[m][n];
}

/* The columns go 3 vectors at a time, the last 4 as 2 and 2. */
static inline void tile_product(float *c, const struct tile_product *p, size_t columns)
{
    size_t at = 0, left = columns / TILE_WIDTH;

    for (; left >= 3 && left != 4; left -= 3, at += (size_t)3 * TILE_WIDTH)
        tile_columns(c, p, at, 3);
    for (; left >= 2; left -= 2, at += (size_t)2 * TILE_WIDTH)
        tile_columns(c, p, at, 2);
    if (left)
        tile_columns(c, p, at, 1);
}

#endif

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
#include <stdint.h>

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
typedef uint32_t tile_bits __attribute__((vector_size(TILE_WIDTH * sizeof(float))));

/* Vectors at any address of floats. */
typedef float tile_memory
    __attribute__((vector_size(TILE_WIDTH * sizeof(float)), aligned(sizeof(float)), may_alias));

typedef uint32_t tile_bits_memory
    __attribute__((vector_size(TILE_WIDTH * sizeof(float)), aligned(sizeof(float)), may_alias));

static inline tile_vector tile_load(const float *from)
{
    return *(const tile_memory *)from;
}

static inline tile_bits tile_load_bits(const int32_t *from)
{
    return *(const tile_bits_memory *)from;
}

static inline void tile_store(float *to, tile_vector values)
{
    *(tile_memory *)to = values;
}

/* 0 where the mask is 0, whatever stood there; the value where it is -1. */
static inline tile_vector tile_masked(tile_vector values, tile_bits mask)
{
    return (tile_vector)((tile_bits)values & mask);
}

/* The larger of each; b where one is not a number. */
static inline tile_vector tile_max(tile_vector a, tile_vector b)
{
    const tile_bits larger = (tile_bits)(a > b);

    return (tile_vector)(((tile_bits)a & larger) | ((tile_bits)b & ~larger));
}

/* Lane i is lane from[i] of a and b, one behind the other. */
static inline __attribute__((always_inline)) tile_vector tile_pick(tile_vector a, tile_vector b,
                                                                   tile_bits from)
{
#if defined(__clang__) /* knows no such builtin with a vector of indices */
    tile_vector picked = a;

    for (uint32_t i = 0; i < TILE_WIDTH; i++)
        picked[i] = from[i] < TILE_WIDTH ? a[from[i]] : b[from[i] - TILE_WIDTH];
    return picked;
#else
    return __builtin_shuffle(a, b, from);
#endif
}

/* Runs of `length` lanes, those of a before those of b, each folded into its larger half. */
static inline __attribute__((always_inline)) tile_vector tile_fold_max(tile_vector a, tile_vector b,
                                                                       uint32_t length)
{
    tile_bits near = {0}, far = {0};

#pragma GCC unroll 16
    for (uint32_t i = 0; i < TILE_WIDTH; i++) {
        near[i] = i / (length / 2) * length + i % (length / 2);
        far[i] = near[i] + length / 2;
    }
    return tile_max(tile_pick(a, b, near), tile_pick(a, b, far));
}

/* Lane m of the first TILE_ROWS is the largest of row[m]. Spoils row. */
static inline __attribute__((always_inline)) tile_vector tile_tops(tile_vector row[TILE_ROWS])
{
    uint32_t length = TILE_WIDTH;

#pragma GCC unroll 4
    for (size_t rows = TILE_ROWS; rows > 1; rows /= 2, length /= 2)
#pragma GCC unroll 4
        for (size_t m = 0; m < rows / 2; m++)
            row[m] = tile_fold_max(row[2 * m], row[2 * m + 1], length);
#pragma GCC unroll 4
    for (; length > 1; length /= 2)
        row[0] = tile_fold_max(row[0], row[0], length);
    return row[0];
}

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
                sum[m][n] = tile_load(&c[m * p->c_row + n * TILE_WIDTH]) * p->keep[m];
            else
                sum[m][n] = (tile_vector){0};
    for (size_t k = 0; k < p->K; k++, a += p->a_k, b += p->b_row) {
        tile_vector row[3];
#pragma GCC unroll 3
        for (size_t n = 0; n < vectors; n++)
            row[n] = tile_load(&b[n * TILE_WIDTH]);
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
            tile_store(&c[m * p->c_row + n * TILE_WIDTH], sum[m][n]);
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

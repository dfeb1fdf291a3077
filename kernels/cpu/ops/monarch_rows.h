/*
 * monarch_rows: sixteen tokens side by side, a row of 16 floats a channel.
 *
 * Purpose    The vector type of the level, and the passes over rows that the Monarch layer is made
 *            of: turning [T,D] into rows and back, small products, sums over tokens.
 * Ownership  None; every array is the caller's. Rows are 64-byte aligned.
 * Threads    Any.
 * Failure    None.
 *
 * A product of small matrices keeps a block of results in registers: each weight is read once and
 * spread over a vector, each row read is used for several results.
 */
#ifndef NEEDLED_MONARCH_ROWS_H
#define NEEDLED_MONARCH_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROW 16 /* tokens */

#if defined(__AVX512F__)
#define VECTOR_FLOATS 16
#elif defined(__AVX__)
#define VECTOR_FLOATS 8
#else
#define VECTOR_FLOATS 4
#endif
#define ROW_VECTORS (ROW / VECTOR_FLOATS)

typedef float vector_f __attribute__((vector_size(4 * VECTOR_FLOATS), may_alias));

static inline vector_f vector_at(const float *p)
{
    return *(const vector_f *)(const void *)p;
}

static inline void vector_put(float *p, vector_f v)
{
    *(vector_f *)(void *)p = v;
}

/*
 * out(m,v) = sum_k w[k,m] in(k,v), each in and out a row. Steps are floats from one row, or weight,
 * to the next. With `place` row (m,v) goes to out + place[q], q = m place_m + v place_v, and is
 * multiplied by scale[q] unless scale is NULL. With `add` out is added to.
 */
struct monarch_product {
    float *out;
    const float *in, *w;
    size_t M, V, K;
    size_t w_k, w_m, in_k, in_v, out_m, out_v;
    const uint32_t *place;
    size_t place_m, place_v;
    const float *scale;
    bool add;
};
void monarch_rows_product(const struct monarch_product *product);

/* out[m,n] += sum over k and tokens of left(m,k) right(n,k). out_m: floats from row to row. */
struct monarch_pairs {
    float *out;
    const float *left, *right;
    size_t M, N, K;
    size_t out_m, out_n, left_m, left_k, right_n, right_k;
};
void monarch_rows_pairs(const struct monarch_pairs *pairs);

/* out[i] += sum over tokens of left(i) right(i), for `channels` rows that stand as below. */
void monarch_rows_dots(float *out, const float *left, const float *right, size_t channels,
                       size_t shift);

/* Where rows stand: `channels` of them, 1 << shift together, then one row of padding. */
static inline size_t monarch_rows_place(size_t channel, size_t shift)
{
    return (channel + (channel >> shift)) * ROW;
}

/* Rows from x [T,D], each channel times scale (NULL: 1); tokens from T and channels from D to past
 * are 0. */
struct monarch_turn {
    size_t T, D, past, shift;
    const float *scale;
};
void monarch_rows_load(float *rows, const float *x, const struct monarch_turn *turn);
/* y [T,D] = skip (NULL: 0) + scale rows; y may be skip. */
void monarch_rows_store(float *y, const float *skip, const float *rows,
                        const struct monarch_turn *turn);

#endif

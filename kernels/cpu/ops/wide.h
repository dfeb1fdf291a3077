/*
 * wide: vectors as wide as the level's registers, for loops that hold sums in registers.
 *
 * Purpose    GCC's vector type of 16, 8 or 4 floats with its loads and stores; a part of one at the
 *            end of a row; maxima; the sum and the largest of one. Where a plain loop over memory is
 *            enough, vector.h is simpler.
 * Ownership  None.
 * Threads    Any.
 * Failure    None. A NaN goes through sums; maxima pass it over.
 */
#ifndef NEEDLED_WIDE_H
#define NEEDLED_WIDE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDE 16
#elif defined(__AVX__)
#define WIDE 8
#else
#define WIDE 4
#endif

typedef float wide __attribute__((vector_size(WIDE * sizeof(float))));
typedef int32_t wide_bits __attribute__((vector_size(WIDE * sizeof(float))));
typedef float wide_anywhere
    __attribute__((vector_size(WIDE * sizeof(float)), aligned(sizeof(float)), may_alias));

/* For bodies whose sizes are constants of the caller: their loops become straight code. */
#define WIDE_INLINE static inline __attribute__((always_inline))

WIDE_INLINE wide wide_load(const float *source)
{
    return *(const wide_anywhere *)(const void *)source;
}

WIDE_INLINE void wide_store(float *target, wide value)
{
    *(wide_anywhere *)(void *)target = value;
}

/* The first `count` values, then zeroes. Straight code where count is the constant WIDE. */
WIDE_INLINE wide wide_load_some(const float *source, size_t count)
{
    wide value = {0};

    if (count == WIDE)
        return wide_load(source);
    memcpy(&value, source, count * sizeof *source);
    return value;
}

WIDE_INLINE void wide_store_some(float *target, wide value, size_t count)
{
    if (count == WIDE)
        wide_store(target, value);
    else
        memcpy(target, &value, count * sizeof *target);
}

WIDE_INLINE wide wide_all(float x)
{
    return x - (wide){0};
}

WIDE_INLINE wide wide_abs(wide v)
{
    return (wide)((wide_bits)v & INT32_MAX);
}

/* Of each pair the larger; b where either is NaN. A compiler makes two instructions of the general
 * form and many of a loop, hence the one there is for it. */
WIDE_INLINE wide wide_max(wide a, wide b)
{
#if WIDE == 16
    return (wide)_mm512_max_ps((__m512)a, (__m512)b);
#elif WIDE == 8
    return (wide)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (wide)_mm_max_ps((__m128)a, (__m128)b);
#else
    const wide_bits larger = a > b;
    return (wide)(((wide_bits)a & larger) | ((wide_bits)b & ~larger));
#endif
}

/* Of each pair the smaller; b where either is NaN. */
WIDE_INLINE wide wide_min(wide a, wide b)
{
#if WIDE == 16
    return (wide)_mm512_min_ps((__m512)a, (__m512)b);
#elif WIDE == 8
    return (wide)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (wide)_mm_min_ps((__m128)a, (__m128)b);
#else
    const wide_bits smaller = a < b;
    return (wide)(((wide_bits)a & smaller) | ((wide_bits)b & ~smaller));
#endif
}

/* Halves onto halves, in registers. */
#if WIDE == 16
#define WIDE_SWAP_8(v)                                                                             \
    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define WIDE_SWAP_4(v)                                                                             \
    __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define WIDE_SWAP_2(v)                                                                             \
    __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define WIDE_SWAP_1(v)                                                                             \
    __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#elif WIDE == 8
#define WIDE_SWAP_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define WIDE_SWAP_2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5)
#define WIDE_SWAP_1(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6)
#else
#define WIDE_SWAP_2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1)
#define WIDE_SWAP_1(v) __builtin_shufflevector(v, v, 1, 0, 3, 2)
#endif

WIDE_INLINE float wide_sum(wide v)
{
#if WIDE >= 16
    v += WIDE_SWAP_8(v);
#endif
#if WIDE >= 8
    v += WIDE_SWAP_4(v);
#endif
    v += WIDE_SWAP_2(v);
    v += WIDE_SWAP_1(v);
    return v[0];
}

WIDE_INLINE float wide_largest(wide v)
{
#if WIDE >= 16
    v = wide_max(v, WIDE_SWAP_8(v));
#endif
#if WIDE >= 8
    v = wide_max(v, WIDE_SWAP_4(v));
#endif
    v = wide_max(v, WIDE_SWAP_2(v));
    v = wide_max(v, WIDE_SWAP_1(v));
    return v[0];
}

typedef float wide_quad __attribute__((vector_size(4 * sizeof(float))));

/* to [4][step] = the transpose of four rows of four. */
static inline void wide_transpose_quad(float *to, size_t step, const float *from, size_t stride)
{
    wide_quad row[4];

    for (size_t i = 0; i < 4; i++)
        memcpy(&row[i], &from[i * stride], sizeof row[i]);
    const wide_quad low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const wide_quad low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const wide_quad high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const wide_quad high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const wide_quad column[4] = {
        __builtin_shufflevector(low01, low23, 0, 1, 4, 5),
        __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
        __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
        __builtin_shufflevector(high01, high23, 2, 3, 6, 7),
    };
    for (size_t i = 0; i < 4; i++)
        memcpy(&to[i * step], &column[i], sizeof column[i]);
}

#endif

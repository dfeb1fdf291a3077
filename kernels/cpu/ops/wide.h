/*
 * wide: vectors as wide as the level's registers, for loops that hold sums in registers.
 *
 * Purpose    GCC's vector type of 16, 8 or 4 floats with its loads and stores; a part of one at the
 *            end of a row. Where a plain loop over memory is enough, vector.h is simpler.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_WIDE_H
#define NEEDLED_WIDE_H

#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
#define WIDE 16
#elif defined(__AVX__)
#define WIDE 8
#else
#define WIDE 4
#endif

typedef float wide __attribute__((vector_size(WIDE * sizeof(float))));
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

WIDE_INLINE float wide_sum(wide value)
{
    float lane[WIDE];

    wide_store(lane, value);
    for (size_t half = WIDE / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

#endif

/*
 * vector: row loops that a compiler turns into SIMD without being allowed to reorder sums.
 *
 * Purpose    Sums run in several vectors of partial sums, so that an addition need not wait for the
 *            one before, folded in a fixed order. exp and log are short polynomials without calls or
 *            branches.
 * Ownership  None.
 * Threads    Any.
 * Failure    None. NaN goes through: exp, log and sums of NaN are NaN.
 */
#ifndef NEEDLED_VECTOR_H
#define NEEDLED_VECTOR_H

#include "kernels/cpu/ops/wide.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 16 /* rows or tokens that ops put side by side, whatever the width */
#define VECTOR_SUMS 4
#define VECTOR_STRIDE ((size_t)VECTOR_SUMS * WIDE)

static_assert(LANES == 16, "vector_fold halves 16 lanes");

static inline float vector_fold(float *lane)
{
    for (size_t k = 0; k < 8; k++)
        lane[k] += lane[k + 8];
    for (size_t k = 0; k < 4; k++)
        lane[k] += lane[k + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static inline float vector_dot(const float *a, const float *b, size_t count)
{
    wide sum[VECTOR_SUMS] = {{0}};
    size_t i = 0;

    for (; i + VECTOR_STRIDE <= count; i += VECTOR_STRIDE)
#pragma GCC unroll 4
        for (size_t k = 0; k < VECTOR_SUMS; k++)
            sum[k] += wide_load(&a[i + k * WIDE]) * wide_load(&b[i + k * WIDE]);
    for (; i + WIDE <= count; i += WIDE)
        sum[0] += wide_load(&a[i]) * wide_load(&b[i]);

    float total = wide_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < count; i++)
        total += a[i] * b[i];
    return total;
}

static inline float vector_sum(const float *a, size_t count)
{
    wide sum[VECTOR_SUMS] = {{0}};
    size_t i = 0;

    for (; i + VECTOR_STRIDE <= count; i += VECTOR_STRIDE)
#pragma GCC unroll 4
        for (size_t k = 0; k < VECTOR_SUMS; k++)
            sum[k] += wide_load(&a[i + k * WIDE]);
    for (; i + WIDE <= count; i += WIDE)
        sum[0] += wide_load(&a[i]);

    float total = wide_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < count; i++)
        total += a[i];
    return total;
}

/* At least 0. */
static inline float vector_max_abs(const float *a, size_t count)
{
    wide most[VECTOR_SUMS] = {{0}};
    size_t i = 0;

    for (; i + VECTOR_STRIDE <= count; i += VECTOR_STRIDE)
#pragma GCC unroll 4
        for (size_t k = 0; k < VECTOR_SUMS; k++)
            most[k] = wide_max(wide_abs(wide_load(&a[i + k * WIDE])), most[k]);
    for (; i + WIDE <= count; i += WIDE)
        most[0] = wide_max(wide_abs(wide_load(&a[i])), most[0]);

    float largest = wide_largest(wide_max(wide_max(most[0], most[1]), wide_max(most[2], most[3])));
    for (; i < count; i++)
        largest = fabsf(a[i]) > largest ? fabsf(a[i]) : largest;
    return largest;
}

static inline float vector_max(const float *a, size_t count)
{
    const wide least = wide_all(-INFINITY);
    wide most[VECTOR_SUMS] = {least, least, least, least};
    size_t i = 0;

    for (; i + VECTOR_STRIDE <= count; i += VECTOR_STRIDE)
#pragma GCC unroll 4
        for (size_t k = 0; k < VECTOR_SUMS; k++)
            most[k] = wide_max(wide_load(&a[i + k * WIDE]), most[k]);
    for (; i + WIDE <= count; i += WIDE)
        most[0] = wide_max(wide_load(&a[i]), most[0]);

    float largest = wide_largest(wide_max(wide_max(most[0], most[1]), wide_max(most[2], most[3])));
    for (; i < count; i++)
        largest = a[i] > largest ? a[i] : largest;
    return largest;
}

/* y += s x */
static inline void vector_add_scaled(float *restrict y, const float *restrict x, float s,
                                     size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += s * x[i];
}

static inline void vector_scale(float *y, float s, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] *= s;
}

static inline uint32_t vector_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float vector_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp of x cut to [-87, 87]: never 0, never infinite, within 2 ulp; NaN stays NaN. Adding 1.5 * 2^23
 * rounds to a whole number and leaves it in the low bits. */
static inline float vector_exp(float x)
{
    const float shift = 12582912.0f;
    float c = x > 87.0f ? 87.0f : x;
    c = c < -87.0f ? -87.0f : c;

    float t = c * 1.44269504088896341f + shift;
    float n = t - shift;
    float f = c - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;

    float power = vector_from_bits((vector_bits(t) << 23) + 0x3f800000u);
    return p * power;
}

/* Natural logarithm of a positive normal number, within 2 ulp; NaN and infinity give NaN. */
static inline float vector_log(float x)
{
    uint32_t bits = vector_bits(x);
    uint32_t offset = bits - 0x3f3504f3u; /* so that the mantissa lies in [sqrt(1/2), sqrt(2)) */
    float e = (float)((int32_t)offset >> 23);
    float m = vector_from_bits((offset & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float z = m * m;

    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z - e * 2.12194440e-4f - 0.5f * z;
    return m + p + e * 0.693359375f + (x - x);
}

static inline float vector_sigmoid(float x)
{
    return 1.0f / (1.0f + vector_exp(-x));
}

#endif

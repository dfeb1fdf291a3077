/*
 * norm: root-mean-square norms of single rows, for the ops that have one inside.
 *
 * Purpose    r = 1 / sqrt(mean x^2 + eps), and dx from the gradient at (1 + gain) x r.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_NORM_H
#define NEEDLED_NORM_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"

/* sum a b in f64, for values whose products leave f32. */
static inline double norm_dot(const float *a, const float *b, size_t C)
{
    double lane[4] = {0};
    size_t i = 0;

    for (; i + 4 <= C; i += 4)
        for (size_t k = 0; k < 4; k++)
            lane[k] += (double)a[i + k] * (double)b[i + k];
    for (size_t k = 0; i + k < C; k++)
        lane[k] += (double)a[i + k] * (double)b[i + k];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

/* sum (1 + gain) a b */
static inline float norm_dot_gain(const float *gain, const float *a, const float *b, size_t C)
{
    wide sum[VECTOR_SUMS] = {{0}};
    size_t i = 0;

    for (; i + VECTOR_STRIDE <= C; i += VECTOR_STRIDE)
#pragma GCC unroll 4
        for (size_t k = 0; k < VECTOR_SUMS; k++) {
            const size_t at = i + k * WIDE;
            const wide product = wide_load(&a[at]) * wide_load(&b[at]);
            sum[k] += (wide_load(&gain[at]) + 1.0f) * product;
        }
    for (; i < C; i += WIDE) {
        const size_t some = C - i < WIDE ? C - i : WIDE;
        const wide product = wide_load_some(&a[i], some) * wide_load_some(&b[i], some);
        sum[0] += (wide_load_some(&gain[i], some) + 1.0f) * product;
    }
    return wide_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static inline float norm_inverse(const float *x, size_t C)
{
    const float squares = vector_dot(x, x, C);

    if (isfinite(squares))
        return 1.0f / sqrtf(squares / (float)C + (float)CPU_EPSILON);
    return (float)(1.0 / sqrt(norm_dot(x, x, C) / (double)C + CPU_EPSILON));
}

/* dx[c] = s r ((1 + g[c]) dy[c] - x[c] pull), pull = r^2 mean_k((1 + g[k]) dy[k] x[k]) being given;
 * dx may be dy. */
static inline void norm_backward_apply(float *dx, const float *dy, const float *x,
                                       const float *gain, float pull, float out, size_t C)
{
    size_t i = 0;

    for (; i + WIDE <= C; i += WIDE) {
        const wide g = (wide_load(&gain[i]) + 1.0f) * wide_load(&dy[i]);
        wide_store(&dx[i], out * (g - wide_load(&x[i]) * pull));
    }
    for (; i < C; i++)
        dx[i] = out * ((1.0f + gain[i]) * dy[i] - x[i] * pull);
}

/* dx[c] = s r ((1 + g[c]) dy[c] - x[c] r^2 mean_k((1 + g[k]) dy[k] x[k])); dx may be dy. */
static inline void norm_backward_row(float *dx, const float *dy, const float *x, const float *gain,
                                     float r, float s, size_t C)
{
    const float pull = r * (r * (norm_dot_gain(gain, dy, x, C) / (float)C));

    norm_backward_apply(dx, dy, x, gain, pull, s * r, C);
}

#endif

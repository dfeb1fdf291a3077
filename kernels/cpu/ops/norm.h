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

/* sum a b in f64: what a norm's backward takes from its terms can be a millionth of them. */
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
static inline double norm_dot_gain(const float *gain, const float *a, const float *b, size_t C)
{
    double lane[4] = {0};
    size_t i = 0;

    for (; i + 4 <= C; i += 4)
        for (size_t k = 0; k < 4; k++)
            lane[k] += (1.0 + (double)gain[i + k]) * (double)a[i + k] * (double)b[i + k];
    for (size_t k = 0; i + k < C; k++)
        lane[k] += (1.0 + (double)gain[i + k]) * (double)a[i + k] * (double)b[i + k];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static inline double norm_inverse(const float *x, size_t C)
{
    return 1.0 / sqrt(norm_dot(x, x, C) / (double)C + CPU_EPSILON);
}

/* dx[c] = s r ((1 + g[c]) dy[c] - x[c] r^2 mean_k((1 + g[k]) dy[k] x[k])); dx may be dy. */
static inline void norm_backward_row(float *dx, const float *dy, const float *x, const float *gain,
                                     float r, float s, size_t C)
{
    const double square = (double)r * (double)r, out = (double)s * (double)r;
    const double pull = square * norm_dot_gain(gain, dy, x, C) / (double)C;

    for (size_t c = 0; c < C; c++)
        dx[c] = (float)(out * ((1.0 + (double)gain[c]) * (double)dy[c] - (double)x[c] * pull));
}

#endif

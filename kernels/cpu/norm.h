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
#include "kernels/cpu/vector.h"

static inline float norm_inverse(const float *x, size_t C)
{
    return 1.0f / sqrtf(vector_dot(x, x, C) / (float)C + CPU_EPSILON);
}

/* dx[c] = s r ((1 + g[c]) dy[c] - x[c] r^2 mean_k((1 + g[k]) dy[k] x[k])); dx may be dy. */
static inline void norm_backward_row(float *dx, const float *dy, const float *x, const float *gain,
                                     float r, float s, size_t C)
{
    float mean = (vector_dot(dy, x, C) + vector_dot3(gain, dy, x, C)) / (float)C;
    float pull = s * r * r * r * mean, out = s * r;

    for (size_t c = 0; c < C; c++)
        dx[c] = out * ((1.0f + gain[c]) * dy[c]) - pull * x[c];
}

#endif

/*
 * round: rounding of single values to a grid, for the kernels that round on their way out.
 *
 * Purpose    The 8-bit grid of kernels/ref/quant.c, to the same bits.
 * Ownership  None.
 * Threads    Each for itself.
 * Failure    None.
 */
#ifndef NEEDLED_GPU_ROUND_H
#define NEEDLED_GPU_ROUND_H

#include "kernels/gpu/gpu.h"

/* The step of a row's grid, from the largest magnitude in it. */
DEVICE float a8_scale(float largest)
{
    return largest > 0.0f ? mul_rounded(largest, 1.0f / 127.0f) : 1.0f;
}

/* inverse is 1 / scale. */
DEVICE float a8_round(float value, float scale, float inverse)
{
    const float step = rintf(mul_rounded(value, inverse));
    const float rounded = mul_rounded(fminf(fmaxf(step, -128.0f), 127.0f), scale);

    return value + (rounded - value);
}

#endif

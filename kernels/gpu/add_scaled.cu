/*
 * add_scaled: y[i] += scale x[i].
 *
 * Shapes    x y [count].
 * Writes    y accumulates.
 * Numerics  f32, one product and one addition.
 * Source    Plain.
 */
#include "kernels/gpu/rows.h"

KERNEL gpu_add_scaled(GLOBAL float *y, GLOBAL const float *x, float scale, gpu_size count)
{
    const gpu_size i = (gpu_size)GROUP * GROUP_SIZE + (gpu_size)THREAD;

    if (i < count)
        y[i] += scale * x[i];
}

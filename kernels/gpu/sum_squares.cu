/*
 * sum_squares: the squared norm of a flat array, in two launches.
 *
 *   partials[b] = sum of x[i]^2 over the b-th stretch of GPU_PARTIAL_VALUES
 *   sum[0]      = sum_b partials[b]
 *
 * Shapes    x [count]; partials [B]; sum [1].
 * Writes    partials and sum are set.
 * Numerics  f32. A thread adds 64 squares, a group 256 such sums, the last group likewise: no chain
 *           of additions is long, and their order depends on the count alone.
 * Source    Plain.
 */
#include "kernels/gpu/kernels.h"

KERNEL gpu_sum_squares_partials(GLOBAL float *partials, GLOBAL const float *x, gpu_size count)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size begin = (gpu_size)GROUP * GPU_PARTIAL_VALUES;
    const gpu_size end = count - begin < GPU_PARTIAL_VALUES ? count : begin + GPU_PARTIAL_VALUES;
    float sum = 0;

    for (gpu_size i = begin + (gpu_size)THREAD; i < end; i += GROUP_SIZE)
        sum += x[i] * x[i];
    sum = group_sum(sum, scratch);
    if (THREAD == 0)
        partials[GROUP] = sum;
}

KERNEL gpu_sum_squares(GLOBAL float *sum, GLOBAL const float *partials, int B)
{
    SHARED float scratch[GROUP_SCRATCH];
    float total = 0;

    for (int b = THREAD; b < B; b += GROUP_SIZE)
        total += partials[b];
    total = group_sum(total, scratch);
    if (THREAD == 0)
        sum[0] = total;
}

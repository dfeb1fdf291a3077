/*
 * columns: the second half of a sum over rows that groups shared out among themselves.
 *
 *   sums[c] += sum_b partials[b,c]
 *
 * Shapes    sums [C]; partials [B,C].
 * Writes    sums accumulates, so gradients add over micro-batches.
 * Numerics  f32, b ascending from zero, then one addition to what was there.
 * Source    Plain.
 */
#include "kernels/gpu/kernels.h"

KERNEL gpu_add_columns(GLOBAL float *sums, GLOBAL const float *partials, int B, int C)
{
    const int c = GROUP * GROUP_SIZE + THREAD;
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int b = 0; b < B; b++)
        sum += partials[(gpu_size)b * (gpu_size)C + (gpu_size)c];
    sums[c] += sum;
}

/*
 * residual_norm: a gated, normalised branch added to the stream.
 *
 *   r[n]     = 1 / sqrt(mean_c x[n,c]^2 + eps),   s = sigmoid(gate[0])
 *   y[n,c]   = skip[n,c] + s (1 + g[c]) x[n,c] r[n]
 *   dx[n,c]  = s r[n] ((1 + g[c]) dy[n,c] - x[n,c] r[n]^2 mean_k((1 + g[k]) dy[n,k] x[n,k]))
 *   total[c] = sum_n dy[n,c] x[n,c] r[n]: the partials of gpu_rmsnorm_gain_partials added up
 *   dg[c]    = s total[c]
 *   dgate[0] = s (1 - s) sum_c (1 + g[c]) total[c]
 *
 * Shapes    x y skip dx dy [N,C]; g dg total [C]; gate dgate [1]; r [N], kept for backward.
 * Writes    y, r, dx, total are set; dg, dgate accumulate. y may be skip or x, dx may be dy: a
 *           thread reads its elements before it writes them.
 * Numerics  f32; a row's sum is 256 sums of every 256th element, added up as group_sum does; a
 *           column's goes down its rows in order. eps 1e-6.
 * Source    As kernels/ref/residual_norm.c.
 */
#include "kernels/gpu/rows.h"

DEVICE float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

KERNEL gpu_residual_norm_forward(GLOBAL float *y, GLOBAL float *r, GLOBAL const float *skip,
                                 GLOBAL const float *x, GLOBAL const float *gain,
                                 GLOBAL const float *gate, int C)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    const float s = sigmoid(gate[0]);
    float sum = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        sum += x[row + c] * x[row + c];
    sum = group_sum(sum, scratch);

    const float inverse = 1.0f / sqrtf(sum / (float)C + GPU_EPSILON);
    if (THREAD == 0)
        r[GROUP] = inverse;
    for (int c = THREAD; c < C; c += GROUP_SIZE)
        y[row + c] = skip[row + c] + s * (1.0f + gain[c]) * x[row + c] * inverse;
}

KERNEL gpu_residual_norm_gain(GLOBAL float *dgain, GLOBAL float *totals,
                              GLOBAL const float *partials, GLOBAL const float *gate, int B, int C)
{
    const int c = GROUP * GROUP_SIZE + THREAD;
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int b = 0; b < B; b++)
        sum += partials[(gpu_size)b * (gpu_size)C + (gpu_size)c];
    totals[c] = sum;
    if (dgain)
        dgain[c] += sigmoid(gate[0]) * sum;
}

KERNEL gpu_residual_norm_gate(GLOBAL float *dgate, GLOBAL const float *totals,
                              GLOBAL const float *gain, GLOBAL const float *gate, int C)
{
    SHARED float scratch[GROUP_SCRATCH];
    const float s = sigmoid(gate[0]);
    float sum = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        sum += (1.0f + gain[c]) * totals[c];
    sum = group_sum(sum, scratch);
    if (THREAD == 0)
        dgate[0] += s * (1.0f - s) * sum;
}

KERNEL gpu_residual_norm_backward(GLOBAL float *dx, GLOBAL const float *dy, GLOBAL const float *x,
                                  GLOBAL const float *gain, GLOBAL const float *gate,
                                  GLOBAL const float *r, int C)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    const float inverse = r[GROUP], s = sigmoid(gate[0]);
    float mean = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        mean += (1.0f + gain[c]) * dy[row + c] * x[row + c];
    mean = group_sum(mean, scratch) * inverse * inverse / (float)C;
    for (int c = THREAD; c < C; c += GROUP_SIZE)
        dx[row + c] = s * inverse * ((1.0f + gain[c]) * dy[row + c] - x[row + c] * mean);
}

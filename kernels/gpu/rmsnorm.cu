/*
 * rmsnorm: zero-centred RMS normalisation over the last axis.
 *
 *   r[n]    = 1 / sqrt(mean_c x[n,c]^2 + eps)
 *   y[n,c]  = round((1 + g[c]) x[n,c] r[n])
 *   dx[n,c] = r[n] ((1 + g[c]) dy[n,c] - x[n,c] r[n]^2 mean_k((1 + g[k]) dy[n,k] x[n,k]))
 *   dg[c]   = sum_n dy[n,c] x[n,c] r[n]: partials over blocks of rows, then gpu_add_columns
 *
 * Shapes    x y dx dy [N,C]; g [C]; r [N], kept by forward for backward; partials [B,C].
 * Writes    y, r, dx, partials are set. y may be x, dx may be dy: a thread reads before it writes,
 *           and the same elements.
 * Numerics  f32; a row's sum is 256 sums of every 256th element, added up as group_sum does; a
 *           column's goes down its rows in order. eps 1e-6; the gradient passes the rounding.
 * Source    As kernels/ref/rmsnorm.c.
 */
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/round.h"

KERNEL gpu_rmsnorm_forward(GLOBAL float *y, GLOBAL float *r, GLOBAL const float *x,
                           GLOBAL const float *gain, int C, int rounding)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    float sum = 0, largest = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        sum += x[row + c] * x[row + c];
    sum = group_sum(sum, scratch);

    const float inverse = 1.0f / sqrtf(sum / (float)C + GPU_EPSILON);
    if (THREAD == 0)
        r[GROUP] = inverse;
    for (int c = THREAD; c < C; c += GROUP_SIZE) {
        const float value = (1.0f + gain[c]) * x[row + c] * inverse;

        y[row + c] = value;
        largest = fmaxf(largest, fabsf(value));
    }
    if (rounding == GPU_ROUND_A8) { /* the same way for all threads */
        const float scale = a8_scale(group_max(largest, scratch));

        for (int c = THREAD; c < C; c += GROUP_SIZE)
            y[row + c] = a8_round(y[row + c], scale, 1.0f / scale);
    }
}

KERNEL gpu_rmsnorm_gain_partials(GLOBAL float *partials, GLOBAL const float *dy,
                                 GLOBAL const float *x, GLOBAL const float *r, int N, int C)
{
    const int c = GROUP * GROUP_SIZE + THREAD;
    const int begin = GROUP_Y * GPU_PARTIAL_ROWS;
    const int end = begin + GPU_PARTIAL_ROWS < N ? begin + GPU_PARTIAL_ROWS : N;
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int n = begin; n < end; n++) {
        const gpu_size i = (gpu_size)n * (gpu_size)C + (gpu_size)c;

        sum += dy[i] * x[i] * r[n];
    }
    partials[(gpu_size)GROUP_Y * (gpu_size)C + (gpu_size)c] = sum;
}

KERNEL gpu_rmsnorm_backward(GLOBAL float *dx, GLOBAL const float *dy, GLOBAL const float *x,
                            GLOBAL const float *gain, GLOBAL const float *r, int C)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    const float inverse = r[GROUP];
    float mean = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        mean += (1.0f + gain[c]) * dy[row + c] * x[row + c];
    mean = group_sum(mean, scratch) * inverse * inverse / (float)C;
    for (int c = THREAD; c < C; c += GROUP_SIZE)
        dx[row + c] = inverse * ((1.0f + gain[c]) * dy[row + c] - x[row + c] * mean);
}

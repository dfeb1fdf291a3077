/*
 * gate: a branch times the sigmoid of another.
 *
 *   y[n,c]     = round(x[n,c] s[n,c]),   s = sigmoid(gate)
 *   dx[n,c]    = dy[n,c] s[n,c]
 *   dgate[n,c] = dy[n,c] x[n,c] s[n,c] (1 - s[n,c])
 *
 * Shapes    All [N,C]; a row is rounded with one scale.
 * Writes    y, dx, dgate are set. Any output may be any input of its shape: a thread reads its
 *           elements before it writes them.
 * Numerics  f32; the gradient passes the rounding.
 * Source    As kernels/ref/gate.c.
 */
#include "kernels/gpu/round.h"
#include "kernels/gpu/rows.h"

KERNEL gpu_gate_forward(GLOBAL float *y, GLOBAL const float *x, GLOBAL const float *gate, int C,
                        int rounding)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    float largest = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE) {
        const float value = x[row + c] / (1.0f + expf(-gate[row + c]));

        y[row + c] = value;
        largest = fmaxf(largest, fabsf(value));
    }
    if (rounding == GPU_ROUND_A8) { /* the same way for all threads */
        const float scale = a8_scale(group_max(largest, scratch));

        for (int c = THREAD; c < C; c += GROUP_SIZE)
            y[row + c] = a8_round(y[row + c], scale, 1.0f / scale);
    }
}

KERNEL gpu_gate_backward(GLOBAL float *dx, GLOBAL float *dgate, GLOBAL const float *dy,
                         GLOBAL const float *x, GLOBAL const float *gate, gpu_size count)
{
    const gpu_size i = (gpu_size)GROUP * GROUP_SIZE + (gpu_size)THREAD;

    if (i >= count)
        return; /* no barrier below */

    const float s = 1.0f / (1.0f + expf(-gate[i])), upstream = dy[i], value = x[i];

    dgate[i] = upstream * value * s * (1.0f - s);
    dx[i] = upstream * s;
}

/*
 * hyper_write: writing to hyper-connections: the mix of the lanes and what the layer adds.
 *
 *   T[i,d]     = sum_j res[i,j] S[j,d] + post[i] (y[d] - u[d])
 *   dS[j,d]    = sum_i res[i,j] dT[i,d],   dy[d] = sum_i post[i] dT[i,d]
 *   dpost[i]   = sum_d dT[i,d] (y[d] - u[d]),   dres[i,j] = sum_d dT[i,d] S[j,d]
 *
 * Shapes    S T dS dT [N,n,D]; y u dy [N,D]; h dh [N,M], M = 2 n + n n: pre, post, res.
 * Writes    All are set, the pre part of dh to 0. dS may be dT: a thread reads its column of lanes
 *           before it writes it, and dh is made before.
 * Numerics  f32; sums over D are 256 sums of every 256th element, added up as group_sum does.
 * Source    As kernels/ref/hyper.c.
 */
#include "kernels/gpu/blocks.h"

KERNEL gpu_hyper_write_forward(GLOBAL float *T, GLOBAL const float *S, GLOBAL const float *h,
                               GLOBAL const float *y, GLOBAL const float *u, int lanes, int D)
{
    const int d = GROUP_Y * GROUP_SIZE + THREAD, M = 2 * lanes + lanes * lanes;
    const gpu_size n = (gpu_size)GROUP, at = n * (gpu_size)D + (gpu_size)d;
    const gpu_size first = n * (gpu_size)lanes * (gpu_size)D + (gpu_size)d;
    GLOBAL const float *post = h + n * (gpu_size)M + lanes, *res = post + lanes;
    float column[GPU_LANES_MAX];

    if (d >= D)
        return; /* no barrier below */

    const float added = y[at] - u[at];
    for (int j = 0; j < GPU_LANES_MAX; j++)
        column[j] = j < lanes ? S[first + (gpu_size)j * (gpu_size)D] : 0.0f;
    for (int i = 0; i < lanes; i++) {
        float sum = post[i] * added;
        for (int j = 0; j < GPU_LANES_MAX; j++)
            if (j < lanes)
                sum += res[i * lanes + j] * column[j];
        T[first + (gpu_size)i * (gpu_size)D] = sum;
    }
}

KERNEL gpu_hyper_write_coefficients(GLOBAL float *dh, GLOBAL const float *dT, GLOBAL const float *S,
                                    GLOBAL const float *y, GLOBAL const float *u, int lanes, int D)
{
    SHARED float scratch[GROUP_SCRATCH];
    const int M = 2 * lanes + lanes * lanes;
    const gpu_size n = (gpu_size)GROUP, row = n * (gpu_size)D;
    const gpu_size first = row * (gpu_size)lanes;
    GLOBAL float *post = dh + n * (gpu_size)M + lanes, *res = post + lanes;

    for (int i = THREAD; i < lanes; i += GROUP_SIZE)
        dh[n * (gpu_size)M + (gpu_size)i] = 0.0f;
    for (int i = 0; i < lanes; i++) {
        float added = 0, mixed[GPU_LANES_MAX] = {0};

        for (int d = THREAD; d < D; d += GROUP_SIZE) {
            const float upstream = dT[first + (gpu_size)i * (gpu_size)D + (gpu_size)d];

            added += upstream * (y[row + d] - u[row + d]);
            for (int j = 0; j < GPU_LANES_MAX; j++)
                if (j < lanes)
                    mixed[j] += upstream * S[first + (gpu_size)j * (gpu_size)D + (gpu_size)d];
        }
        added = group_sum(added, scratch);
        if (THREAD == 0)
            post[i] = added;
        for (int j = 0; j < GPU_LANES_MAX; j++) {
            if (j < lanes) { /* the same way for all threads */
                const float total = group_sum(mixed[j], scratch);

                if (THREAD == 0)
                    res[i * lanes + j] = total;
            }
        }
    }
}

KERNEL gpu_hyper_write_backward(GLOBAL float *dS, GLOBAL float *dy, GLOBAL const float *dT,
                                GLOBAL const float *h, int lanes, int D)
{
    const int d = GROUP_Y * GROUP_SIZE + THREAD, M = 2 * lanes + lanes * lanes;
    const gpu_size n = (gpu_size)GROUP;
    const gpu_size first = n * (gpu_size)lanes * (gpu_size)D + (gpu_size)d;
    GLOBAL const float *post = h + n * (gpu_size)M + lanes, *res = post + lanes;
    float column[GPU_LANES_MAX], sum = 0;

    if (d >= D)
        return; /* no barrier below */
    for (int i = 0; i < GPU_LANES_MAX; i++) {
        column[i] = i < lanes ? dT[first + (gpu_size)i * (gpu_size)D] : 0.0f;
        if (i < lanes)
            sum += post[i] * column[i];
    }
    dy[n * (gpu_size)D + (gpu_size)d] = sum;
    for (int j = 0; j < lanes; j++) {
        float mixed = 0;
        for (int i = 0; i < GPU_LANES_MAX; i++)
            if (i < lanes)
                mixed += res[i * lanes + j] * column[i];
        dS[first + (gpu_size)j * (gpu_size)D] = mixed;
    }
}

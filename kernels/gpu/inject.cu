/*
 * inject: a value added to the stream as far as its key fits.
 *
 *   ru[n]       = 1 / sqrt(mean_d u[n,d]^2 + eps),   rk[n] the same of key
 *   alpha[n]    = sigmoid(ru[n] rk[n] sum_d u[n,d] key[n,d] / sqrt(D))
 *   y[n,d]      = u[n,d] + alpha[n] value[n,d]
 *   z[n]        = alpha[n] (1 - alpha[n]) sum_d dy[n,d] value[n,d] / sqrt(D)
 *   du[n,d]     = dy[n,d] + z ru rk (key[n,d] - u[n,d] ru^2 mean_e(key[n,e] u[n,e]))
 *   dkey[n,d]   = z rk ru (u[n,d] - key[n,d] rk^2 mean_e(u[n,e] key[n,e]))
 *   dvalue[n,d] = alpha[n] dy[n,d]
 *
 * Shapes    u y key value and their gradients [N,D]; alpha [N], kept by forward for backward.
 * Writes    Every output is set; dkey, dvalue may be NULL. y may be u, du may be dy: a thread reads
 *           its elements before it writes them.
 * Numerics  f32; a row's sums are 256 sums of every 256th element, added up as group_sum does. eps
 *           1e-6.
 * Source    As kernels/ref/inject.c.
 */
#include "kernels/gpu/rows.h"

KERNEL gpu_inject_forward(GLOBAL float *y, GLOBAL float *alpha, GLOBAL const float *u,
                          GLOBAL const float *key, GLOBAL const float *value, int D)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)D;
    float uu = 0, kk = 0, uk = 0;

    for (int d = THREAD; d < D; d += GROUP_SIZE) {
        const float ud = u[row + d], kd = key[row + d];

        uu += ud * ud;
        kk += kd * kd;
        uk += ud * kd;
    }
    uu = group_sum(uu, scratch);
    kk = group_sum(kk, scratch);
    uk = group_sum(uk, scratch);

    const float width = (float)D;
    const float fit = uk / sqrtf(uu / width + GPU_EPSILON) / sqrtf(kk / width + GPU_EPSILON);
    const float weight = 1.0f / (1.0f + expf(-fit / sqrtf(width)));
    if (THREAD == 0)
        alpha[GROUP] = weight;
    for (int d = THREAD; d < D; d += GROUP_SIZE)
        y[row + d] = u[row + d] + weight * value[row + d];
}

KERNEL gpu_inject_backward(GLOBAL float *du, GLOBAL float *dkey, GLOBAL float *dvalue,
                           GLOBAL const float *dy, GLOBAL const float *alpha, GLOBAL const float *u,
                           GLOBAL const float *key, GLOBAL const float *value, int D)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)D;
    float uu = 0, kk = 0, uk = 0, dv = 0;

    for (int d = THREAD; d < D; d += GROUP_SIZE) {
        const float ud = u[row + d], kd = key[row + d];

        uu += ud * ud;
        kk += kd * kd;
        uk += ud * kd;
        dv += dy[row + d] * value[row + d];
    }
    uu = group_sum(uu, scratch);
    kk = group_sum(kk, scratch);
    uk = group_sum(uk, scratch);
    dv = group_sum(dv, scratch);

    const float width = (float)D, a = alpha[GROUP], mean = uk / width;
    const float ru = 1.0f / sqrtf(uu / width + GPU_EPSILON);
    const float rk = 1.0f / sqrtf(kk / width + GPU_EPSILON);
    const float z = a * (1.0f - a) * dv / sqrtf(width) * ru * rk;
    for (int d = THREAD; d < D; d += GROUP_SIZE) {
        const float ud = u[row + d], kd = key[row + d], upstream = dy[row + d];

        if (dkey)
            dkey[row + d] = z * (ud - kd * rk * rk * mean);
        du[row + d] = upstream + z * (kd - ud * ru * ru * mean);
        if (dvalue)
            dvalue[row + d] = a * upstream;
    }
}

/*
 * adamw: one step of Adam with decoupled weight decay.
 *
 *   h    = g[i] / gradient_divisor
 *   m[i] = take1 h + keep1 m[i],   v[i] = take2 h^2 + keep2 v[i]
 *   p[i] = p[i] - lr ((m[i] / correction1) / (sqrt(v[i] / correction2) + epsilon) + decay p[i])
 *
 * Shapes    p m v g [count].
 * Writes    p, m, v in place.
 * Numerics  f32, in the order of the reference; products may be fused with the sum they go into.
 * Source    As kernels/ref/adamw.c.
 */
#include "kernels/gpu/kernels.h"

KERNEL gpu_adamw(GLOBAL float *RESTRICT p, GLOBAL float *RESTRICT m, GLOBAL float *RESTRICT v,
                 GLOBAL const float *RESTRICT g, float keep1, float take1, float keep2, float take2,
                 float learning_rate, float epsilon, float weight_decay, float correction1,
                 float correction2, float gradient_divisor, gpu_size count)
{
    const gpu_size i = (gpu_size)GROUP * GROUP_SIZE + (gpu_size)THREAD;

    if (i >= count)
        return; /* no barrier below */

    const float h = g[i] / gradient_divisor;
    const float first = take1 * h + keep1 * m[i];
    const float second = take2 * (h * h) + keep2 * v[i];
    const float direction = first / correction1 / (sqrtf(second / correction2) + epsilon);

    m[i] = first;
    v[i] = second;
    p[i] -= learning_rate * (direction + weight_decay * p[i]);
}

/*
 * adamw: one step of Adam with decoupled weight decay.
 *
 *   h    = g[i] / gradient_divisor
 *   m[i] = (1 - beta1) h + beta1 m[i],   v[i] = (1 - beta2) h^2 + beta2 v[i]
 *   p[i] = p[i] - lr ((m[i] / correction1) / (sqrt(v[i] / correction2) + epsilon) + decay p[i])
 *
 * Shapes    p m v g [count].
 * Writes    p, m, v in place.
 * Numerics  f32 throughout, 1 - beta from the doubles, in the order of the reference.
 * Source    Loshchilov and Hutter 2019, arXiv:1711.05101; optax 0.2.8, adamw.
 */
#include "kernels/ref/ref.h"

#include <math.h>

void ref_adamw(float *p, float *m, float *v, const float *g, const struct adamw *step, size_t count)
{
    const float keep1 = (float)step->beta1, take1 = (float)(1.0 - step->beta1);
    const float keep2 = (float)step->beta2, take2 = (float)(1.0 - step->beta2);

    for (size_t i = 0; i < count; i++) {
        const float h = g[i] / step->gradient_divisor;

        m[i] = take1 * h + keep1 * m[i];
        v[i] = take2 * (h * h) + keep2 * v[i];
        const float direction =
            m[i] / step->correction1 / (sqrtf(v[i] / step->correction2) + step->epsilon);
        p[i] -= step->learning_rate * (direction + step->weight_decay * p[i]);
    }
}

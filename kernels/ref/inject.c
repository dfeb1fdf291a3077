/*
 * inject: a value added to the stream as far as its key fits.
 *
 *   ru[n]       = 1 / sqrt(mean_d u[n,d]^2 + eps),   rk[n] the same of key
 *   alpha[n]    = sigmoid(ru[n] rk[n] sum_d u[n,d] key[n,d] / sqrt(D))
 *   y[n,d]      = u[n,d] + alpha[n] value[n,d]
 *   z[n]        = alpha[n] (1 - alpha[n]) sum_d dy[n,d] value[n,d] / sqrt(D)
 *   du[n,d]     = dy[n,d] + z ru (rk key[n,d] - u[n,d] ru^2 mean_e(rk key[n,e] u[n,e]))
 *   dkey[n,d]   = z rk (ru u[n,d] - key[n,d] rk^2 mean_e(ru u[n,e] key[n,e]))
 *   dvalue[n,d] = alpha[n] dy[n,d]
 *
 * Shapes    u y key value and their gradients [N,D]; alpha [N], kept by forward for backward.
 * Writes    Every output is set; dkey, dvalue may be NULL. y may be u, du may be dy unless dvalue
 * is wanted too. Numerics  f32 in and out; row sums f64 in ref; eps 1e-6. Source    Needle
 * architecture.py, Block (engram_kv) and _rms_unit.
 */
#include "kernels/ref/ref.h"

#include <math.h>

static double dot(const float *a, const float *b, size_t D)
{
    double sum = 0;

    for (size_t d = 0; d < D; d++)
        sum += (double)a[d] * b[d];
    return sum;
}

void ref_inject_forward(float *y, float *alpha, const float *u, const float *key,
                        const float *value, size_t N, size_t D)
{
    for (size_t n = 0; n < N; n++) {
        const float *un = &u[n * D], *kn = &key[n * D];
        const double fit = ref_inverse_rms(un, D) * ref_inverse_rms(kn, D) * dot(un, kn, D);

        alpha[n] = (float)ref_sigmoid(fit / sqrt((double)D));
        for (size_t d = 0; d < D; d++)
            y[n * D + d] = (float)(un[d] + (double)alpha[n] * value[n * D + d]);
    }
}

void ref_inject_backward(float *du, float *dkey, float *dvalue, const float *dy, const float *alpha,
                         const float *u, const float *key, const float *value, size_t N, size_t D)
{
    for (size_t n = 0; n < N; n++) {
        const float *un = &u[n * D], *kn = &key[n * D], *dyn = &dy[n * D];
        const double ru = ref_inverse_rms(un, D), rk = ref_inverse_rms(kn, D);
        const double a = alpha[n], mean = dot(un, kn, D) / (double)D;
        const double z = a * (1.0 - a) * dot(dyn, &value[n * D], D) / sqrt((double)D);

        for (size_t d = 0; d < D; d++) {
            const double dyd = dyn[d];

            if (dkey)
                dkey[n * D + d] = (float)(z * rk * ru * (un[d] - kn[d] * rk * rk * mean));
            du[n * D + d] = (float)(dyd + z * ru * rk * (kn[d] - un[d] * ru * ru * mean));
            if (dvalue)
                dvalue[n * D + d] = (float)(a * dyd);
        }
    }
}

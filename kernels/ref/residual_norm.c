/*
 * residual_norm: a gated, normalised branch added to the stream.
 *
 *   r[n]     = 1 / sqrt(mean_c x[n,c]^2 + eps),   s = sigmoid(gate[0])
 *   y[n,c]   = skip[n,c] + s (1 + g[c]) x[n,c] r[n]
 *   dx[n,c]  = s r[n] ((1 + g[c]) dy[n,c] - x[n,c] r[n]^2 mean_k((1 + g[k]) dy[n,k] x[n,k]))
 *   dg[c]    = s sum_n dy[n,c] x[n,c] r[n]
 *   dgate[0] = s (1 - s) sum_{n,c} dy[n,c] (1 + g[c]) x[n,c] r[n]
 *   dskip    = dy (the caller's)
 *
 * Shapes    x y skip dx dy [N,C]; g dg [C]; gate dgate [1]; r [N], kept for backward.
 * Writes    y, r, dx are set; dg, dgate accumulate. y may be skip or x, dx may be dy.
 * Numerics  f32 in and out; sums f64 in ref; eps 1e-6.
 * Source    Needle architecture.py, Block (post_attn_norm and attn_gate).
 */
#include "kernels/ref/ref.h"

void ref_residual_norm_forward(float *y, float *r, const float *skip, const float *x,
                               const float *gain, const float *gate, size_t N, size_t C)
{
    const double s = ref_sigmoid(gate[0]);

    for (size_t n = 0; n < N; n++) {
        r[n] = (float)ref_inverse_rms(&x[n * C], C);
        for (size_t c = 0; c < C; c++)
            y[n * C + c] = (float)(skip[n * C + c] + s * (1.0 + gain[c]) * x[n * C + c] * r[n]);
    }
}

void ref_residual_norm_backward(float *dx, float *dgain, float *dgate, const float *dy,
                                const float *x, const float *gain, const float *gate,
                                const float *r, size_t N, size_t C)
{
    const double s = ref_sigmoid(gate[0]);
    double dgate_sum = 0;

    for (size_t c = 0; c < C; c++) {
        double sum = 0;

        for (size_t n = 0; n < N; n++)
            sum += (double)dy[n * C + c] * x[n * C + c] * r[n];
        dgate_sum += (1.0 + gain[c]) * sum;
        if (dgain)
            dgain[c] += (float)(s * sum);
    }
    if (dgate)
        dgate[0] += (float)(s * (1.0 - s) * dgate_sum);
    for (size_t n = 0; n < N; n++) {
        double mean = 0;

        for (size_t c = 0; c < C; c++)
            mean += (1.0 + gain[c]) * dy[n * C + c] * x[n * C + c];
        mean *= (double)r[n] * r[n] / (double)C;
        for (size_t c = 0; c < C; c++) {
            const double g = (1.0 + gain[c]) * dy[n * C + c];

            dx[n * C + c] = (float)(s * r[n] * (g - x[n * C + c] * mean));
        }
    }
}

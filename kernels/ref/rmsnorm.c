/*
 * rmsnorm: zero-centred RMS normalisation over the last axis.
 *
 *   r[n]    = 1 / sqrt(mean_c x[n,c]^2 + eps)
 *   y[n,c]  = round((1 + g[c]) x[n,c] r[n])
 *   dx[n,c] = r[n] ((1 + g[c]) dy[n,c] - x[n,c] r[n]^2 mean_k((1 + g[k]) dy[n,k] x[n,k]))
 *   dg[c]   = sum_n dy[n,c] x[n,c] r[n]
 *
 * Shapes    x y dx dy [N,C]; g dg [C]; r [N], kept by forward for backward.
 * Writes    y, r, dx are set; dg accumulates. y may be x, dx may be dy.
 * Numerics  f32 in and out; row sums f64 in ref; eps 1e-6; the gradient passes the rounding.
 * Source    Zhang and Sennrich 2019, arXiv:1910.07467; (1 + g): Needle architecture.py, ZCRMSNorm.
 */
#include "kernels/ref/ref.h"

void ref_rmsnorm_forward(float *y, float *r, const float *x, const float *gain, size_t N, size_t C,
                         enum rounding rounding)
{
    for (size_t n = 0; n < N; n++) {
        r[n] = (float)ref_inverse_rms(&x[n * C], C);
        for (size_t c = 0; c < C; c++)
            y[n * C + c] = (float)((1.0 + gain[c]) * x[n * C + c] * r[n]);
        if (rounding == ROUND_A8)
            ref_round_a8_row(&y[n * C], &y[n * C], C);
    }
}

void ref_rmsnorm_backward(float *dx, float *dgain, const float *dy, const float *x,
                          const float *gain, const float *r, size_t N, size_t C)
{
    for (size_t c = 0; dgain && c < C; c++) {
        double sum = 0;

        for (size_t n = 0; n < N; n++)
            sum += (double)dy[n * C + c] * x[n * C + c] * r[n];
        dgain[c] += (float)sum;
    }
    for (size_t n = 0; n < N; n++) {
        double mean = 0;

        for (size_t c = 0; c < C; c++)
            mean += (1.0 + gain[c]) * dy[n * C + c] * x[n * C + c];
        mean *= (double)r[n] * r[n] / (double)C;
        for (size_t c = 0; c < C; c++) {
            const double g = (1.0 + gain[c]) * dy[n * C + c];

            dx[n * C + c] = (float)(r[n] * (g - x[n * C + c] * mean));
        }
    }
}

/*
 * lanes: a stream copied into n lanes at the start, averaged at the end.
 *
 *   spread:  S[n,i,d] = x[n,d]                 dx[n,d]   = sum_i dS[n,i,d]
 *   mean:    x[n,d]   = mean_i S[n,i,d]        dS[n,i,d] = dx[n,d] / lanes
 *
 * Shapes    x dx [N,D]; S dS [N,lanes,D].
 * Writes    Every output is set.
 * Numerics  f32 in and out; sums f64 in ref.
 * Source    Zhu et al. 2024, arXiv:2409.19606 (hyper-connections); Needle architecture.py, Stack.
 */
#include "kernels/ref/ref.h"

void ref_lanes_spread_forward(float *S, const float *x, size_t N, size_t lanes, size_t D)
{
    for (size_t n = 0; n < N; n++)
        for (size_t i = 0; i < lanes; i++)
            for (size_t d = 0; d < D; d++)
                S[(n * lanes + i) * D + d] = x[n * D + d];
}

static void sum_lanes(float *x, const float *S, double divisor, size_t N, size_t lanes, size_t D)
{
    for (size_t n = 0; n < N; n++) {
        for (size_t d = 0; d < D; d++) {
            double sum = 0;

            for (size_t i = 0; i < lanes; i++)
                sum += S[(n * lanes + i) * D + d];
            x[n * D + d] = (float)(sum / divisor);
        }
    }
}

void ref_lanes_spread_backward(float *dx, const float *dS, size_t N, size_t lanes, size_t D)
{
    sum_lanes(dx, dS, 1.0, N, lanes, D);
}

void ref_lanes_mean_forward(float *x, const float *S, size_t N, size_t lanes, size_t D)
{
    sum_lanes(x, S, (double)lanes, N, lanes, D);
}

void ref_lanes_mean_backward(float *dS, const float *dx, size_t N, size_t lanes, size_t D)
{
    for (size_t n = 0; n < N; n++)
        for (size_t i = 0; i < lanes; i++)
            for (size_t d = 0; d < D; d++)
                dS[(n * lanes + i) * D + d] = dx[n * D + d] / (float)lanes;
}

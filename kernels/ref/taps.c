/*
 * taps: a causal convolution of each channel along a token's ancestors.
 *
 *   y[n,c]     = sum_j taps[j,c] x[a(n,j),c]            a(n,j): the ancestor j dilation above n;
 *   dx[m,c]    = sum_j sum_{n: a(n,j) = m} taps[j,c] dy[n,c]         a term without one is 0
 *   dtaps[j,c] = sum_n dy[n,c] x[a(n,j),c]
 *
 * Shapes    x y dx dy [N,C], N tokens of the tree; taps dtaps [tap_count,C].
 * Writes    y, dx are set; dtaps accumulates. Neither y may be x nor dx be dy.
 * Numerics  y and dtaps f64 sums; dx adds its terms in f32, n ascending.
 * Source    Needle architecture.py, Engram (dilated) and MultiHeadAttention (dilation 1).
 */
#include "kernels/ref/ref.h"

#include <string.h>

void ref_taps_forward(float *y, const float *x, const float *taps, const struct tree *tree,
                      size_t C, size_t tap_count, size_t dilation)
{
    for (size_t n = 0; n < tree->token_count; n++) {
        for (size_t c = 0; c < C; c++) {
            int32_t m = (int32_t)n;
            double sum = 0;

            for (size_t j = 0; j < tap_count && m >= 0; j++) {
                sum += (double)taps[j * C + c] * x[(size_t)m * C + c];
                m = ref_ancestor(tree, (size_t)m, dilation);
            }
            y[n * C + c] = (float)sum;
        }
    }
}

void ref_taps_backward(float *dx, float *dtaps, const float *dy, const float *x, const float *taps,
                       const struct tree *tree, size_t C, size_t tap_count, size_t dilation)
{
    memset(dx, 0, tree->token_count * C * sizeof(*dx));
    for (size_t n = 0; n < tree->token_count; n++) {
        for (size_t j = 0; j < tap_count; j++) {
            const int32_t m = ref_ancestor(tree, n, j * dilation);

            for (size_t c = 0; m >= 0 && c < C; c++)
                dx[(size_t)m * C + c] += taps[j * C + c] * dy[n * C + c];
        }
    }
    for (size_t j = 0; dtaps && j < tap_count; j++) {
        for (size_t c = 0; c < C; c++) {
            double sum = 0;

            for (size_t n = 0; n < tree->token_count; n++) {
                const int32_t m = ref_ancestor(tree, n, j * dilation);

                if (m >= 0)
                    sum += (double)dy[n * C + c] * x[(size_t)m * C + c];
            }
            dtaps[j * C + c] += (float)sum;
        }
    }
}

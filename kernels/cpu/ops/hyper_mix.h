/*
 * hyper_mix: a block's input from a token's lanes.
 *
 * Purpose    u[d] = sum_i pre[i] S[i,d], the same bits whether read and coefficients are made along
 *            with it or long before.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_HYPER_MIX_H
#define NEEDLED_HYPER_MIX_H

#include "kernels/cpu/ops/vector.h"

static inline void hyper_mix_row(float *restrict u, const float *S, const float *pre, size_t n,
                                 size_t D)
{
    for (size_t d = 0; d < D; d++)
        u[d] = pre[0] * S[d];
    if (n == 4) { /* in one pass; each term is added to what stands, as below */
        for (size_t d = 0; d < D; d++) {
            float sum = u[d];

            sum += pre[1] * S[D + d];
            sum += pre[2] * S[2 * D + d];
            sum += pre[3] * S[3 * D + d];
            u[d] = sum;
        }
        return;
    }
    for (size_t i = 1; i < n; i++)
        vector_add_scaled(u, &S[i * D], pre[i], D);
}

#endif

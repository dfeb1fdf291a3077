/*
 * sinkhorn: doubly stochastic matrices of LANES tokens side by side.
 *
 * Purpose    Rounds of row and column normalisation in log space, and the way back.
 * Ownership  Caller's arrays.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_SINKHORN_H
#define NEEDLED_SINKHORN_H

#include "kernels/cpu/ops/vector.h"

#define SINKHORN_HALF_ROUNDS 40 /* rows and columns by turns */

/* L [n,n,LANES] in place: logarithms of the result. states (or NULL) takes L after each half-round:
 * [SINKHORN_HALF_ROUNDS, n, n, LANES]. */
void sinkhorn_forward(float *L, float *states, size_t n);
/* dL in place: from the gradient at the last L to that at the first. */
void sinkhorn_backward(float *dL, const float *states, size_t n);

#endif

/*
 * sinkhorn: doubly stochastic matrices of LANES tokens side by side.
 *
 * Purpose    Rounds of row and column normalisation, and the way back.
 * Ownership  Caller's arrays.
 * Threads    Any.
 * Failure    None. A token's bits do not depend on its neighbours'.
 */
#ifndef NEEDLED_SINKHORN_H
#define NEEDLED_SINKHORN_H

#include "kernels/cpu/ops/vector.h"

#define SINKHORN_HALF_ROUNDS 40 /* rows and columns by turns */

/* Floats of scratch that both ways need for n x n matrices. */
size_t sinkhorn_scratch_count(size_t n);

/* mix from logits, both [n,n,LANES]; mix may be logits. */
void sinkhorn_forward(float *mix, const float *logits, size_t n, float *scratch);

/* dlogits from dmix and the logits that forward took; dlogits may be dmix. */
void sinkhorn_backward(float *dlogits, const float *dmix, const float *logits, size_t n,
                       float *scratch);

#endif

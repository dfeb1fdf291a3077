/*
 * skinny: products of a few tokens with a matrix B [K,M] of few columns, and with its transpose.
 *
 * Purpose    M = SKINNY_COLUMNS, which 4 lanes need, has kernels that hold the sums of SKINNY_ROWS
 *            tokens in registers; any other M goes to the library.
 * Ownership  Caller's arrays.
 * Threads    Any.
 * Failure    None. A row's bits do not depend on the rows beside it where M = SKINNY_COLUMNS.
 */
#ifndef NEEDLED_SKINNY_H
#define NEEDLED_SKINNY_H

#include "kernels/cpu/ops/wide.h"

#define SKINNY_COLUMNS 24
#define SKINNY_PANEL (2 * WIDE) /* columns of the product with B^T that are made together */
#if defined(__AVX512F__)
#define SKINNY_ROWS 8
#elif defined(__AVX__)
#define SKINNY_ROWS 4
#else
#define SKINNY_ROWS 2
#endif

/* Step between rows of K values that lie side by side in scratch: whole panels, and no two rows a
 * multiple of 4096 bytes apart, since those would share one set of the first cache. */
static inline size_t skinny_stride(size_t K)
{
    return (K + SKINNY_PANEL - 1) / SKINNY_PANEL * SKINNY_PANEL + 16;
}

/* C [count,M] = A [count,K] B; count at most SKINNY_ROWS, rows of A `stride` apart. */
void skinny_forward(float *C, const float *A, size_t stride, const float *B, size_t count, size_t K,
                    size_t M);

/* Floats of B as skinny_backward reads it. */
size_t skinny_packed_count(size_t K, size_t M);
size_t skinny_panel_count(size_t K, size_t M);

/* Panels begin to end of `packed`. */
void skinny_pack(float *packed, const float *B, size_t K, size_t M, size_t begin, size_t end);

/* C [count,K] = A [count,M] B^T; count as above, rows of C skinny_stride(K) apart, whole panels of
 * them written. `packed` is read where there are panels, else B. What stands at `ahead` [count,K],
 * which the caller will change next, is fetched along the way. */
void skinny_backward(float *C, const float *A, const float *packed, const float *B, size_t count,
                     size_t K, size_t M, const float *ahead);

#endif

/*
 * gemm: the matrix product shared out over the team, the same bits at any thread count.
 *
 * Purpose    C = alpha op(A) op(B) + beta C as in kernels/ref/matmul.c. With AVX by kernels of our
 *            own: an element's sum has one order, by K alone, whatever rows and columns stand beside
 *            it and whichever thread makes it. On other levels by one library call a thread.
 * Ownership  `space` is the caller's: gemm_space floats, 64-byte aligned, not cleared.
 * Threads    Shared out inside; not from a team body.
 * Failure    None.
 */
#ifndef NEEDLED_GEMM_H
#define NEEDLED_GEMM_H

#include "kernels/cpu/cpu.h"

size_t gemm_space(const struct matmul *shape);
void gemm_run(struct cpu *cpu, float *C, const float *A, const float *B, const struct matmul *shape,
              float *space);

#endif

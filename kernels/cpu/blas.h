/*
 * blas: the one product taken from OpenBLAS, and the reasons to trust it.
 *
 * Purpose    A row-major sgemm by struct matmul; its check against plain loops; its limits.
 * Ownership  None.
 * Threads    Any number up to blas_callers_max at once, each after blas_use_one_thread.
 * Failure    blas_check names the first product that is wrong.
 */
#ifndef NEEDLED_BLAS_H
#define NEEDLED_BLAS_H

#include "kernels/ops.h"

typedef void blas_gemm_fn(float *C, const float *A, const float *B, const struct matmul *shape);

void blas_gemm(float *C, const float *A, const float *B, const struct matmul *shape);

/* Odd sizes, all transposes, padded rows, K = 0, beta = 0 over NaN. False: reason written. */
bool blas_check(blas_gemm_fn *gemm, char *ret_reason, size_t reason_size);

/* No threads of the library's own, whatever the environment says; also in its OpenMP build, where
 * the number belongs to the calling thread. */
void blas_use_one_thread(void);
/* Threads that may be inside the library at once. */
size_t blas_callers_max(void);
/* Of these a team's: backends together have at most a thread a core, and where that is more than may
 * call, the team of each shrinks in proportion, so that there is room for all of them. */
size_t blas_share_callers(size_t thread_count, size_t core_count, size_t callers_max);
/* Version, kernel in use and build options, for people. */
void blas_describe(char *ret_text, size_t size);

#endif

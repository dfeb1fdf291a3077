/*
 * matmul: the matrix product for cards without a library of their own.
 *
 * Purpose    As kernels.h, for kernels/gpu/matmul.cu.
 * Ownership  Pointers are device memory.
 * Threads    One launch.
 * Failure    None here.
 */
#ifndef NEEDLED_GPU_MATMUL_H
#define NEEDLED_GPU_MATMUL_H

#include "kernels/gpu/gpu.h"

#define GPU_MATMUL_TILE 64 /* a group computes that many rows and columns of C */

/* groups: UP(M, GPU_MATMUL_TILE) UP(N, GPU_MATMUL_TILE), in one dimension, those of a row of tiles
 * together. transpose_a, transpose_b: 0 or 1. */
KERNEL gpu_matmul(GLOBAL float *RESTRICT C, GLOBAL const float *RESTRICT A,
                  GLOBAL const float *RESTRICT B, int M, int N, int K, int transpose_a,
                  int transpose_b, gpu_size lda, gpu_size ldb, gpu_size ldc, float alpha,
                  float beta);

#endif

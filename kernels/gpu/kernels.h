/*
 * kernels: every kernel with its arguments and the grid it wants.
 *
 * Purpose    What a host side launches; each kernel's file includes it, so that they cannot differ.
 * Ownership  Pointers are device memory.
 * Threads    One launch after the other on one stream, in the order the comments state.
 * Failure    None here.
 *
 * "groups" is the grid; UP(a, b) = a / b rounded up.
 */
#ifndef NEEDLED_GPU_KERNELS_H
#define NEEDLED_GPU_KERNELS_H

#include "kernels/gpu/gpu.h"

#define GPU_EPSILON 1e-6f
#define GPU_ROUND_A8 8 /* enum rounding, for OpenCL, which does not read ops.h */

/* Rows whose share of a weight's gradient is summed by one group; more rows, more groups. */
#define GPU_PARTIAL_ROWS 64
/* Values of which one group makes a partial sum. */
#define GPU_PARTIAL_VALUES (64 * GROUP_SIZE)

/* ---- rmsnorm.cu ------------------------------------------------------------------------------ */

/* groups: N. */
KERNEL gpu_rmsnorm_forward(GLOBAL float *y, GLOBAL float *r, GLOBAL const float *x,
                           GLOBAL const float *gain, int C, int rounding);
/* groups: UP(C, GROUP_SIZE) by UP(N, GPU_PARTIAL_ROWS) = B. partials [B,C] is set; before the next,
 * whose dx may stand where dy stood. */
KERNEL gpu_rmsnorm_gain_partials(GLOBAL float *partials, GLOBAL const float *dy,
                                 GLOBAL const float *x, GLOBAL const float *r, int N, int C);
/* groups: N. */
KERNEL gpu_rmsnorm_backward(GLOBAL float *dx, GLOBAL const float *dy, GLOBAL const float *x,
                            GLOBAL const float *gain, GLOBAL const float *r, int C);

/* ---- columns.cu ------------------------------------------------------------------------------ */

/* sums[c] += sum_b partials[b,c], b ascending. groups: UP(C, GROUP_SIZE). */
KERNEL gpu_add_columns(GLOBAL float *sums, GLOBAL const float *partials, int B, int C);

/* ---- sum_squares.cu -------------------------------------------------------------------------- */

/* groups: UP(count, GPU_PARTIAL_VALUES) = B. partials [B] is set. */
KERNEL gpu_sum_squares_partials(GLOBAL float *partials, GLOBAL const float *x, gpu_size count);
/* sum[0] = sum_b partials[b]. groups: 1. */
KERNEL gpu_sum_squares(GLOBAL float *sum, GLOBAL const float *partials, int B);

/* ---- adamw.cu -------------------------------------------------------------------------------- */

/* groups: UP(count, GROUP_SIZE). keep = (float)beta, take = (float)(1.0 - beta). */
KERNEL gpu_adamw(GLOBAL float *RESTRICT p, GLOBAL float *RESTRICT m, GLOBAL float *RESTRICT v,
                 GLOBAL const float *RESTRICT g, float keep1, float take1, float keep2, float take2,
                 float learning_rate, float epsilon, float weight_decay, float correction1,
                 float correction2, float gradient_divisor, gpu_size count);

#endif

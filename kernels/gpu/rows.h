/*
 * rows: the kernels that move, gate, mix and round rows, with their arguments and grids.
 *
 * Purpose    What a host side launches; each kernel's file includes it, so that they cannot differ.
 * Ownership  Pointers are device memory.
 * Threads    One launch after the other on one stream, in the order the comments state.
 * Failure    None here.
 *
 * "groups" is the grid, "by" its second dimension; UP(a, b) = a / b rounded up. storage is enum
 * storage of ops.h; aligned says whether values stand at a multiple of their own size. A grid of
 * codes is given as code_values [code_count] and code_group: `group` of struct codebook.
 */
#ifndef NEEDLED_GPU_ROWS_H
#define NEEDLED_GPU_ROWS_H

#include "kernels/gpu/kernels.h"

/* What one group puts on a grid of codes at once (code.h). */
#define GPU_CODE_OUTPUTS 32
#define GPU_CODE_INPUTS 128

/* ---- add_scaled.cu --------------------------------------------------------------------------- */

/* groups: UP(count, GROUP_SIZE). */
KERNEL gpu_add_scaled(GLOBAL float *y, GLOBAL const float *x, float scale, gpu_size count);

/* ---- embed.cu -------------------------------------------------------------------------------- */

/* groups: N. */
KERNEL gpu_embed_forward(GLOBAL float *RESTRICT x, GLOBAL const float *RESTRICT table,
                         GLOBAL const int *RESTRICT tokens, float scale, int D);

/* ---- gather.cu ------------------------------------------------------------------------------- */

/* groups: N by tables. Without a grid of codes. */
KERNEL gpu_gather_forward(GLOBAL float *y, GLOBAL const gpu_u8 *values, GLOBAL const int *index,
                          int storage, int aligned, int tables, int slots, int sub);
/* groups: UP(N tables, GPU_CODE_OUTPUTS) by UP(sub, GPU_CODE_INPUTS). With one. */
KERNEL gpu_gather_code(GLOBAL float *y, GLOBAL const gpu_u8 *values, GLOBAL const int *index,
                       GLOBAL const float *code_values, int code_count, int code_group, int storage,
                       int aligned, int N, int tables, int slots, int sub);

/* ---- scatter.cu: gradients of embed and gather ----------------------------------------------- */

/* next [tables,N] is set. groups: UP(N, GROUP_SIZE) by tables. */
KERNEL gpu_scatter_links(GLOBAL int *RESTRICT next, GLOBAL const int *RESTRICT index, int N,
                         int tables);
/* groups: N by tables; after the links. */
KERNEL gpu_scatter_add(GLOBAL float *RESTRICT dtable, GLOBAL const float *RESTRICT dy,
                       GLOBAL const int *RESTRICT index, GLOBAL const int *RESTRICT next,
                       float scale, int N, int tables, int slots, int sub);

/* ---- taps.cu --------------------------------------------------------------------------------- */

/* groups: N by UP(C, GROUP_SIZE). */
KERNEL gpu_taps_forward(GLOBAL float *RESTRICT y, GLOBAL const float *RESTRICT x,
                        GLOBAL const float *RESTRICT taps, GLOBAL const int *RESTRICT parent,
                        GLOBAL const int *RESTRICT run, int C, int tap_count, int dilation);
/* groups: N by UP(C, GROUP_SIZE). */
KERNEL gpu_taps_backward(GLOBAL float *RESTRICT dx, GLOBAL const float *RESTRICT dy,
                         GLOBAL const float *RESTRICT taps, GLOBAL const int *RESTRICT depth,
                         GLOBAL const int *RESTRICT end, int C, int tap_count, int dilation);
/* groups: tap_count UP(C, GROUP_SIZE) by UP(N, GPU_PARTIAL_ROWS) = B. partials [B,tap_count,C] is
 * set. */
KERNEL gpu_taps_partials(GLOBAL float *RESTRICT partials, GLOBAL const float *RESTRICT dy,
                         GLOBAL const float *RESTRICT x, GLOBAL const int *RESTRICT parent,
                         GLOBAL const int *RESTRICT run, int N, int C, int tap_count, int dilation);

/* ---- gate.cu --------------------------------------------------------------------------------- */

/* groups: N. */
KERNEL gpu_gate_forward(GLOBAL float *y, GLOBAL const float *x, GLOBAL const float *gate, int C,
                        int rounding);
/* groups: UP(count, GROUP_SIZE). */
KERNEL gpu_gate_backward(GLOBAL float *dx, GLOBAL float *dgate, GLOBAL const float *dy,
                         GLOBAL const float *x, GLOBAL const float *gate, gpu_size count);

/* ---- residual_norm.cu ------------------------------------------------------------------------ */

/* groups: N. */
KERNEL gpu_residual_norm_forward(GLOBAL float *y, GLOBAL float *r, GLOBAL const float *skip,
                                 GLOBAL const float *x, GLOBAL const float *gain,
                                 GLOBAL const float *gate, int C);
/* totals [C] is set from the partials of gpu_rmsnorm_gain_partials; dgain accumulates, unless NULL.
 * groups: UP(C, GROUP_SIZE). */
KERNEL gpu_residual_norm_gain(GLOBAL float *dgain, GLOBAL float *totals,
                              GLOBAL const float *partials, GLOBAL const float *gate, int B, int C);
/* dgate accumulates. groups: 1. */
KERNEL gpu_residual_norm_gate(GLOBAL float *dgate, GLOBAL const float *totals,
                              GLOBAL const float *gain, GLOBAL const float *gate, int C);
/* groups: N; dx may stand where dy stood: last. */
KERNEL gpu_residual_norm_backward(GLOBAL float *dx, GLOBAL const float *dy, GLOBAL const float *x,
                                  GLOBAL const float *gain, GLOBAL const float *gate,
                                  GLOBAL const float *r, int C);

/* ---- inject.cu ------------------------------------------------------------------------------- */

/* groups: N. */
KERNEL gpu_inject_forward(GLOBAL float *y, GLOBAL float *alpha, GLOBAL const float *u,
                          GLOBAL const float *key, GLOBAL const float *value, int D);
/* groups: N. dkey, dvalue may be NULL. */
KERNEL gpu_inject_backward(GLOBAL float *du, GLOBAL float *dkey, GLOBAL float *dvalue,
                           GLOBAL const float *dy, GLOBAL const float *alpha, GLOBAL const float *u,
                           GLOBAL const float *key, GLOBAL const float *value, int D);

/* ---- lanes.cu -------------------------------------------------------------------------------- */

/* S[n,i,:] = x[n,:] / divisor. groups: N. */
KERNEL gpu_lanes_spread(GLOBAL float *RESTRICT S, GLOBAL const float *RESTRICT x, float divisor,
                        int lanes, int D);
/* x[n,:] = sum_i S[n,i,:] / divisor. groups: N. */
KERNEL gpu_lanes_sum(GLOBAL float *RESTRICT x, GLOBAL const float *RESTRICT S, float divisor,
                     int lanes, int D);

/* ---- quant.cu -------------------------------------------------------------------------------- */

/* groups: N. */
KERNEL gpu_round_a8(GLOBAL float *y, GLOBAL const float *x, int C);
/* Groups lie along the columns, so that rows are outputs and columns inputs, or (columns) the other
 * way. index, norm may be NULL. groups: UP(outputs, GPU_CODE_OUTPUTS) by UP(inputs, GPU_CODE_INPUTS). */
KERNEL gpu_round_code(GLOBAL float *y, GLOBAL gpu_u8 *index, GLOBAL float *norm,
                      GLOBAL const float *w, GLOBAL const float *code_values, int code_count,
                      int code_group, int rows, int cols, int columns);

/* ---- merge.cu -------------------------------------------------------------------------------- */

/* Outputs and inputs as in round_code. code_group 0: not rounded. A, B may be NULL where rank is 0.
 * groups: UP(outputs, GPU_CODE_OUTPUTS) by UP(inputs, GPU_CODE_INPUTS). */
KERNEL gpu_merge(GLOBAL float *y, GLOBAL const gpu_u8 *values, GLOBAL const float *A,
                 GLOBAL const float *B, GLOBAL const float *code_values, int code_count,
                 int code_group, int storage, int aligned, float scale, int rows, int cols,
                 int rank, int columns);

#endif

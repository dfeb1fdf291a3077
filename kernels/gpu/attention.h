/*
 * attention: the kernels of heads, attention and cross-entropy, with their arguments and grids.
 *
 * Purpose    What a host side launches; each kernel's file includes it, so that they cannot differ.
 * Ownership  Pointers are device memory.
 * Threads    One launch after the other on one stream, in the order the comments state.
 * Failure    None here.
 *
 * "groups" is the grid, "by" its second dimension; UP(a, b) = a / b rounded up.
 */
#ifndef NEEDLED_GPU_ATTENTION_H
#define NEEDLED_GPU_ATTENTION_H

#include "kernels/gpu/kernels.h"

/* ---- heads.cu: taps are gpu_taps_*, codes gpu_round_code (rows.h) ----------------------------- */

#define GPU_HEADS 16 /* heads of one group */

/* gain (and r, depth, cosines, sines) NULL: neither norm nor rotation. y may be t.
 * groups: UP(rows, GPU_HEADS), rows = N H. */
KERNEL gpu_heads_forward(GLOBAL float *y, GLOBAL float *r, GLOBAL const float *t,
                         GLOBAL const float *gain, GLOBAL const float *cosines,
                         GLOBAL const float *sines, GLOBAL const int *depth, gpu_size rows, int H,
                         int C, int rounding);
/* With a gain. groups: UP(rows, GPU_HEADS). */
KERNEL gpu_heads_backward(GLOBAL float *RESTRICT dt, GLOBAL const float *RESTRICT dy,
                          GLOBAL const float *RESTRICT t, GLOBAL const float *RESTRICT gain,
                          GLOBAL const float *RESTRICT r, GLOBAL const float *RESTRICT cosines,
                          GLOBAL const float *RESTRICT sines, GLOBAL const int *RESTRICT depth,
                          gpu_size rows, int H, int C);
/* partials [B,C] is set, each from `share` rows. groups: UP(C, GPU_HEADS) by UP(rows, share) = B. */
KERNEL gpu_heads_gain_partials(GLOBAL float *RESTRICT partials, GLOBAL const float *RESTRICT dy,
                               GLOBAL const float *RESTRICT t, GLOBAL const float *RESTRICT r,
                               GLOBAL const float *RESTRICT cosines,
                               GLOBAL const float *RESTRICT sines, GLOBAL const int *RESTRICT depth,
                               gpu_size rows, gpu_size share, int H, int C);

/* ---- attention.cu, attention_backward.cu ----------------------------------------------------- */

#define ATTENTION_TILE 64 /* tokens to a tile */

/* tiles [UP(N, ATTENTION_TILE), 4] is set: before all others.
 * groups: UP(UP(N, ATTENTION_TILE), GROUP_SIZE). */
KERNEL gpu_attention_tiles(GLOBAL int *tiles, GLOBAL const int *parent, GLOBAL const int *depth,
                           GLOBAL const int *run, GLOBAL const int *end, int N);
/* groups: UP(N, ATTENTION_TILE) by H UP(V, ATTENTION_TILE). */
KERNEL gpu_attention_forward(GLOBAL float *o, GLOBAL float *lse, GLOBAL const float *q,
                             GLOBAL const float *k, GLOBAL const float *v, GLOBAL const int *depth,
                             GLOBAL const int *end, GLOBAL const int *tiles, int N, int H, int G,
                             int C, int V, int window, float scale);
/* dots [rows] is set, rows = N H: before the next two. groups: UP(rows, GPU_HEADS). */
KERNEL gpu_attention_dots(GLOBAL float *dots, GLOBAL const float *dout, GLOBAL const float *o,
                          gpu_size rows, int V);
/* groups: UP(N, ATTENTION_TILE) by H UP(C, ATTENTION_TILE). */
KERNEL gpu_attention_backward_q(GLOBAL float *dq, GLOBAL const float *dout,
                                GLOBAL const float *dots, GLOBAL const float *lse,
                                GLOBAL const float *q, GLOBAL const float *k, GLOBAL const float *v,
                                GLOBAL const int *depth, GLOBAL const int *end,
                                GLOBAL const int *tiles, int N, int H, int G, int C, int V,
                                int window, float scale);
/* groups: UP(N, ATTENTION_TILE) by G UP(max(C, V), ATTENTION_TILE). */
KERNEL gpu_attention_backward_kv(GLOBAL float *dk, GLOBAL float *dv, GLOBAL const float *dout,
                                 GLOBAL const float *dots, GLOBAL const float *lse,
                                 GLOBAL const float *q, GLOBAL const float *k,
                                 GLOBAL const float *v, GLOBAL const int *depth,
                                 GLOBAL const int *end, GLOBAL const int *tiles, int N, int H,
                                 int G, int C, int V, int window, float scale);

/* ---- cross_entropy.cu: products of a block of targets and a tile of the vocabulary are matmuls - */

/* rows [targets,D] = x[row[m],:]. groups: targets. */
KERNEL gpu_entropy_gather(GLOBAL float *RESTRICT rows, GLOBAL const float *RESTRICT x,
                          GLOBAL const int *RESTRICT row, int D);
/* Looks at columns first ... first + width - 1 of the logits; first is 0 in the first call. largest,
 * total, wanted and best [targets] hold what was seen. groups: targets. */
KERNEL gpu_entropy_look(GLOBAL float *RESTRICT largest, GLOBAL float *RESTRICT total,
                        GLOBAL float *RESTRICT wanted, GLOBAL int *RESTRICT best,
                        GLOBAL const float *RESTRICT logits, GLOBAL const int *RESTRICT label,
                        int first, int width);
/* After the last look. total may be read on. groups: UP(targets, GROUP_SIZE). */
KERNEL gpu_entropy_loss(GLOBAL float *RESTRICT loss, GLOBAL float *RESTRICT hit,
                        GLOBAL const float *RESTRICT largest, GLOBAL const float *RESTRICT total,
                        GLOBAL const float *RESTRICT wanted, GLOBAL const int *RESTRICT best,
                        GLOBAL const int *RESTRICT label, int targets);
/* logits become their gradients. groups: UP(width, GROUP_SIZE) by targets. */
KERNEL gpu_entropy_gradient(GLOBAL float *RESTRICT logits, GLOBAL const float *RESTRICT largest,
                            GLOBAL const float *RESTRICT total, GLOBAL const int *RESTRICT label,
                            GLOBAL const float *RESTRICT weight, float gradient_scale, int first,
                            int width);
/* dx[row[m],:] += rows[m,:], m ascending. groups: targets. */
KERNEL gpu_entropy_scatter(GLOBAL float *RESTRICT dx, GLOBAL const float *RESTRICT rows,
                           GLOBAL const int *RESTRICT row, int targets, int D);

#endif

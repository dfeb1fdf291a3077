/*
 * blocks: the kernels of the Monarch layer and of hyper-connections; as kernels.h.
 *
 * Purpose    What a host side launches; each kernel's file includes it, so that they cannot differ.
 * Ownership  Pointers are device memory.
 * Threads    One launch after the other on one stream, in the order the comments state.
 * Failure    None here.
 *
 * "groups" is the grid; UP(a, b) = a / b rounded up.
 */
#ifndef NEEDLED_GPU_BLOCKS_H
#define NEEDLED_GPU_BLOCKS_H

#include "kernels/gpu/kernels.h"

/* ---- dots.cu --------------------------------------------------------------------------------- */

/* Tokens whose share of a product of columns is summed by one group, and its square of them. */
#define GPU_PAIR_TOKENS 32
#define GPU_PAIR_TILE 32

/* partials[b,c] = sum of x[n,c] y[n,c] over a block of rows, y NULL: of x[n,c]. Rows stand x_stride
 * and y_stride apart. groups: UP(C, GROUP_SIZE) by UP(N, GPU_PARTIAL_ROWS) = B. */
KERNEL gpu_column_dots(GLOBAL float *partials, GLOBAL const float *x, int x_stride,
                       GLOBAL const float *y, int y_stride, int N, int C);

/* ---- monarch.cu: N tokens, P = a b values each ----------------------------------------------- */

#define GPU_FACTOR_VECTORS 128
#define GPU_FACTOR_OUTPUTS 32

/* inverse[permutation[i]] = i. groups: UP(P, GROUP_SIZE). */
KERNEL gpu_monarch_inverse(GLOBAL int *inverse, GLOBAL const int *permutation, int P);

/* m [N,rank]. groups: N. */
KERNEL gpu_monarch_condition(GLOBAL float *m, GLOBAL const float *x, GLOBAL const float *cond_v,
                             int D, int rank);

/*
 * One factor of a Kronecker product: along b with step 1, size b and a others; along a with step b,
 * size a and b others. others = 1 << others_shift, V = N others.
 *   value(n, i)    = in_scale[c] in[n in_stride + c], c = in_place[i]; 0 from c = in_count on
 *   out(n, [o, m]) = skip + out_scale[i] sum_k value(n, [o, k]) w[k, m]      i = [o, m], at
 *                    n out_stride + out_place[i]; nothing from i = out_count on
 * with w[m, k] when back. Scales, places and skip may be NULL: 1, i, 0. skip is laid out as out and
 * may be it. groups: UP(V, GPU_FACTOR_VECTORS) by UP(size, GPU_FACTOR_OUTPUTS).
 */
KERNEL gpu_monarch_factor(GLOBAL float *out, GLOBAL const float *skip,
                          GLOBAL const float *out_scale, GLOBAL const int *out_place,
                          int out_stride, int out_count, GLOBAL const float *in,
                          GLOBAL const float *in_scale, GLOBAL const int *in_place, int in_stride,
                          int in_count, GLOBAL const float *w, int back, int size, int step,
                          int others_shift, int V);

/* in2 from z1, in whose place it may stand. groups: N by UP(P, GROUP_SIZE). */
KERNEL gpu_monarch_activate(GLOBAL float *in2, GLOBAL const float *z1, GLOBAL const float *m,
                            GLOBAL const float *cond_u, GLOBAL const float *d2,
                            GLOBAL const float *b2, int P, int rank);

/* From dc, which holds the gradient of in2: dc, e dc and z1 dc, which may stand where z1 stood.
 * groups: N by UP(P, GROUP_SIZE). */
KERNEL gpu_monarch_slope(GLOBAL float *dc, GLOBAL float *e_dc, GLOBAL float *z1_dc,
                         GLOBAL const float *z1, GLOBAL const float *m, GLOBAL const float *cond_u,
                         GLOBAL const float *d2, GLOBAL const float *b2, int P, int rank);

/* da [N,rank]. groups: N. */
KERNEL gpu_monarch_condition_backward(GLOBAL float *da, GLOBAL const float *m,
                                      GLOBAL const float *z1_dc, GLOBAL const float *d2,
                                      GLOBAL const float *cond_u, int P, int rank);

/* dx from dz1, the gradient of the first product's input. groups: N by UP(D, GROUP_SIZE). */
KERNEL gpu_monarch_input(GLOBAL float *dx, GLOBAL const float *dz1, GLOBAL const float *d1,
                         GLOBAL const float *cond_v, GLOBAL const float *da, int D, int P,
                         int rank);

/*
 * partials[b,p,q] = sum over a block of tokens n and over t of left(n, p, t) right(n, q, t)
 *   left(n, p, t)  = left[n left_stride + p step + t t_step]
 *   right(n, q, t) = right_scale[c] right[n right_stride + c], c = right_place[q step + t t_step];
 *                    0 from c = right_count on
 * p < rows, q < columns, t < 1 << t_shift; scale and place may be NULL. groups: UP(rows,
 * GPU_PAIR_TILE) UP(columns, GPU_PAIR_TILE) by UP(N, GPU_PAIR_TOKENS) = B.
 */
KERNEL gpu_monarch_pairs(GLOBAL float *partials, GLOBAL const float *left, int left_stride,
                         GLOBAL const float *right, GLOBAL const float *right_scale,
                         GLOBAL const int *right_place, int right_stride, int right_count, int rows,
                         int columns, int step, int t_shift, int t_step, int N);

/* ---- hyper.cu: N tokens, n lanes, width W = n D, M = 2 n + n n coefficients ------------------ */

#define GPU_LANES_MAX 8
#define GPU_SINKHORN_ROUNDS 20
#define GPU_HYPER_TOKENS 64         /* of a group that makes raw */
#define GPU_HYPER_BACKWARD_TOKENS 8 /* of one that makes dS */
#define GPU_HYPER_PHI_TOKENS 512    /* of one that adds up dphi */

/* r [N]; step [N], the step of the token's 8-bit grid, or 0 without rounding. groups: N. */
KERNEL gpu_hyper_norm(GLOBAL float *r, GLOBAL float *step, GLOBAL const float *S, int W,
                      int rounding);
/* raw [N,M]. groups: UP(N, GPU_HYPER_TOKENS) by UP(M, 32). */
KERNEL gpu_hyper_raw(GLOBAL float *raw, GLOBAL const float *S, GLOBAL const float *r,
                     GLOBAL const float *step, GLOBAL const float *phi, int N, int W, int M);
/* h [N,M]. groups: UP(N, GROUP_SIZE). */
KERNEL gpu_hyper_coefficients(GLOBAL float *h, GLOBAL const float *raw, GLOBAL const float *scale,
                              GLOBAL const float *bias, int N, int lanes);
/* u [N,D]. groups: N by UP(D, GROUP_SIZE). */
KERNEL gpu_hyper_mix(GLOBAL float *u, GLOBAL const float *S, GLOBAL const float *h, int lanes,
                     int D);

/* The pre part of dl [N,M] becomes dpre. groups: N. */
KERNEL gpu_hyper_pre_backward(GLOBAL float *dl, GLOBAL const float *du, GLOBAL const float *S,
                              int lanes, int D);
/* dl [N,M] from that and the rest of dh. offsets: scratch of 2 GPU_SINKHORN_ROUNDS lanes N floats.
 * groups: UP(N, GROUP_SIZE). */
KERNEL gpu_hyper_coefficients_backward(GLOBAL float *dl, GLOBAL float *offsets,
                                       GLOBAL const float *dh, GLOBAL const float *h,
                                       GLOBAL const float *raw, GLOBAL const float *scale,
                                       GLOBAL const float *bias, int N, int lanes);
/* dS += . groups: UP(N, GPU_HYPER_BACKWARD_TOKENS). */
KERNEL gpu_hyper_read_backward(GLOBAL float *dS, GLOBAL const float *du, GLOBAL const float *dl,
                               GLOBAL const float *S, GLOBAL const float *h, GLOBAL const float *r,
                               GLOBAL const float *phi, GLOBAL const float *scale, int N, int lanes,
                               int D);
/* partials [B,W,M] of dphi. groups: UP(W, 32) UP(M, 32) by UP(N, GPU_HYPER_PHI_TOKENS) = B. */
KERNEL gpu_hyper_phi_partials(GLOBAL float *partials, GLOBAL const float *S, GLOBAL const float *r,
                              GLOBAL const float *step, GLOBAL const float *dl,
                              GLOBAL const float *scale, int N, int W, int lanes);
/* dscale[k] += sum over B rows and the columns of part k of partials [B,M]. groups: 3. */
KERNEL gpu_hyper_scale_backward(GLOBAL float *dscale, GLOBAL const float *partials, int B,
                                int lanes);

/* ---- hyper_write.cu -------------------------------------------------------------------------- */

/* T [N,n,D]. groups: N by UP(D, GROUP_SIZE). */
KERNEL gpu_hyper_write_forward(GLOBAL float *T, GLOBAL const float *S, GLOBAL const float *h,
                               GLOBAL const float *y, GLOBAL const float *u, int lanes, int D);
/* dh [N,M], its pre part 0; before the next, whose dS may stand where dT stood. groups: N. */
KERNEL gpu_hyper_write_coefficients(GLOBAL float *dh, GLOBAL const float *dT, GLOBAL const float *S,
                                    GLOBAL const float *y, GLOBAL const float *u, int lanes, int D);
/* dS [N,n,D], dy [N,D]. groups: N by UP(D, GROUP_SIZE). */
KERNEL gpu_hyper_write_backward(GLOBAL float *dS, GLOBAL float *dy, GLOBAL const float *dT,
                                GLOBAL const float *h, int lanes, int D);

#endif

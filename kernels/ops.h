/*
 * ops: every operation a backend must have, in one list.
 *
 * Purpose    OPS(OP) names each op with its parameters; backend.h makes the call and the table out
 *            of it, each backend its entry: an op without an implementation does not compile.
 * Ownership  Ops own nothing. Pointers are device addresses from backend_alloc unless a struct says
 *            host; structs themselves are host memory, read during the call.
 * Threads    See backend.h.
 * Failure    None: shapes are asserted, device faults are kept and reported by backend_sync.
 *
 * Notation   N rows (tokens of a micro-batch), D model width, H heads, G key/value heads, C head
 *            size of q and k, V head size of v, n lanes. Arrays are float32, row-major, dense.
 *            "=" sets, "+=" accumulates. Gradients of weights are "+=" and may be NULL (not
 *            wanted). The formula of each op stands at the top of kernels/ref/<op>.c.
 */
#ifndef NEEDLED_OPS_H
#define NEEDLED_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The tokens of a micro-batch form a forest, each line of the data a path from a root. Tokens are
 * numbered in preorder: a parent comes before its children and a subtree is contiguous. So
 *   j is i or an ancestor of i  <=>  j <= i && i < end[j];
 *   the children of n are m = n + 1, end[m], end[end[m]], ... while m < end[n];
 *   between run[i] and i every token is the parent of the next.
 * Arrays are device memory, [token_count].
 */
struct tree {
    size_t token_count;
    const int32_t *parent; /* -1 at a root */
    const int32_t *depth;  /* 0 at a root; the position for rotary angles and windows */
    const int32_t *run;    /* first token of the longest chain of neighbours that ends here */
    const int32_t *end;    /* one past the last descendant */
};

/* C = alpha op(A) op(B) + beta C, op(A) [M,K], op(B) [K,N]; ld* are row strides in elements. */
struct matmul {
    size_t M, N, K;
    bool transpose_a, transpose_b;
    size_t lda, ldb, ldc;
    float alpha, beta;
};

/* Rounding to a grid on the way out; the gradient passes straight through (kernels/ref/quant.c). */
enum rounding {
    ROUND_NONE = 0,
    ROUND_A8 = 8,  /* 8 bits, one scale a row (a head, for per-head ops) */
    ROUND_CODE = 1 /* Walsh-Hadamard and nearest of `code_count` code values, groups of `group` */
};

struct codebook {
    const float *values; /* device, ascending, already divided by sqrt(group) */
    size_t count;        /* 4, 8 or 16 */
    size_t group;        /* power of two, up to 128; rows are zero-padded to whole groups */
};

/* A frozen array as its file stores it, converted and rounded where it is read. */
enum storage { STORAGE_F32, STORAGE_F16, STORAGE_BF16 };

struct table {
    const void *values; /* device, or from backend_import; aligned to nothing */
    enum storage storage;
    const struct codebook *codebook; /* host; NULL: values are not rounded */
};

/* Queries, keys or values from their projection to what attention reads. */
struct heads {
    size_t head_count, head_size; /* x and y are [N, head_count, head_size] */
    size_t tap_count;             /* 0: no taps */
    const float *taps;            /* [tap_count, head_count * head_size] */
    const float *gain;            /* [head_size]; NULL: neither norm nor rotation (values) */
    const float *cos, *sin;       /* [positions, head_size / 2] */
    enum rounding rounding;
    struct codebook codebook; /* for ROUND_CODE */
};

struct attention {
    size_t head_count, kv_head_count, qk_size, v_size;
    size_t window; /* a token sees ancestors fewer than this many positions back; 0: all */
    float scale;   /* 1 / sqrt(qk_size) */
};

/* Width D is padded to P, the next power of two; P = a * b. Ranks and factors as in ref/monarch.c.
 */
struct monarch {
    size_t D, P, a, b, rank;
    const float *w1a, *w1b, *w2a, *w2b, *w3a, *w3b; /* [a,a] and [b,b] */
    const float *d1, *d2, *b2, *d3, *d4;            /* [P] */
    const float *cond_v, *cond_u;                   /* [D,rank], [rank,P] */
    const int32_t *p1, *p2;                         /* [P] */
};
struct monarch_gradients { /* all NULL, or all set; += */
    float *w1a, *w1b, *w2a, *w2b, *w3a, *w3b, *d1, *d2, *b2, *d3, *d4, *cond_v, *cond_u;
};

/* M = 2 n + n n coefficients a token: pre [n], post [n], res [n,n], in this order everywhere. */
struct hyper {
    size_t lanes, D;
    const float *phi;   /* [n D, M] */
    const float *bias;  /* [M], offsets of the layer's lane included */
    const float *scale; /* [3]: of pre, post, res */
    enum rounding rounding;
};
struct hyper_gradients { /* all NULL, or all set; += */
    float *phi, *bias, *scale;
};

struct adamw {
    float learning_rate, epsilon, weight_decay;
    double beta1, beta2;            /* double: 1 - 0.999f is not 0.001f */
    float correction1, correction2; /* 1 - beta^t */
    float gradient_divisor;         /* the clipped norm, or 1 */
};

/* clang-format off */
#define OPS(OP) \
    /* C = alpha op(A) op(B) + beta C */ \
    OP(matmul, (float *C, const float *A, const float *B, const struct matmul *shape), \
               (C, A, B, shape)) \
    /* y += scale x */ \
    OP(add_scaled, (float *y, const float *x, float scale, size_t count), (y, x, scale, count)) \
    /* x[n,:] = scale table[tokens[n],:] */ \
    OP(embed_forward, (float *x, const float *table, const uint32_t *tokens, float scale, \
                       size_t N, size_t D), (x, table, tokens, scale, N, D)) \
    /* dtable += */ \
    OP(embed_backward, (float *dtable, const float *dx, const uint32_t *tokens, float scale, \
                        size_t N, size_t D), (dtable, dx, tokens, scale, N, D)) \
    /* y[n, t sub ...] = table[t, index[n,t], :] (0 where the index is -1), each such row on the table's \
       grid, then rounded per row n */ \
    OP(gather_forward, (float *y, const struct table *table, const int32_t *index, size_t N, \
                        size_t tables, size_t slots, size_t sub, enum rounding rounding), \
                       (y, table, index, N, tables, slots, sub, rounding)) \
    OP(gather_backward, (float *dtable, const float *dy, const int32_t *index, size_t N, \
                         size_t tables, size_t slots, size_t sub), \
                        (dtable, dy, index, N, tables, slots, sub)) \
    /* y[n,c] = sum_j taps[j,c] x[ancestor(n, j dilation), c]; dx = */ \
    OP(taps_forward, (float *y, const float *x, const float *taps, const struct tree *tree, \
                      size_t C, size_t tap_count, size_t dilation), \
                     (y, x, taps, tree, C, tap_count, dilation)) \
    OP(taps_backward, (float *dx, float *dtaps, const float *dy, const float *x, \
                       const float *taps, const struct tree *tree, size_t C, size_t tap_count, \
                       size_t dilation), (dx, dtaps, dy, x, taps, tree, C, tap_count, dilation)) \
    /* y = round((1 + gain) x r); r [N] kept; dx = */ \
    OP(rmsnorm_forward, (float *y, float *r, const float *x, const float *gain, size_t N, \
                         size_t C, enum rounding rounding), (y, r, x, gain, N, C, rounding)) \
    OP(rmsnorm_backward, (float *dx, float *dgain, const float *dy, const float *x, \
                          const float *gain, const float *r, size_t N, size_t C), \
                         (dx, dgain, dy, x, gain, r, N, C)) \
    /* taps, head norm, rotation, rounding. t [N,H,C] is the tapped x (NULL without taps), r [N,H] \
       (NULL without norm): kept for backward; dx = */ \
    OP(heads_forward, (float *y, float *t, float *r, const float *x, const struct heads *heads, \
                       const struct tree *tree), (y, t, r, x, heads, tree)) \
    /* dx may not alias dy. t is x where there are no taps. */ \
    OP(heads_backward, (float *dx, float *dtaps, float *dgain, const float *dy, const float *x, \
                        const float *t, const float *r, const struct heads *heads, \
                        const struct tree *tree), (dx, dtaps, dgain, dy, x, t, r, heads, tree)) \
    /* o [N,H,V], lse [N,H] = log of the softmax's denominator, kept for backward */ \
    OP(attention_forward, (float *o, float *lse, const float *q, const float *k, const float *v, \
                           const struct attention *shape, const struct tree *tree), \
                          (o, lse, q, k, v, shape, tree)) \
    /* dq dk dv = */ \
    OP(attention_backward, (float *dq, float *dk, float *dv, const float *dout, const float *o, \
                            const float *lse, const float *q, const float *k, const float *v, \
                            const struct attention *shape, const struct tree *tree), \
                           (dq, dk, dv, dout, o, lse, q, k, v, shape, tree)) \
    /* y = round(x sigmoid(gate)) per row of C; dx dgate = */ \
    OP(gate_forward, (float *y, const float *x, const float *gate, size_t N, size_t C, \
                      enum rounding rounding), (y, x, gate, N, C, rounding)) \
    OP(gate_backward, (float *dx, float *dgate, const float *dy, const float *x, \
                       const float *gate, size_t N, size_t C), (dx, dgate, dy, x, gate, N, C)) \
    /* y = skip + sigmoid(gate[0]) (1 + gain) x r; r [N] kept; dx =, dgain dgate +=; d skip is dy */ \
    OP(residual_norm_forward, (float *y, float *r, const float *skip, const float *x, \
                               const float *gain, const float *gate, size_t N, size_t C), \
                              (y, r, skip, x, gain, gate, N, C)) \
    OP(residual_norm_backward, (float *dx, float *dgain, float *dgate, const float *dy, \
                                const float *x, const float *gain, const float *gate, \
                                const float *r, size_t N, size_t C), \
                               (dx, dgain, dgate, dy, x, gain, gate, r, N, C)) \
    /* y = skip + f(x); dx =; d skip is dy; backward computes again what it needs */ \
    OP(monarch_forward, (float *y, const float *skip, const float *x, \
                         const struct monarch *weights, size_t N), (y, skip, x, weights, N)) \
    OP(monarch_backward, (float *dx, const struct monarch_gradients *gradients, const float *dy, \
                          const float *x, const struct monarch *weights, size_t N), \
                         (dx, gradients, dy, x, weights, N)) \
    /* u [N,D] = sum_i pre[i] S[i]; h [N,M] = pre, post, res; raw [N,M] = nx phi and r [N] kept */ \
    OP(hyper_read_forward, (float *u, float *h, float *raw, float *r, const float *S, \
                            const struct hyper *weights, size_t N), \
                           (u, h, raw, r, S, weights, N)) \
    /* the u of hyper_read_forward alone, bit for bit, from the h it left */ \
    OP(hyper_mix, (float *u, const float *S, const float *h, size_t N, size_t lanes, size_t D), \
                  (u, S, h, N, lanes, D)) \
    /* dS += ; dh [N,M] carries d post and d res in (from hyper_write_backward); d pre is made here */ \
    OP(hyper_read_backward, (float *dS, const struct hyper_gradients *gradients, const float *du, \
                             const float *dh, const float *S, const float *h, const float *raw, \
                             const float *r, const struct hyper *weights, size_t N), \
                            (dS, gradients, du, dh, S, h, raw, r, weights, N)) \
    /* T[i] = sum_j res[i,j] S[j] + post[i] (y - u); T may not alias S */ \
    OP(hyper_write_forward, (float *T, const float *S, const float *h, const float *y, \
                             const float *u, size_t N, size_t lanes, size_t D), \
                            (T, S, h, y, u, N, lanes, D)) \
    /* dS = (dS may be dT), dy = , dh = (pre part 0); du is -dy */ \
    OP(hyper_write_backward, (float *dS, float *dy, float *dh, const float *dT, const float *S, \
                              const float *h, const float *y, const float *u, size_t N, \
                              size_t lanes, size_t D), (dS, dy, dh, dT, S, h, y, u, N, lanes, D)) \
    /* S[n,i,:] = x[n,:]; dx = sum_i dS[i] */ \
    OP(lanes_spread_forward, (float *S, const float *x, size_t N, size_t lanes, size_t D), \
                             (S, x, N, lanes, D)) \
    OP(lanes_spread_backward, (float *dx, const float *dS, size_t N, size_t lanes, size_t D), \
                              (dx, dS, N, lanes, D)) \
    /* x = mean_i S[i]; dS[i] = dx / lanes */ \
    OP(lanes_mean_forward, (float *x, const float *S, size_t N, size_t lanes, size_t D), \
                           (x, S, N, lanes, D)) \
    OP(lanes_mean_backward, (float *dS, const float *dx, size_t N, size_t lanes, size_t D), \
                            (dS, dx, N, lanes, D)) \
    /* y = u + alpha value, alpha [N] = sigmoid(<unit u, unit key> / sqrt(D)) kept; du =, dkey \
       dvalue = (NULL: not wanted) */ \
    OP(inject_forward, (float *y, float *alpha, const float *u, const float *key, \
                        const float *value, size_t N, size_t D), (y, alpha, u, key, value, N, D)) \
    OP(inject_backward, (float *du, float *dkey, float *dvalue, const float *dy, \
                         const float *alpha, const float *u, const float *key, \
                         const float *value, size_t N, size_t D), \
                        (du, dkey, dvalue, dy, alpha, u, key, value, N, D)) \
    /* For target m: logits = x[row[m]] table^T, loss[m] = cross-entropy with label[m], hit[m] = 1 where \
       the label is the largest logit (first of equals). dx [N,D] = and dtable += the gradient of \
       gradient_scale sum_m weight[m] loss[m]; dx NULL: none wanted. row ascends; targets of one row \
       share its logits. Logits are never stored whole: tiles of targets. */ \
    OP(cross_entropy, (float *loss, float *hit, float *dx, float *dtable, const float *x, \
                       const float *table, const int32_t *row, const uint32_t *label, \
                       const float *weight, float gradient_scale, size_t targets, size_t N, \
                       size_t vocab, size_t D), \
                      (loss, hit, dx, dtable, x, table, row, label, weight, gradient_scale, \
                       targets, N, vocab, D)) \
    /* y = x rounded to 8 bits, a scale per row of C */ \
    OP(round_a8, (float *y, const float *x, size_t N, size_t C), (y, x, N, C)) \
    /* y = w + (code(w) - w), along the last axis, or the first when `columns` (a kernel's inputs). \
       index [groups, group] (uint8) and norm [groups] as float16 values, groups ordered by output \
       then along the axis: NULL when not wanted */ \
    OP(round_code, (float *y, uint8_t *index, float *norm, const float *w, \
                    const struct codebook *codebook, size_t rows, size_t cols, bool columns), \
                   (y, index, norm, w, codebook, rows, cols, columns)) \
    /* y = round(base + scale A B) on the base's grid, groups as in round_code; A [rows,rank], \
       B [rank,cols]; rank 0: the base alone */ \
    OP(merge, (float *y, const struct table *base, const float *A, const float *B, float scale, \
               size_t rows, size_t cols, size_t rank, bool columns), \
              (y, base, A, B, scale, rows, cols, rank, columns)) \
    /* sum[0] = sum x^2 in a fixed order */ \
    OP(sum_squares, (float *sum, const float *x, size_t count), (sum, x, count)) \
    /* AdamW with decoupled weight decay; m and v updated in place */ \
    OP(adamw, (float *p, float *m, float *v, const float *g, const struct adamw *step, \
               size_t count), (p, m, v, g, step, count))
/* clang-format on */

#endif

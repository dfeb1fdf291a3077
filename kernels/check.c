#include "kernels/check.h"

#include <assert.h>

/* Ops run over zero rows are allowed everywhere (a batch without targets); widths are not. */

static void check_tree(const struct tree *tree)
{
    assert(tree);
    assert(tree->parent);
    assert(tree->depth);
    assert(tree->run);
    assert(tree->end);
    assert(tree->token_count <= INT32_MAX);
}

static void check_codebook(const struct codebook *codebook)
{
    assert(codebook->values);
    assert(codebook->count == 4 || codebook->count == 8 || codebook->count == 16);
    assert(codebook->group > 0);
    assert(codebook->group <= 128);
    assert((codebook->group & (codebook->group - 1)) == 0);
}

static void check_table(const struct table *table)
{
    assert(table);
    assert(table->values);
    assert(table->storage <= STORAGE_BF16);
    if (table->codebook)
        check_codebook(table->codebook);
}

static void check_row_rounding(enum rounding rounding)
{
    assert(rounding == ROUND_NONE || rounding == ROUND_A8);
}

void check_matmul(float *C, const float *A, const float *B, const struct matmul *shape)
{
    assert(shape);
    assert(C || shape->M == 0 || shape->N == 0);
    assert((A && B) || shape->K == 0 || shape->M == 0 || shape->N == 0);
    assert(shape->ldc >= shape->N);
    assert(shape->lda >= (shape->transpose_a ? shape->M : shape->K));
    assert(shape->ldb >= (shape->transpose_b ? shape->K : shape->N));
    assert(C != A);
    assert(C != B);
}

void check_add_scaled(float *y, const float *x, float scale, size_t count)
{
    (void)scale;
    assert((y && x) || count == 0);
}

void check_embed_forward(float *x, const float *table, const uint32_t *tokens, float scale,
                         size_t N, size_t D)
{
    (void)scale;
    assert((x && tokens) || N == 0);
    assert(table);
    assert(D > 0);
}

void check_embed_backward(float *dtable, const float *dx, const uint32_t *tokens, float scale,
                          size_t N, size_t D)
{
    (void)dtable;
    (void)scale;
    assert((dx && tokens) || N == 0);
    assert(D > 0);
}

void check_gather_forward(float *y, const struct table *table, const int32_t *index, size_t N,
                          size_t tables, size_t slots, size_t sub, enum rounding rounding)
{
    assert((y && index) || N == 0);
    check_table(table);
    assert(tables > 0);
    assert(slots > 0);
    assert(sub > 0);
    check_row_rounding(rounding);
}

void check_gather_backward(float *dtable, const float *dy, const int32_t *index, size_t N,
                           size_t tables, size_t slots, size_t sub)
{
    (void)dtable;
    assert((dy && index) || N == 0);
    assert(tables > 0);
    assert(slots > 0);
    assert(sub > 0);
}

void check_taps_forward(float *y, const float *x, const float *taps, const struct tree *tree,
                        size_t C, size_t tap_count, size_t dilation)
{
    check_tree(tree);
    assert(y);
    assert(x);
    assert(taps);
    assert(y != x);
    assert(C > 0);
    assert(tap_count > 0);
    assert(dilation > 0);
}

void check_taps_backward(float *dx, float *dtaps, const float *dy, const float *x,
                         const float *taps, const struct tree *tree, size_t C, size_t tap_count,
                         size_t dilation)
{
    (void)dtaps;
    check_tree(tree);
    assert(dx);
    assert(dy);
    assert(x);
    assert(taps);
    assert(dx != dy);
    assert(C > 0);
    assert(tap_count > 0);
    assert(dilation > 0);
}

void check_rmsnorm_forward(float *y, float *r, const float *x, const float *gain, size_t N,
                           size_t C, enum rounding rounding)
{
    assert((y && r && x) || N == 0);
    assert(gain);
    assert(C > 0);
    check_row_rounding(rounding);
}

void check_rmsnorm_backward(float *dx, float *dgain, const float *dy, const float *x,
                            const float *gain, const float *r, size_t N, size_t C)
{
    (void)dgain;
    assert((dx && dy && x && r) || N == 0);
    assert(gain);
    assert(C > 0);
}

static void check_heads(const struct heads *heads)
{
    assert(heads);
    assert(heads->head_count > 0);
    assert(heads->head_size > 0);
    assert(heads->taps || heads->tap_count == 0);
    if (heads->gain) {
        assert(heads->cos);
        assert(heads->sin);
        assert(heads->head_size % 2 == 0);
    }
    if (heads->rounding == ROUND_CODE)
        check_codebook(&heads->codebook);
}

void check_heads_forward(float *y, float *t, float *r, const float *x, const struct heads *heads,
                         const struct tree *tree)
{
    check_tree(tree);
    check_heads(heads);
    assert(y);
    assert(x);
    assert(t || heads->tap_count == 0);
    assert(r || !heads->gain);
    assert(heads->tap_count == 0 || (t != x && y != x));
}

void check_heads_backward(float *dx, float *dtaps, float *dgain, const float *dy, const float *x,
                          const float *t, const float *r, const struct heads *heads,
                          const struct tree *tree)
{
    (void)dtaps;
    (void)dgain;
    check_tree(tree);
    check_heads(heads);
    assert(dx);
    assert(dy);
    assert(dx != dy);
    assert(x || heads->tap_count == 0);
    assert(t || !heads->gain);
    assert(r || !heads->gain);
}

static void check_attention(const struct attention *shape, const struct tree *tree)
{
    check_tree(tree);
    assert(shape);
    assert(shape->kv_head_count > 0);
    assert(shape->head_count >= shape->kv_head_count);
    assert(shape->head_count % shape->kv_head_count == 0);
    assert(shape->qk_size > 0);
    assert(shape->v_size > 0);
}

void check_attention_forward(float *o, float *lse, const float *q, const float *k, const float *v,
                             const struct attention *shape, const struct tree *tree)
{
    check_attention(shape, tree);
    assert(o);
    assert(lse);
    assert(q);
    assert(k);
    assert(v);
    assert(o != q && o != k && o != v);
}

void check_attention_backward(float *dq, float *dk, float *dv, const float *dout, const float *o,
                              const float *lse, const float *q, const float *k, const float *v,
                              const struct attention *shape, const struct tree *tree)
{
    check_attention(shape, tree);
    assert(dq && dk && dv);
    assert(dout && o && lse);
    assert(q && k && v);
    assert(dq != q && dq != dout);
    assert(dk != k);
    assert(dv != v);
}

void check_gate_forward(float *y, const float *x, const float *gate, size_t N, size_t C,
                        enum rounding rounding)
{
    assert((y && x && gate) || N == 0);
    assert(C > 0);
    check_row_rounding(rounding);
}

void check_gate_backward(float *dx, float *dgate, const float *dy, const float *x,
                         const float *gate, size_t N, size_t C)
{
    assert((dx && dgate && dy && x && gate) || N == 0);
    assert(dx != dgate || N == 0);
    assert(C > 0);
}

void check_residual_norm_forward(float *y, float *r, const float *skip, const float *x,
                                 const float *gain, const float *gate, size_t N, size_t C)
{
    assert((y && r && skip && x) || N == 0);
    assert(gain);
    assert(gate);
    assert(C > 0);
}

void check_residual_norm_backward(float *dx, float *dgain, float *dgate, const float *dy,
                                  const float *x, const float *gain, const float *gate,
                                  const float *r, size_t N, size_t C)
{
    (void)dgain;
    (void)dgate;
    assert((dx && dy && x && r) || N == 0);
    assert(gain);
    assert(gate);
    assert(C > 0);
}

static void check_monarch(const struct monarch *weights)
{
    assert(weights);
    assert(weights->D > 0);
    assert(weights->P >= weights->D);
    assert(weights->P / 2 < weights->D);
    assert((weights->P & (weights->P - 1)) == 0);
    assert(weights->a * weights->b == weights->P);
    assert(weights->rank > 0);
    assert(weights->w1a && weights->w1b);
    assert(weights->w2a && weights->w2b);
    assert(weights->w3a && weights->w3b);
    assert(weights->d1 && weights->d2 && weights->b2 && weights->d3 && weights->d4);
    assert(weights->cond_v && weights->cond_u);
    assert(weights->p1 && weights->p2);
}

void check_monarch_forward(float *y, const float *skip, const float *x,
                           const struct monarch *weights, size_t N)
{
    check_monarch(weights);
    assert((y && skip && x) || N == 0);
}

void check_monarch_backward(float *dx, const struct monarch_gradients *gradients, const float *dy,
                            const float *x, const struct monarch *weights, size_t N)
{
    check_monarch(weights);
    assert((dx && dy && x) || N == 0);
    if (gradients && gradients->w1a) {
        assert(gradients->w1b);
        assert(gradients->w2a && gradients->w2b);
        assert(gradients->w3a && gradients->w3b);
        assert(gradients->d1 && gradients->d2 && gradients->b2);
        assert(gradients->d3 && gradients->d4);
        assert(gradients->cond_v && gradients->cond_u);
    }
}

static void check_hyper(const struct hyper *weights)
{
    assert(weights);
    assert(weights->lanes > 0);
    assert(weights->D > 0);
    assert(weights->phi);
    assert(weights->bias);
    assert(weights->scale);
    check_row_rounding(weights->rounding);
}

void check_hyper_read_forward(float *u, float *h, float *raw, float *r, const float *S,
                              const struct hyper *weights, size_t N)
{
    check_hyper(weights);
    assert((u && h && raw && r && S) || N == 0);
    assert(u != S || N == 0);
    assert(h != raw || N == 0);
}

void check_hyper_mix(float *u, const float *S, const float *h, size_t N, size_t lanes, size_t D)
{
    assert((u && S && h) || N == 0);
    assert(u != S || N == 0);
    assert(lanes > 0);
    assert(D > 0);
}

void check_hyper_read_backward(float *dS, const struct hyper_gradients *gradients, const float *du,
                               const float *dh, const float *S, const float *h, const float *raw,
                               const float *r, const struct hyper *weights, size_t N)
{
    check_hyper(weights);
    assert((dS && du && dh && S && h && raw && r) || N == 0);
    assert(dS != S || N == 0);
    if (gradients && gradients->phi) {
        assert(gradients->bias);
        assert(gradients->scale);
    }
}

void check_hyper_write_forward(float *T, const float *S, const float *h, const float *y,
                               const float *u, size_t N, size_t lanes, size_t D)
{
    assert((T && S && h && y && u) || N == 0);
    assert(T != S || N == 0);
    assert(lanes > 0);
    assert(D > 0);
}

void check_hyper_write_backward(float *dS, float *dy, float *dh, const float *dT, const float *S,
                                const float *h, const float *y, const float *u, size_t N,
                                size_t lanes, size_t D)
{
    assert((dS && dy && dh && dT && S && h && y && u) || N == 0);
    assert(dS != S || N == 0);
    assert(lanes > 0);
    assert(D > 0);
}

void check_lanes_spread_forward(float *S, const float *x, size_t N, size_t lanes, size_t D)
{
    assert((S && x) || N == 0);
    assert(S != x || N == 0);
    assert(lanes > 0);
    assert(D > 0);
}

void check_lanes_spread_backward(float *dx, const float *dS, size_t N, size_t lanes, size_t D)
{
    assert((dx && dS) || N == 0);
    assert(dx != dS || N == 0);
    assert(lanes > 0);
    assert(D > 0);
}

void check_lanes_mean_forward(float *x, const float *S, size_t N, size_t lanes, size_t D)
{
    check_lanes_spread_backward(x, S, N, lanes, D); /* the same shapes */
}

void check_lanes_mean_backward(float *dS, const float *dx, size_t N, size_t lanes, size_t D)
{
    check_lanes_spread_forward(dS, dx, N, lanes, D);
}

void check_inject_forward(float *y, float *alpha, const float *u, const float *key,
                          const float *value, size_t N, size_t D)
{
    assert((y && alpha && u && key && value) || N == 0);
    assert(D > 0);
}

void check_inject_backward(float *du, float *dkey, float *dvalue, const float *dy,
                           const float *alpha, const float *u, const float *key, const float *value,
                           size_t N, size_t D)
{
    (void)dkey;
    (void)dvalue;
    assert((du && dy && alpha && u && key && value) || N == 0);
    assert(D > 0);
}

void check_cross_entropy(float *loss, float *hit, float *dx, float *dtable, const float *x,
                         const float *table, const int32_t *row, const uint32_t *label,
                         const float *weight, float gradient_scale, size_t targets, size_t N,
                         size_t vocab, size_t D)
{
    (void)dtable;
    (void)gradient_scale;
    assert((loss && hit && row && label && weight) || targets == 0);
    assert(x || N == 0);
    assert(table);
    assert(dx != x || N == 0);
    assert(targets == 0 || N > 0);
    assert(vocab > 0);
    assert(D > 0);
}

void check_round_a8(float *y, const float *x, size_t N, size_t C)
{
    assert((y && x) || N == 0);
    assert(C > 0);
}

void check_round_code(float *y, uint8_t *index, float *norm, const float *w,
                      const struct codebook *codebook, size_t rows, size_t cols, bool columns)
{
    (void)index;
    (void)norm;
    (void)columns;
    assert(codebook);
    check_codebook(codebook);
    assert((y && w) || rows == 0);
    assert(cols > 0);
}

void check_merge(float *y, const struct table *base, const float *A, const float *B, float scale,
                 size_t rows, size_t cols, size_t rank, bool columns)
{
    (void)scale;
    (void)columns;
    check_table(base);
    assert(y || rows == 0);
    assert(y != base->values || rows == 0);
    assert((A && B) || rank == 0);
    assert(cols > 0);
}

void check_sum_squares(float *sum, const float *x, size_t count)
{
    assert(sum);
    assert(x || count == 0);
}

void check_adamw(float *p, float *m, float *v, const float *g, const struct adamw *step,
                 size_t count)
{
    assert((p && m && v && g) || count == 0);
    assert(step);
    assert(step->correction1 > 0);
    assert(step->correction2 > 0);
    assert(step->gradient_divisor > 0);
}

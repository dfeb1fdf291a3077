/*
 * attention: softmax attention of each token over itself and its ancestors, grouped heads, a
 * window.
 *
 *   A(i)     = j: i and its ancestors, with depth[i] - depth[j] < window (window 0: all)
 *   g        = h / (H / G), the key/value head of head h
 *   s(i,h,j) = scale sum_c q[i,h,c] k[j,g,c],   lse[i,h] = log sum_{j in A(i)} exp s
 *   p        = exp(s - lse),   o[i,h,v] = sum_{j in A(i)} p v[j,g,v]
 *   ds       = scale p (sum_v do[i,h,v] v[j,g,v] - sum_v do[i,h,v] o[i,h,v])
 *   dq[i,h]  = sum_{j in A(i)} ds k[j,g],   dk[j,g] = sum_{i: j in A(i)} sum_{h of g} ds q[i,h]
 *   dv[j,g]  = sum_{i: j in A(i)} sum_{h of g} p do[i,h]
 *
 * Shapes    q dq [N,H,C]; k dk [N,G,C]; v dv [N,G,V]; o do [N,H,V]; lse [N,H], kept for backward.
 * Writes    Every output is set. dq, dk, dv may not be any input.
 * Numerics  f32 in and out; scores, softmax and sums f64 in ref; nothing is stored per pair.
 * Source    Vaswani et al. 2017, arXiv:1706.03762; Dao et al. 2022, arXiv:2205.14135 (lse and the
 *           row term of backward); Needle architecture.py, MultiHeadAttention.
 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0;

    for (size_t c = 0; c < count; c++)
        sum += (double)a[c] * b[c];
    return sum;
}

static bool in_window(const struct attention *shape, const struct tree *tree, size_t i, size_t j)
{
    return shape->window == 0 || (size_t)(tree->depth[i] - tree->depth[j]) < shape->window;
}

static const float *head_of(const float *array, size_t n, size_t heads, size_t h, size_t size)
{
    return &array[(n * heads + h) * size];
}

void ref_attention_forward(float *o, float *lse, const float *q, const float *k, const float *v,
                           const struct attention *shape, const struct tree *tree)
{
    const size_t H = shape->head_count, G = shape->kv_head_count;
    const size_t C = shape->qk_size, V = shape->v_size;

    assert(V <= REF_WIDTH_MAX);
    for (size_t ih = 0; ih < tree->token_count * H; ih++) {
        const size_t i = ih / H, g = ih % H / (H / G);
        double largest = -INFINITY, total = 0, sums[REF_WIDTH_MAX] = {0};

        for (int32_t j = (int32_t)i; j >= 0 && in_window(shape, tree, i, (size_t)j);
             j = tree->parent[j])
            largest =
                fmax(largest, shape->scale * dot(&q[ih * C], head_of(k, (size_t)j, G, g, C), C));
        for (int32_t j = (int32_t)i; j >= 0 && in_window(shape, tree, i, (size_t)j);
             j = tree->parent[j]) {
            const double s = shape->scale * dot(&q[ih * C], head_of(k, (size_t)j, G, g, C), C);
            const double weight = exp(s - largest);

            total += weight;
            for (size_t c = 0; c < V; c++)
                sums[c] += weight * head_of(v, (size_t)j, G, g, V)[c];
        }
        for (size_t c = 0; c < V; c++)
            o[ih * V + c] = (float)(sums[c] / total);
        lse[ih] = (float)(largest + log(total));
    }
}

struct attention_inputs { /* what backward reads, to be handed on */
    const float *dout, *o, *lse, *q, *k, *v;
    const struct attention *shape;
};

/* p and ds of the pair (i,h) and (j, its key/value head). */
static void pair_backward(double *ret_p, double *ret_ds, const struct attention_inputs *in,
                          size_t ih, size_t j)
{
    const struct attention *shape = in->shape;
    const size_t C = shape->qk_size, V = shape->v_size, G = shape->kv_head_count;
    const size_t g = ih % shape->head_count / (shape->head_count / G);
    const float *dout = &in->dout[ih * V];
    const double s = shape->scale * dot(&in->q[ih * C], head_of(in->k, j, G, g, C), C);
    const double p = exp(s - in->lse[ih]);

    *ret_p = p;
    *ret_ds = shape->scale * p *
              (dot(dout, head_of(in->v, j, G, g, V), V) - dot(dout, &in->o[ih * V], V));
}

static void query_backward(float *dq, const struct attention_inputs *in, const struct tree *tree,
                           size_t ih)
{
    const size_t H = in->shape->head_count, G = in->shape->kv_head_count, C = in->shape->qk_size;
    const size_t i = ih / H, g = ih % H / (H / G);
    double sums[REF_WIDTH_MAX] = {0}, p, ds;

    for (int32_t j = (int32_t)i; j >= 0 && in_window(in->shape, tree, i, (size_t)j);
         j = tree->parent[j]) {
        pair_backward(&p, &ds, in, ih, (size_t)j);
        for (size_t c = 0; c < C; c++)
            sums[c] += ds * head_of(in->k, (size_t)j, G, g, C)[c];
    }
    for (size_t c = 0; c < C; c++)
        dq[ih * C + c] = (float)sums[c];
}

static void key_value_backward(float *dk, float *dv, const struct attention_inputs *in,
                               const struct tree *tree, size_t jg)
{
    const size_t H = in->shape->head_count, G = in->shape->kv_head_count;
    const size_t C = in->shape->qk_size, V = in->shape->v_size, share = H / G;
    const size_t j = jg / G, g = jg % G;
    double k_sums[REF_WIDTH_MAX] = {0}, v_sums[REF_WIDTH_MAX] = {0}, p, ds;

    for (size_t i = j; i < (size_t)tree->end[j]; i++) { /* j and its descendants */
        for (size_t h = g * share; in_window(in->shape, tree, i, j) && h < (g + 1) * share; h++) {
            pair_backward(&p, &ds, in, i * H + h, j);
            for (size_t c = 0; c < C; c++)
                k_sums[c] += ds * head_of(in->q, i, H, h, C)[c];
            for (size_t c = 0; c < V; c++)
                v_sums[c] += p * head_of(in->dout, i, H, h, V)[c];
        }
    }
    for (size_t c = 0; c < C; c++)
        dk[jg * C + c] = (float)k_sums[c];
    for (size_t c = 0; c < V; c++)
        dv[jg * V + c] = (float)v_sums[c];
}

void ref_attention_backward(float *dq, float *dk, float *dv, const float *dout, const float *o,
                            const float *lse, const float *q, const float *k, const float *v,
                            const struct attention *shape, const struct tree *tree)
{
    const struct attention_inputs in = {dout, o, lse, q, k, v, shape};

    assert(shape->qk_size <= REF_WIDTH_MAX);
    assert(shape->v_size <= REF_WIDTH_MAX);
    for (size_t ih = 0; ih < tree->token_count * shape->head_count; ih++)
        query_backward(dq, &in, tree, ih);
    for (size_t jg = 0; jg < tree->token_count * shape->kv_head_count; jg++)
        key_value_backward(dk, dv, &in, tree, jg);
}

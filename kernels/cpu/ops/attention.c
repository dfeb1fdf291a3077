/*
 * attention: softmax attention of each token over itself and its ancestors, see
 * kernels/ref/attention.c.
 *
 * Scores are made for TREE_LIST tokens at a time and never stored beyond that; the softmax is kept
 * up to date as its maximum grows (forward) or taken from lse (backward). Backward makes dq from
 * each token's ancestors and dk, dv from each token's descendants: every sum has one owner.
 *
 * Numerics  f32; sums run within a list, then over lists.
 * Source    Dao et al. 2022, arXiv:2205.14135.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/tree.h"
#include "kernels/cpu/ops/vector.h"

#include <assert.h>
#include <string.h>

#define BLOCK 8 /* tokens dealt together */

struct attention_call {
    float *o, *lse, *dq, *dk, *dv;
    const float *q, *k, *v, *dout, *kept_o, *kept_lse;
    const struct attention *shape;
    const struct tree *tree;
    float *rows; /* [N,H]: sum_v dout o */
    float *sums; /* [parts, width]: sums over one list */
    size_t width;
};

static const float *head_at(const float *array, int32_t n, size_t heads, size_t h, size_t size)
{
    return &array[((size_t)n * heads + h) * size];
}

static size_t block_end(const struct tree *tree, size_t block)
{
    size_t end = (block + 1) * BLOCK;
    return end < tree->token_count ? end : tree->token_count;
}

static void exp_of_differences(float *p, const float *s, float from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        p[i] = vector_exp(s[i] - from);
}

/* One query: o [V] and its lse. */
static void query_forward(const struct attention_call *a, size_t n, size_t h, float *sum)
{
    const struct attention *s = a->shape;
    const size_t H = s->head_count, G = s->kv_head_count, g = h / (H / G), V = s->v_size;
    const float *q = &a->q[(n * H + h) * s->qk_size];
    float *o = &a->o[(n * H + h) * V], score[TREE_LIST];
    struct tree_upward walk = tree_upward(a->tree, n, s->window);
    float largest = -INFINITY, total = 0;
    int32_t list[TREE_LIST];
    size_t count;

    memset(o, 0, V * sizeof *o);
    while ((count = tree_next_upward(&walk, list)) > 0) {
        for (size_t i = 0; i < count; i++)
            score[i] =
                s->scale * vector_dot(q, head_at(a->k, list[i], G, g, s->qk_size), s->qk_size);
        float top = vector_max(score, count);
        if (top > largest) {
            float shrink = vector_exp(largest - top);
            total *= shrink;
            vector_scale(o, shrink, V);
            largest = top;
        }
        exp_of_differences(score, score, largest, count);
        total += vector_sum(score, count);
        memset(sum, 0, V * sizeof *sum);
        for (size_t i = 0; i < count; i++)
            vector_add_scaled(sum, head_at(a->v, list[i], G, g, V), score[i], V);
        vector_add_scaled(o, sum, 1, V);
    }
    assert(total != 0); /* the largest score adds 1; NaN goes on */
    vector_scale(o, 1.0f / total, V);
    a->lse[n * H + h] = largest + logf(total);
}

static void forward_block(void *context, size_t begin, size_t end, size_t part)
{
    const struct attention_call *a = context;

    for (size_t n = begin * BLOCK; n < block_end(a->tree, end - 1); n++)
        for (size_t h = 0; h < a->shape->head_count; h++)
            query_forward(a, n, h, &a->sums[part * a->width]);
}

static size_t sums_width(const struct attention *shape)
{
    return (shape->qk_size + shape->v_size + LANES - 1) / LANES * LANES;
}

void cpu_attention_forward(struct cpu *cpu, float *o, float *lse, const float *q, const float *k,
                           const float *v, const struct attention *shape, const struct tree *tree)
{
    struct attention_call a = {.o = o, .lse = lse, .q = q, .k = k, .v = v, .shape = shape};

    a.tree = tree;
    a.width = sums_width(shape);
    a.sums = cpu_scratch(cpu, a.width * team_thread_count(cpu->team));
    if (a.sums)
        team_deal(cpu->team, (tree->token_count + BLOCK - 1) / BLOCK, forward_block, &a);
}

/* p and ds of pairs from their scores, sum_v dout v and the row terms. */
static void pairs_backward(float *p, float *ds, const float *lse, const float *row, float scale,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        p[i] = vector_exp(p[i] - lse[i]);
        ds[i] = scale * p[i] * (ds[i] - row[i]);
    }
}

static void query_backward(const struct attention_call *a, size_t n, size_t h, float *sum)
{
    const struct attention *s = a->shape;
    const size_t H = s->head_count, G = s->kv_head_count, g = h / (H / G);
    const size_t C = s->qk_size, V = s->v_size, at = n * H + h;
    const float *q = &a->q[at * C], *dout = &a->dout[at * V];
    float p[TREE_LIST], ds[TREE_LIST], lse[TREE_LIST], row[TREE_LIST], *dq = &a->dq[at * C];
    struct tree_upward walk = tree_upward(a->tree, n, s->window);
    int32_t list[TREE_LIST];
    size_t count;

    a->rows[at] = vector_dot(dout, &a->kept_o[at * V], V);
    for (size_t i = 0; i < TREE_LIST; i++) {
        lse[i] = a->kept_lse[at];
        row[i] = a->rows[at];
    }
    memset(dq, 0, C * sizeof *dq);
    while ((count = tree_next_upward(&walk, list)) > 0) {
        for (size_t i = 0; i < count; i++) {
            p[i] = s->scale * vector_dot(q, head_at(a->k, list[i], G, g, C), C);
            ds[i] = vector_dot(dout, head_at(a->v, list[i], G, g, V), V);
        }
        pairs_backward(p, ds, lse, row, s->scale, count);
        memset(sum, 0, C * sizeof *sum);
        for (size_t i = 0; i < count; i++)
            vector_add_scaled(sum, head_at(a->k, list[i], G, g, C), ds[i], C);
        vector_add_scaled(dq, sum, 1, C);
    }
}

static void queries_block(void *context, size_t begin, size_t end, size_t part)
{
    const struct attention_call *a = context;

    for (size_t n = begin * BLOCK; n < block_end(a->tree, end - 1); n++)
        for (size_t h = 0; h < a->shape->head_count; h++)
            query_backward(a, n, h, &a->sums[part * a->width]);
}

/* What head h of the listed tokens adds to dk and dv of key n, head g. */
static void key_list_backward(const struct attention_call *a, size_t n, size_t h,
                              const int32_t *list, size_t count, float *sum)
{
    const struct attention *s = a->shape;
    const size_t H = s->head_count, G = s->kv_head_count, g = h / (H / G);
    const size_t C = s->qk_size, V = s->v_size, at = n * G + g;
    float p[TREE_LIST], ds[TREE_LIST], lse[TREE_LIST], row[TREE_LIST];

    for (size_t i = 0; i < count; i++) {
        p[i] = s->scale * vector_dot(head_at(a->q, list[i], H, h, C), &a->k[at * C], C);
        ds[i] = vector_dot(head_at(a->dout, list[i], H, h, V), &a->v[at * V], V);
        lse[i] = a->kept_lse[(size_t)list[i] * H + h];
        row[i] = a->rows[(size_t)list[i] * H + h];
    }
    pairs_backward(p, ds, lse, row, s->scale, count);
    memset(sum, 0, (C + V) * sizeof *sum);
    for (size_t i = 0; i < count; i++) {
        vector_add_scaled(sum, head_at(a->q, list[i], H, h, C), ds[i], C);
        vector_add_scaled(sum + C, head_at(a->dout, list[i], H, h, V), p[i], V);
    }
    vector_add_scaled(&a->dk[at * C], sum, 1, C);
    vector_add_scaled(&a->dv[at * V], sum + C, 1, V);
}

static void keys_block(void *context, size_t begin, size_t end, size_t part)
{
    const struct attention_call *a = context;
    const struct attention *s = a->shape;
    const size_t G = s->kv_head_count;
    int32_t list[TREE_LIST];

    for (size_t n = begin * BLOCK; n < block_end(a->tree, end - 1); n++) {
        struct tree_downward walk = tree_downward(a->tree, n, s->window);
        size_t count;

        memset(&a->dk[n * G * s->qk_size], 0, G * s->qk_size * sizeof(float));
        memset(&a->dv[n * G * s->v_size], 0, G * s->v_size * sizeof(float));
        while ((count = tree_next_downward(&walk, list)) > 0)
            for (size_t h = 0; h < s->head_count; h++)
                key_list_backward(a, n, h, list, count, &a->sums[part * a->width]);
    }
}

void cpu_attention_backward(struct cpu *cpu, float *dq, float *dk, float *dv, const float *dout,
                            const float *o, const float *lse, const float *q, const float *k,
                            const float *v, const struct attention *shape, const struct tree *tree)
{
    struct attention_call a = {.dq = dq, .dk = dk, .dv = dv, .q = q, .k = k, .v = v};
    size_t blocks = (tree->token_count + BLOCK - 1) / BLOCK;

    a.dout = dout;
    a.kept_o = o;
    a.kept_lse = lse;
    a.shape = shape;
    a.tree = tree;
    a.width = sums_width(shape);
    size_t sums = a.width * team_thread_count(cpu->team);
    a.sums = cpu_scratch(cpu, sums + tree->token_count * shape->head_count);
    if (!a.sums)
        return;
    a.rows = a.sums + sums;
    team_deal(cpu->team, blocks, queries_block, &a);
    team_deal(cpu->team, blocks, keys_block, &a);
}

#include "daemon/model/engram.h"

#include "daemon/model/layer.h"

#define HASH_SEED 0x9E3779B9u
#define HASH_PRIME 0x01000193u

size_t engram_table_count(const struct geometry *geometry)
{
    return geometry->engram_order_count * geometry->engram_heads;
}

/* Over token n and its order - 1 ancestors, nearest first; 0 before the start of the line. */
static uint32_t hash_gram(uint32_t seed, const struct batch *batch, size_t n, size_t order)
{
    uint32_t hash = seed;
    int32_t at = (int32_t)n;

    for (size_t j = 0; j < order; j++) {
        hash = (hash ^ (at >= 0 ? batch->tokens[at] : 0)) * HASH_PRIME;
        at = at >= 0 ? batch->parent[at] : -1;
    }
    return hash ^ hash >> 15;
}

static size_t longest_order(const struct geometry *geometry)
{
    size_t longest = 1;

    for (size_t i = 0; i < geometry->engram_order_count; i++)
        if (geometry->engram_orders[i] > longest)
            longest = geometry->engram_orders[i];
    return longest;
}

/* One order's slots for token n, one a head. */
static void index_order(const struct geometry *g, const struct batch *batch, size_t n,
                        size_t order_index, int32_t *ret_indices)
{
    const size_t order = g->engram_orders[order_index];
    const bool whole = (size_t)batch->depth[n] + 1 >= order;

    for (size_t head = 0; head < g->engram_heads; head++) {
        const size_t stream = order_index * g->engram_seed_heads + head + 1;
        const uint32_t hash = hash_gram(HASH_SEED * (uint32_t)stream, batch, n, order);

        ret_indices[head] = whole ? (int32_t)(hash % (uint32_t)g->engram_slots) : -1;
    }
}

void engram_indices(const struct geometry *geometry, const struct batch *batch,
                    int32_t *ret_indices)
{
    const size_t tables = engram_table_count(geometry);

    for (size_t n = 0; n < batch->token_count; n++)
        for (size_t i = 0; i < geometry->engram_order_count; i++)
            index_order(geometry, batch, n, i,
                        &ret_indices[n * tables + i * geometry->engram_heads]);
}

/* [M,K] [K,N] of dense arrays. */
static struct matmul product(size_t M, size_t N, size_t K)
{
    return (struct matmul){.M = M, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N, .alpha = 1};
}

/* rows = round(table[index]) and raw = rows W_value, what key and value are made from. */
static void gather(const struct weights *weights, struct activations *a, size_t site, size_t N)
{
    const struct geometry *g = &weights->geometry;
    const struct engram_weights *w = &weights->engrams[site];
    const struct matmul projection = product(N, g->d_model, g->d_model);

    backend_gather_forward(a->backend, a->engram_rows, &w->table, a->engram_index, N,
                           engram_table_count(g), g->engram_slots, g->engram_sub,
                           layer_rounding(weights));
    backend_matmul(a->backend, a->engram_raw, a->engram_rows, w->value, &projection);
}

void engram_forward(const struct weights *weights, struct activations *activations, size_t site,
                    const struct tree *tree)
{
    const struct geometry *g = &weights->geometry;
    const struct engram_weights *w = &weights->engrams[site];
    const size_t N = tree->token_count, D = g->d_model;
    const struct matmul projection = product(N, D, D);

    gather(weights, activations, site, N);
    backend_matmul(activations->backend, activations->engram_key[site], activations->engram_rows,
                   w->key, &projection);
    backend_taps_forward(activations->backend, activations->engram_value[site],
                         activations->engram_raw, w->taps, tree, D, ENGRAM_TAPS, longest_order(g));
}

void engram_backward(const struct weights *weights, struct activations *activations, size_t site,
                     const struct tree *tree, const struct engram_gradients *gradients)
{
    const struct geometry *g = &weights->geometry;
    const struct engram_weights *w = &weights->engrams[site];
    struct backend *be = activations->backend;
    struct backward *b = &activations->backward;
    const size_t N = tree->token_count, D = g->d_model;
    struct matmul of_weight = product(D, D, N), of_rows = product(N, D, D);

    of_weight.transpose_a = true; /* dW += X^T dY */
    of_weight.lda = D;
    of_weight.beta = 1;
    of_rows.transpose_b = true; /* dX = dY W^T */

    gather(weights, activations, site, N);
    backend_taps_backward(be, b->draw, gradients->taps, b->dvalue, activations->engram_raw, w->taps,
                          tree, D, ENGRAM_TAPS, longest_order(g));
    backend_matmul(be, gradients->key, activations->engram_rows, b->dkey, &of_weight);
    backend_matmul(be, gradients->value, activations->engram_rows, b->draw, &of_weight);
    backend_matmul(be, b->drows, b->dkey, w->key, &of_rows);
    of_rows.beta = 1;
    backend_matmul(be, b->drows, b->draw, w->value, &of_rows);
    backend_gather_backward(be, gradients->table, b->drows, activations->engram_index, N,
                            engram_table_count(g), g->engram_slots, g->engram_sub);
}

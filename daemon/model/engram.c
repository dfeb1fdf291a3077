#include "daemon/model/engram.h"

#include "daemon/model/layer.h"

#include <string.h>

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

size_t engram_seen_count(size_t count)
{
    size_t size = 1;

    while (size < 2 * count) /* at most half full */
        size *= 2;
    return size;
}

static uint32_t hash_row(const int32_t *row, size_t tables)
{
    uint32_t hash = HASH_SEED;

    for (size_t i = 0; i < tables; i++)
        hash = (hash ^ (uint32_t)row[i]) * HASH_PRIME;
    return hash ^ hash >> 15;
}

size_t engram_distinct(const int32_t *indices, size_t count, size_t tables, uint32_t *seen,
                       int32_t *ret_distinct, uint32_t *ret_row)
{
    const size_t mask = engram_seen_count(count) - 1, row_size = tables * sizeof *indices;
    size_t distinct = 0;

    memset(seen, 0, (mask + 1) * sizeof *seen); /* 0: nobody; else the row's number and 1 */
    for (size_t n = 0; n < count; n++) {
        const int32_t *row = &indices[n * tables];
        size_t at = hash_row(row, tables) & mask;

        while (seen[at] && memcmp(&ret_distinct[(seen[at] - 1) * tables], row, row_size) != 0)
            at = (at + 1) & mask;
        if (!seen[at]) {
            memcpy(&ret_distinct[distinct * tables], row, row_size);
            seen[at] = (uint32_t)++distinct;
        }
        ret_row[n] = seen[at] - 1;
    }
    return distinct;
}

/* [M,K] [K,N] of dense arrays. */
static struct matmul product(size_t M, size_t N, size_t K)
{
    return (struct matmul){.M = M, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N, .alpha = 1};
}

/* y [count, D] = round(table[index]) */
static void gather(const struct weights *weights, struct backend *be, size_t site, float *y,
                   const int32_t *index, size_t count)
{
    const struct geometry *g = &weights->geometry;

    backend_gather_forward(be, y, &weights->engrams[site].table, index, count,
                           engram_table_count(g), g->engram_slots, g->engram_sub,
                           layer_rounding(weights));
}

void engram_forward(const struct weights *weights, struct activations *activations, size_t site,
                    const struct tree *tree, size_t distinct_count)
{
    const struct engram_weights *w = &weights->engrams[site];
    struct backend *be = activations->backend;
    const size_t N = tree->token_count, D = weights->geometry.d_model;
    const struct matmul projection = product(distinct_count, D, D);
    float *rows = activations->engram_rows, *projected = activations->engram_raw;

    gather(weights, be, site, rows, activations->engram_distinct, distinct_count);
    backend_matmul(be, projected, rows, w->key, &projection);
    backend_embed_forward(be, activations->engram_key[site], projected, activations->engram_row, 1,
                          N, D);
    backend_matmul(be, projected, rows, w->value, &projection);
    backend_embed_forward(be, rows, projected, activations->engram_row, 1, N, D);
    backend_taps_forward(be, activations->engram_value[site], rows, w->taps, tree, D, ENGRAM_TAPS,
                         longest_order(&weights->geometry));
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
    const struct matmul projection = product(N, D, D);

    of_weight.transpose_a = true; /* dW += X^T dY */
    of_weight.lda = D;
    of_weight.beta = 1;
    of_rows.transpose_b = true; /* dX = dY W^T */

    gather(weights, be, site, activations->engram_rows, activations->engram_index, N);
    backend_matmul(be, activations->engram_raw, activations->engram_rows, w->value, &projection);
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

#include "daemon/model/activations.h"

#include "daemon/base/size.h"
#include "daemon/model/engram.h"

#include <string.h>

#define ALIGNMENT 64

/* Walks the plan: without memory it only counts. */
struct cursor {
    char *memory;
    size_t offset;
    bool overflow;
};

static void *take(struct cursor *cursor, size_t rows, size_t cols, size_t element_size)
{
    const size_t start = cursor->offset;
    size_t size, end;

    if (!size_mul(rows, cols, &size) || !size_mul(size, element_size, &size) ||
        !size_add(size, ALIGNMENT - 1, &size) ||
        !size_add(start, size / ALIGNMENT * ALIGNMENT, &end)) {
        cursor->overflow = true;
        return NULL;
    }
    cursor->offset = end;
    return cursor->memory ? cursor->memory + start : NULL;
}

static float *take_floats(struct cursor *cursor, size_t rows, size_t cols)
{
    return take(cursor, rows, cols, sizeof(float));
}

static size_t coefficient_count(const struct geometry *g)
{
    return 2 * g->lane_count + g->lane_count * g->lane_count;
}

static void place_batch(struct activations *a, struct cursor *c, const struct geometry *g,
                        const struct network_limits *limits)
{
    const size_t N = limits->max_tokens, targets = limits->max_targets;

    a->tokens = take(c, N, 1, sizeof *a->tokens);
    a->parent = take(c, N, 1, sizeof *a->parent);
    a->depth = take(c, N, 1, sizeof *a->depth);
    a->run = take(c, N, 1, sizeof *a->run);
    a->end = take(c, N, 1, sizeof *a->end);
    a->target_row = take(c, targets, 1, sizeof *a->target_row);
    a->target_label = take(c, targets, 1, sizeof *a->target_label);
    a->target_weight = take_floats(c, targets, 1);
    a->loss = take_floats(c, targets, 1);
    a->hit = take_floats(c, targets, 1);

    if (g->engram_site_count == 0)
        return;
    a->engram_index = take(c, N, engram_table_count(g), sizeof *a->engram_index);
    a->engram_rows = take_floats(c, N, g->d_model);
    a->engram_raw = take_floats(c, N, g->d_model);
    for (size_t site = 0; site < g->engram_site_count; site++) {
        a->engram_key[site] = take_floats(c, N, g->d_model);
        a->engram_value[site] = take_floats(c, N, g->d_model);
    }
}

static void place_layer(struct layer_activations *a, struct cursor *c, const struct geometry *g,
                        size_t N, bool site)
{
    const size_t D = g->d_model, M = coefficient_count(g);
    const size_t q = g->head_count * g->qk_head_size, k = g->kv_head_count * g->qk_head_size;
    const size_t v = g->kv_head_count * g->v_head_size, o = g->head_count * g->v_head_size;

    a->u = take_floats(c, N, D);
    a->h = take_floats(c, N, M);
    a->raw = take_floats(c, N, M);
    a->h_r = take_floats(c, N, 1);
    if (site) {
        a->injected = take_floats(c, N, D);
        a->alpha = take_floats(c, N, 1);
    }
    a->attn_in = take_floats(c, N, D);
    a->attn_in_r = take_floats(c, N, 1);
    a->q_proj = take_floats(c, N, q);
    a->k_proj = take_floats(c, N, k);
    a->v_proj = take_floats(c, N, v);
    a->gate_proj = take_floats(c, N, o);
    if (g->conv_taps) {
        a->q_tap = take_floats(c, N, q);
        a->k_tap = take_floats(c, N, k);
        a->v_tap = take_floats(c, N, v);
    }
    a->q_r = take_floats(c, N, g->head_count);
    a->k_r = take_floats(c, N, g->kv_head_count);
    a->q = take_floats(c, N, q);
    a->k = take_floats(c, N, k);
    a->v = take_floats(c, N, v);
    a->heads = take_floats(c, N, o);
    a->lse = take_floats(c, N, g->head_count);
    a->out_in = take_floats(c, N, o);
    a->attn_out = take_floats(c, N, D);
    a->attn_out_r = take_floats(c, N, 1);
    a->middle = take_floats(c, N, D);
    a->mlp_in = take_floats(c, N, D);
    a->mlp_in_r = take_floats(c, N, 1);
    a->out = take_floats(c, N, D);
}

static void place_stream(struct activations *a, struct cursor *c, const struct geometry *g,
                         const struct network_limits *limits)
{
    const size_t N = limits->max_tokens, D = g->d_model;

    a->x = take_floats(c, N, D);
    for (size_t layer = 0; layer <= g->layer_count; layer++)
        a->lanes[layer] = take_floats(c, N, g->lane_count * D);
    for (size_t layer = 0; layer < g->layer_count; layer++) {
        if (limits->keep_activations)
            place_layer(&a->layers[layer], c, g, N, geometry_engram_site(g, layer) >= 0);
        else if (layer == 0)
            place_layer(&a->layers[0], c, g, N, g->engram_site_count > 0);
        else
            a->layers[layer] = a->layers[0];
    }
    a->mean = take_floats(c, N, D);
    a->final = take_floats(c, N, D);
    a->final_r = take_floats(c, N, 1);
}

static void place_backward(struct backward *b, struct cursor *c, const struct geometry *g, size_t N,
                           size_t lora_rank)
{
    const size_t D = g->d_model;
    const size_t q = g->head_count * g->qk_head_size, k = g->kv_head_count * g->qk_head_size;
    const size_t v = g->kv_head_count * g->v_head_size, o = g->head_count * g->v_head_size;
    const size_t widest_in = D > o ? D : o;
    size_t lora_rows;

    b->dlanes_out = take_floats(c, N, g->lane_count * D);
    b->dlanes_in = take_floats(c, N, g->lane_count * D);
    b->dh = take_floats(c, N, coefficient_count(g));
    b->dout = take_floats(c, N, D);
    b->dskip = take_floats(c, N, D);
    b->dbranch = take_floats(c, N, D);
    b->dnorm = take_floats(c, N, D);
    b->dout_in = take_floats(c, N, o);
    b->dheads = take_floats(c, N, o);
    b->dgate_proj = take_floats(c, N, o);
    b->dq = take_floats(c, N, q);
    b->dk = take_floats(c, N, k);
    b->dv = take_floats(c, N, v);
    b->dq_proj = take_floats(c, N, q);
    b->dk_proj = take_floats(c, N, k);
    b->dv_proj = take_floats(c, N, v);
    if (g->engram_site_count) {
        b->dkey = take_floats(c, N, D);
        b->dvalue = take_floats(c, N, D);
        b->draw = take_floats(c, N, D);
        b->drows = take_floats(c, N, D);
    }
    if (!size_mul(2, N, &lora_rows) || !size_add(lora_rows, widest_in, &lora_rows))
        c->overflow = true;
    else
        b->lora = take_floats(c, lora_rows, lora_rank);
}

static void place_all(struct activations *a, struct cursor *c, const struct geometry *g,
                      size_t lora_rank, const struct network_limits *limits)
{
    place_batch(a, c, g, limits);
    place_stream(a, c, g, limits);
    place_backward(&a->backward, c, g, limits->max_tokens, lora_rank);
}

size_t activations_device_bytes(const struct geometry *geometry, size_t lora_rank,
                                const struct network_limits *limits)
{
    struct activations counted = {0};
    struct cursor cursor = {0};

    place_all(&counted, &cursor, geometry, lora_rank, limits);
    return cursor.overflow ? SIZE_MAX : cursor.offset;
}

bool activations_init(struct activations *activations, struct backend *be,
                      const struct geometry *geometry, size_t lora_rank,
                      const struct network_limits *limits, struct error *err)
{
    const size_t size_bytes = activations_device_bytes(geometry, lora_rank, limits);
    struct cursor cursor = {0};

    if (size_bytes == SIZE_MAX)
        return error_set(err, ERR_LIMIT,
                         "%zu tokens at once need more memory than can be addressed",
                         limits->max_tokens);
    cursor.memory = backend_alloc(be, size_bytes);
    if (!cursor.memory)
        return error_set(err, ERR_NO_MEMORY, "%zu bytes for %zu tokens at once: %s", size_bytes,
                         limits->max_tokens, backend_fault(be));

    memset(activations, 0, sizeof *activations);
    activations->backend = be;
    activations->memory = cursor.memory;
    activations->size_bytes = size_bytes;
    place_all(activations, &cursor, geometry, lora_rank, limits);
    return true;
}

void activations_release(struct activations *activations)
{
    if (activations->memory)
        backend_free(activations->backend, activations->memory);
    activations->memory = NULL;
}

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
    a->outcome = take_floats(c, 2, targets);

    if (g->engram_site_count == 0)
        return;
    a->engram_index = take(c, N, engram_table_count(g), sizeof *a->engram_index);
    a->engram_distinct = take(c, N, engram_table_count(g), sizeof *a->engram_distinct);
    a->engram_row = take(c, N, 1, sizeof *a->engram_row);
    for (size_t site = 0; site < g->engram_site_count; site++) {
        a->engram_key[site] = take_floats(c, N, g->d_model);
        a->engram_value[site] = take_floats(c, N, g->d_model);
    }
}

/* ---- what the layers leave ------------------------------------------------------------------- */

/* What is cheap to make again, and what only the taps read: one set for all layers. */
static void place_shared(struct layer_activations *a, struct cursor *c, const struct geometry *g,
                         size_t N)
{
    const size_t D = g->d_model;
    const size_t q = g->head_count * g->qk_head_size, k = g->kv_head_count * g->qk_head_size;
    const size_t v = g->kv_head_count * g->v_head_size, o = g->head_count * g->v_head_size;

    a->u = take_floats(c, N, D);
    if (g->engram_site_count) {
        a->injected = take_floats(c, N, D);
        a->alpha = take_floats(c, N, 1);
    }
    a->attn_in = take_floats(c, N, D);
    a->attn_in_r = take_floats(c, N, 1);
    if (g->conv_taps) {
        a->q_proj = take_floats(c, N, q);
        a->k_proj = take_floats(c, N, k);
        a->v_tap = take_floats(c, N, v);
    }
    a->v_proj = take_floats(c, N, v);
    a->q_r = take_floats(c, N, g->head_count);
    a->k_r = take_floats(c, N, g->kv_head_count);
    a->q = take_floats(c, N, q);
    a->k = take_floats(c, N, k);
    a->out_in = take_floats(c, N, o);
    a->attn_out_r = take_floats(c, N, 1);
    a->middle = take_floats(c, N, D);
    a->mlp_in = take_floats(c, N, D);
    a->mlp_in_r = take_floats(c, N, 1);
}

/* What took a product or attention to make. */
static void place_products(struct layer_activations *a, struct cursor *c, const struct geometry *g,
                           size_t N)
{
    const size_t q = g->head_count * g->qk_head_size, k = g->kv_head_count * g->qk_head_size;
    const size_t v = g->kv_head_count * g->v_head_size, o = g->head_count * g->v_head_size;

    a->raw = take_floats(c, N, coefficient_count(g));
    a->h_r = take_floats(c, N, 1);
    *(g->conv_taps ? &a->q_tap : &a->q_proj) = take_floats(c, N, q);
    *(g->conv_taps ? &a->k_tap : &a->k_proj) = take_floats(c, N, k);
    a->v = take_floats(c, N, v);
    a->gate_proj = take_floats(c, N, o);
    a->heads = take_floats(c, N, o);
    a->lse = take_floats(c, N, g->head_count);
    a->attn_out = take_floats(c, N, g->d_model);
}

/* Layers 0 to `recomputed` take turns in one set of products: the last of them finds its own. */
static void place_layers(struct activations *a, struct cursor *c, const struct geometry *g,
                         const struct network_limits *limits)
{
    const size_t N = limits->max_tokens;
    struct layer_activations set = {0};

    a->recomputed_layers =
        limits->recomputed_layers < g->layer_count ? limits->recomputed_layers : g->layer_count - 1;
    place_shared(&set, c, g, N);
    for (size_t layer = 0; layer < g->layer_count; layer++) {
        if (layer == 0 || layer > a->recomputed_layers)
            place_products(&set, c, g, N);
        a->layers[layer] = set;
        a->layers[layer].h = take_floats(c, N, coefficient_count(g));
        a->layers[layer].out = take_floats(c, N, g->d_model);
    }
}

/* ---- the lanes ------------------------------------------------------------------------------- */

/* How many layers find their lanes again with this many places: a first segment of `places` layers,
 * one more of as many, then each one shorter, down to two. */
static size_t layers_within(size_t places)
{
    return places + places * (places + 1) / 2 - 1;
}

/* Segment s > 0 begins in place s - 1, where its start stays; the rest of it goes to the places
 * after that, which later segments write over: backward, done with those, makes it again. */
static void place_lanes(struct activations *a, struct cursor *c, const struct geometry *g, size_t N)
{
    float *places[GEOMETRY_MAX_LAYERS] = {0};
    size_t count = 1, layer = 0;

    while (layers_within(count) < g->layer_count)
        count++;
    for (size_t i = 0; i < count; i++)
        places[i] = take_floats(c, N, g->lane_count * g->d_model);
    for (size_t s = 0; layer < g->layer_count; s++) {
        const size_t start = layer, first = s > 0 ? s - 1 : 0;

        for (size_t i = first; i < count && layer < g->layer_count; i++, layer++) {
            a->lanes[layer] = places[i];
            a->segment[layer] = start;
        }
    }
    a->lanes[g->layer_count] = a->backward.dlanes; /* read before any gradient is written */
}

/* ---- backward -------------------------------------------------------------------------------- */

static void place_backward(struct backward *b, struct cursor *c, const struct geometry *g, size_t N,
                           size_t lora_rank)
{
    const size_t D = g->d_model;
    const size_t q = g->head_count * g->qk_head_size, k = g->kv_head_count * g->qk_head_size;
    const size_t v = g->kv_head_count * g->v_head_size, o = g->head_count * g->v_head_size;
    const size_t widest_in = D > o ? D : o;
    size_t lora_rows;

    b->dlanes = take_floats(c, N, g->lane_count * D);
    b->dh = take_floats(c, N, coefficient_count(g));
    b->dout = take_floats(c, N, D);
    b->dskip = take_floats(c, N, D);
    b->dbranch = take_floats(c, N, D);
    b->dnorm = take_floats(c, N, D);
    b->dheads = b->dout_in = take_floats(c, N, widest_in);
    b->dgate_proj = take_floats(c, N, widest_in);
    b->dq = take_floats(c, N, q);
    b->dk = take_floats(c, N, k);
    b->dv = take_floats(c, N, v);
    b->dq_proj = take_floats(c, N, q);
    b->dk_proj = take_floats(c, N, k);
    b->dv_proj = take_floats(c, N, v);
    b->dkey = b->dheads; /* an engram site's, when the layer's are spent */
    b->dvalue = b->dgate_proj;
    b->draw = b->dnorm;
    b->drows = b->dout;
    if (!size_mul(2, N, &lora_rows) || !size_add(lora_rows, widest_in, &lora_rows))
        c->overflow = true;
    else
        b->lora = take_floats(c, lora_rows, lora_rank);
}

/* What forward needs for a moment, and what is read before backward writes there. */
static void share_backward(struct activations *a)
{
    const struct backward *b = &a->backward;

    a->x = b->dnorm;
    a->mean = b->dout;
    a->final = b->dskip;
    a->engram_rows = b->dbranch;
    a->engram_raw = b->dskip;
}

static void place_all(struct activations *a, struct cursor *c, const struct geometry *g,
                      size_t lora_rank, const struct network_limits *limits)
{
    place_batch(a, c, g, limits);
    place_backward(&a->backward, c, g, limits->max_tokens, lora_rank);
    share_backward(a);
    a->final_r = take_floats(c, limits->max_tokens, 1);
    place_lanes(a, c, g, limits->max_tokens);
    place_layers(a, c, g, limits);
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

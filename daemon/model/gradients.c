#include "daemon/model/gradients.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16 /* floats */
#define BLOCK "stack/layers/block/"
#define MEMBER(field) offsetof(struct layer_gradients, field)

/* How long one layer's part of a tensor is. */
enum extent {
    EXTENT_ONE,
    EXTENT_D,
    EXTENT_HEAD,
    EXTENT_Q_TAPS,
    EXTENT_K_TAPS,
    EXTENT_V_TAPS,
    EXTENT_FACTOR_A,
    EXTENT_FACTOR_B,
    EXTENT_P,
    EXTENT_COND_V,
    EXTENT_COND_U,
};

static const struct tensor {
    const char *name;
    size_t member;
    enum extent extent;
} tensors[] = {
    {BLOCK "ZCRMSNorm_0/scale", MEMBER(attn_norm), EXTENT_D},
    {BLOCK "post_attn_norm/scale", MEMBER(post_attn_norm), EXTENT_D},
    {BLOCK "pre_hada_norm/scale", MEMBER(pre_hada_norm), EXTENT_D},
    {BLOCK "attn_gate", MEMBER(attn_gate), EXTENT_ONE},
    {BLOCK "self_attn/q_taps", MEMBER(q_taps), EXTENT_Q_TAPS},
    {BLOCK "self_attn/k_taps", MEMBER(k_taps), EXTENT_K_TAPS},
    {BLOCK "self_attn/v_taps", MEMBER(v_taps), EXTENT_V_TAPS},
    {BLOCK "self_attn/q_norm/scale", MEMBER(q_norm), EXTENT_HEAD},
    {BLOCK "self_attn/k_norm/scale", MEMBER(k_norm), EXTENT_HEAD},
    {BLOCK "hadamard_mlp/w1a", MEMBER(monarch.w1a), EXTENT_FACTOR_A},
    {BLOCK "hadamard_mlp/w1b", MEMBER(monarch.w1b), EXTENT_FACTOR_B},
    {BLOCK "hadamard_mlp/w2a", MEMBER(monarch.w2a), EXTENT_FACTOR_A},
    {BLOCK "hadamard_mlp/w2b", MEMBER(monarch.w2b), EXTENT_FACTOR_B},
    {BLOCK "hadamard_mlp/w3a", MEMBER(monarch.w3a), EXTENT_FACTOR_A},
    {BLOCK "hadamard_mlp/w3b", MEMBER(monarch.w3b), EXTENT_FACTOR_B},
    {BLOCK "hadamard_mlp/d1", MEMBER(monarch.d1), EXTENT_P},
    {BLOCK "hadamard_mlp/d2", MEMBER(monarch.d2), EXTENT_P},
    {BLOCK "hadamard_mlp/b2", MEMBER(monarch.b2), EXTENT_P},
    {BLOCK "hadamard_mlp/d3", MEMBER(monarch.d3), EXTENT_P},
    {BLOCK "hadamard_mlp/d4", MEMBER(monarch.d4), EXTENT_P},
    {BLOCK "hadamard_mlp/cond_v", MEMBER(monarch.cond_v), EXTENT_COND_V},
    {BLOCK "hadamard_mlp/cond_u", MEMBER(monarch.cond_u), EXTENT_COND_U},
};

static size_t extent_of(const struct geometry *g, enum extent extent)
{
    switch (extent) {
    case EXTENT_ONE:
        return 1;
    case EXTENT_D:
        return g->d_model;
    case EXTENT_HEAD:
        return g->qk_head_size;
    case EXTENT_Q_TAPS:
        return g->conv_taps * g->head_count * g->qk_head_size;
    case EXTENT_K_TAPS:
        return g->conv_taps * g->kv_head_count * g->qk_head_size;
    case EXTENT_V_TAPS:
        return g->conv_taps * g->kv_head_count * g->v_head_size;
    case EXTENT_FACTOR_A:
        return g->monarch_a * g->monarch_a;
    case EXTENT_FACTOR_B:
        return g->monarch_b * g->monarch_b;
    case EXTENT_P:
        return g->monarch_size;
    case EXTENT_COND_V:
        return g->d_model * CONDITION_RANK;
    case EXTENT_COND_U:
        return CONDITION_RANK * g->monarch_size;
    }
    assert(!"an extent without a case");
    return 0;
}

/* Room for `layer_count` times `size` floats, one after the other. */
static size_t reserve(struct weight_gradients *gradients, size_t layer_count, size_t size)
{
    const size_t offset = gradients->value_count;

    gradients->value_count += (layer_count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return offset;
}

static struct gradient_slot *new_slot(struct weight_gradients *gradients, const char *name)
{
    assert(gradients->slot_count < GRADIENT_SLOTS_MAX);
    assert(strlen(name) < sizeof gradients->slots[0].name);

    struct gradient_slot *slot = &gradients->slots[gradients->slot_count++];
    (void)snprintf(slot->name, sizeof slot->name, "%s", name); /* length asserted */
    return slot;
}

/* A tensor stacked by layer, or alone (one layer). */
static void add_tensor(struct weight_gradients *gradients, const char *name, size_t layer_count,
                       size_t size)
{
    if (size == 0)
        return;
    const size_t offset = reserve(gradients, layer_count, size);
    struct gradient_slot *slot = new_slot(gradients, name);

    slot->offset = offset;
    slot->layer_count = layer_count;
    slot->layer_stride = slot->row_stride = slot->width = size;
    slot->rows = 1;
}

/* pre, post and res side by side in rows of the sum of their widths. */
static void add_packed(struct weight_gradients *gradients, const char *kind, size_t layer_count,
                       size_t rows, const size_t widths[3])
{
    static const char *const parts[3] = {"pre", "post", "res"};
    const size_t row_stride = widths[0] + widths[1] + widths[2];
    size_t offset = reserve(gradients, layer_count, rows * row_stride);

    for (size_t i = 0; i < 3; i++) {
        char name[80];

        (void)snprintf(name, sizeof name, "stack/mhc_%s_%s", kind, parts[i]); /* short by nature */
        struct gradient_slot *slot = new_slot(gradients, name);
        slot->offset = offset;
        slot->layer_count = layer_count;
        slot->layer_stride = rows * row_stride;
        slot->rows = rows;
        slot->row_stride = row_stride;
        slot->width = widths[i];
        offset += widths[i];
    }
}

static void name_engram(char *name, size_t size, size_t site, const char *part)
{
    (void)snprintf(name, size, "engrams_%zu/%s", site, part); /* short by nature */
}

static const char *const engram_parts[4] = {"embedding", "key_proj/kernel", "value_proj/kernel",
                                            "taps"};

static void lay_out(struct weight_gradients *gradients, const struct geometry *g)
{
    const size_t D = g->d_model, n = g->lane_count,
                 tables = g->engram_order_count * g->engram_heads;
    const size_t engram_sizes[4] = {tables * g->engram_slots * g->engram_sub, D * D, D * D,
                                    ENGRAM_TAPS * D};

    add_tensor(gradients, "embedding/embedding", 1, g->vocab_size * D);
    add_tensor(gradients, "stack/final_norm/scale", 1, D);
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        add_tensor(gradients, tensors[i].name, g->layer_count, extent_of(g, tensors[i].extent));
    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        size_t in, out;

        projection_shape(g, p, &in, &out);
        add_tensor(gradients, projection_path(p), g->layer_count, in * out);
    }
    add_packed(gradients, "phi", g->layer_count, n * D, (const size_t[3]){n, n, n * n});
    add_packed(gradients, "b", g->layer_count, 1, (const size_t[3]){n, n, n * n});
    add_packed(gradients, "a", g->layer_count, 1, (const size_t[3]){1, 1, 1});
    for (size_t site = 0; site < g->engram_site_count; site++)
        for (size_t part = 0; part < 4; part++) {
            char name[80];

            name_engram(name, sizeof name, site, engram_parts[part]);
            add_tensor(gradients, name, 1, engram_sizes[part]);
        }
}

static const struct gradient_slot *find_slot(const struct weight_gradients *gradients,
                                             const char *name)
{
    for (size_t i = 0; i < gradients->slot_count; i++)
        if (strcmp(gradients->slots[i].name, name) == 0)
            return &gradients->slots[i];
    return NULL;
}

/* Where a layer's part starts; NULL for a tensor this geometry has not. */
static float *place_of(const struct weight_gradients *gradients, const char *name, size_t layer)
{
    const struct gradient_slot *slot = find_slot(gradients, name);

    return slot ? gradients->values + slot->offset + layer * slot->layer_stride : NULL;
}

static void point(struct weight_gradients *gradients, const struct geometry *g)
{
    gradients->embedding = place_of(gradients, "embedding/embedding", 0);
    gradients->final_norm = place_of(gradients, "stack/final_norm/scale", 0);
    for (size_t l = 0; l < g->layer_count; l++) {
        struct layer_gradients *layer = &gradients->layers[l];

        for (size_t i = 0; i < COUNT_OF(tensors); i++)
            *(float **)((char *)layer + tensors[i].member) =
                place_of(gradients, tensors[i].name, l);
        for (enum projection p = 0; p < PROJECTION_COUNT; p++)
            layer->kernel[p] = place_of(gradients, projection_path(p), l);
        layer->hyper.phi = place_of(gradients, "stack/mhc_phi_pre", l);
        layer->hyper.bias = place_of(gradients, "stack/mhc_b_pre", l);
        layer->hyper.scale = place_of(gradients, "stack/mhc_a_pre", l);
    }
    for (size_t site = 0; site < g->engram_site_count; site++) {
        float *places[4];

        for (size_t part = 0; part < 4; part++) {
            char name[80];

            name_engram(name, sizeof name, site, engram_parts[part]);
            places[part] = place_of(gradients, name, 0);
        }
        gradients->engrams[site] =
            (struct engram_gradients){places[0], places[1], places[2], places[3]};
    }
}

bool weight_gradients_new(const struct weights *weights, struct weight_gradients **ret_gradients,
                          struct error *err)
{
    const struct geometry *g = &weights->geometry;
    struct weight_gradients *gradients = calloc(1, sizeof *gradients);
    size_t packed = 1;

    if (!gradients)
        return error_set(err, ERR_NO_MEMORY, "no memory for the gradients (%zu bytes)",
                         sizeof *gradients);
    gradients->backend = weights->backend;
    lay_out(gradients, g);
    for (size_t i = 0; i < gradients->slot_count; i++)
        if (gradients->slots[i].width < gradients->slots[i].row_stride &&
            gradients->slots[i].layer_stride > packed)
            packed = gradients->slots[i].layer_stride;

    gradients->packed = calloc(packed, sizeof *gradients->packed);
    gradients->layers = calloc(g->layer_count, sizeof *gradients->layers);
    if (!gradients->packed || !gradients->layers) {
        weight_gradients_free(gradients);
        return error_set(err, ERR_NO_MEMORY, "no memory for the gradients (%zu bytes)",
                         packed * sizeof(float));
    }
    gradients->values =
        backend_alloc(weights->backend, gradients->value_count * sizeof *gradients->values);
    if (!gradients->values) {
        error_set(err, ERR_NO_MEMORY, "%zu bytes for the gradients of all weights: %s",
                  gradients->value_count * sizeof *gradients->values,
                  backend_fault(weights->backend));
        weight_gradients_free(gradients);
        return false;
    }
    point(gradients, g);
    *ret_gradients = gradients;
    return true;
}

void weight_gradients_free(struct weight_gradients *gradients)
{
    if (!gradients)
        return;
    backend_free(gradients->backend, gradients->values);
    free(gradients->packed);
    free(gradients->layers);
    free(gradients);
}

void weight_gradients_clear(struct weight_gradients *gradients)
{
    backend_zero(gradients->backend, gradients->values,
                 gradients->value_count * sizeof *gradients->values);
}

static void read_layer(const struct weight_gradients *gradients, const struct gradient_slot *slot,
                       size_t layer, float *ret_values)
{
    const float *source = gradients->values + slot->offset + layer * slot->layer_stride;

    if (slot->width == slot->row_stride) {
        backend_download(gradients->backend, ret_values, source, slot->width * sizeof *source);
        return;
    }
    /* The last row ends with this part, which may not be the end of the packed row. */
    const size_t count = (slot->rows - 1) * slot->row_stride + slot->width;
    backend_download(gradients->backend, gradients->packed, source, count * sizeof *source);
    for (size_t row = 0; row < slot->rows; row++)
        memcpy(ret_values + row * slot->width, gradients->packed + row * slot->row_stride,
               slot->width * sizeof *ret_values);
}

bool weight_gradients_get(const struct weight_gradients *gradients, const char *name,
                          float *ret_values, size_t capacity, size_t *ret_count)
{
    const struct gradient_slot *slot = find_slot(gradients, name);

    if (!slot)
        return false;
    const size_t size = slot->rows * slot->width, count = slot->layer_count * size;
    assert(capacity >= count);
    for (size_t layer = 0; layer < slot->layer_count; layer++)
        read_layer(gradients, slot, layer, ret_values + layer * size);
    *ret_count = count;
    return true;
}

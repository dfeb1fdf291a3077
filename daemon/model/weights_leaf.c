#include "daemon/model/weights_leaf.h"

#include "daemon/model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define BLOCK "stack/layers/block/"
#define IN_WEIGHTS(member) PLACE_WEIGHTS, offsetof(struct weights, member), false
#define IN_ENGRAM(member) PLACE_ENGRAM, offsetof(struct engram_weights, member), false
#define IN_LAYER(member) PLACE_LAYER, offsetof(struct layer_weights, member), false
#define MAPPED_IN_ENGRAM(member) PLACE_ENGRAM, offsetof(struct engram_weights, member), true
#define MAPPED_IN_LAYER(member) PLACE_LAYER, offsetof(struct layer_weights, member), true
#define PACKED PLACE_PACKED, 0, false

/* clang-format off */
const struct weights_leaf weights_leaves[] = {
    {"embedding/embedding", IN_WEIGHTS(embedding), GRID_ROWS, {AXIS_VOCAB, AXIS_WIDTH}},
    {"engrams_%zu/embedding", MAPPED_IN_ENGRAM(table), GRID_ROWS, {AXIS_TABLES, AXIS_SLOTS, AXIS_SUB}},
    {"engrams_%zu/key_proj/kernel", IN_ENGRAM(key), GRID_COLUMNS, {AXIS_WIDTH, AXIS_WIDTH}},
    {"engrams_%zu/taps", IN_ENGRAM(taps), GRID_NONE, {AXIS_ENGRAM_TAPS, AXIS_WIDTH}},
    {"engrams_%zu/value_proj/kernel", IN_ENGRAM(value), GRID_COLUMNS, {AXIS_WIDTH, AXIS_WIDTH}},
    {"stack/final_norm/scale", IN_WEIGHTS(final_norm), GRID_NONE, {AXIS_WIDTH}},
    {BLOCK "ZCRMSNorm_0/scale", IN_LAYER(attn_norm), GRID_NONE, {AXIS_WIDTH}},
    {BLOCK "attn_gate", IN_LAYER(attn_gate), GRID_NONE, {AXIS_END}},
    {BLOCK "hadamard_mlp/b2", IN_LAYER(monarch.b2), GRID_NONE, {AXIS_PADDED}},
    {BLOCK "hadamard_mlp/cond_u", IN_LAYER(monarch.cond_u), GRID_NONE,
     {AXIS_CONDITION, AXIS_PADDED}},
    {BLOCK "hadamard_mlp/cond_v", IN_LAYER(monarch.cond_v), GRID_NONE,
     {AXIS_WIDTH, AXIS_CONDITION}},
    {BLOCK "hadamard_mlp/d1", IN_LAYER(monarch.d1), GRID_NONE, {AXIS_PADDED}},
    {BLOCK "hadamard_mlp/d2", IN_LAYER(monarch.d2), GRID_NONE, {AXIS_PADDED}},
    {BLOCK "hadamard_mlp/d3", IN_LAYER(monarch.d3), GRID_NONE, {AXIS_PADDED}},
    {BLOCK "hadamard_mlp/d4", IN_LAYER(monarch.d4), GRID_NONE, {AXIS_PADDED}},
    {BLOCK "hadamard_mlp/w1a", IN_LAYER(monarch.w1a), GRID_NONE, {AXIS_LEFT, AXIS_LEFT}},
    {BLOCK "hadamard_mlp/w1b", IN_LAYER(monarch.w1b), GRID_NONE, {AXIS_RIGHT, AXIS_RIGHT}},
    {BLOCK "hadamard_mlp/w2a", IN_LAYER(monarch.w2a), GRID_NONE, {AXIS_LEFT, AXIS_LEFT}},
    {BLOCK "hadamard_mlp/w2b", IN_LAYER(monarch.w2b), GRID_NONE, {AXIS_RIGHT, AXIS_RIGHT}},
    {BLOCK "hadamard_mlp/w3a", IN_LAYER(monarch.w3a), GRID_NONE, {AXIS_LEFT, AXIS_LEFT}},
    {BLOCK "hadamard_mlp/w3b", IN_LAYER(monarch.w3b), GRID_NONE, {AXIS_RIGHT, AXIS_RIGHT}},
    {BLOCK "post_attn_norm/scale", IN_LAYER(post_attn_norm), GRID_NONE, {AXIS_WIDTH}},
    {BLOCK "pre_hada_norm/scale", IN_LAYER(pre_hada_norm), GRID_NONE, {AXIS_WIDTH}},
    {BLOCK "self_attn/gate_proj/kernel", MAPPED_IN_LAYER(kernel_base[PROJECTION_GATE]), GRID_COLUMNS,
     {AXIS_WIDTH, AXIS_GATE}},
    {BLOCK "self_attn/k_norm/scale", IN_LAYER(k_norm), GRID_NONE, {AXIS_QK_HEAD}},
    {BLOCK "self_attn/k_proj/kernel", MAPPED_IN_LAYER(kernel_base[PROJECTION_K]), GRID_COLUMNS,
     {AXIS_WIDTH, AXIS_K}},
    {BLOCK "self_attn/k_taps", IN_LAYER(k_taps), GRID_NONE, {AXIS_CONV_TAPS, AXIS_K}},
    {BLOCK "self_attn/out_proj/kernel", MAPPED_IN_LAYER(kernel_base[PROJECTION_OUT]), GRID_COLUMNS,
     {AXIS_GATE, AXIS_WIDTH}},
    {BLOCK "self_attn/q_norm/scale", IN_LAYER(q_norm), GRID_NONE, {AXIS_QK_HEAD}},
    {BLOCK "self_attn/q_proj/kernel", MAPPED_IN_LAYER(kernel_base[PROJECTION_Q]), GRID_COLUMNS,
     {AXIS_WIDTH, AXIS_Q}},
    {BLOCK "self_attn/q_taps", IN_LAYER(q_taps), GRID_NONE, {AXIS_CONV_TAPS, AXIS_Q}},
    {BLOCK "self_attn/v_proj/kernel", MAPPED_IN_LAYER(kernel_base[PROJECTION_V]), GRID_COLUMNS,
     {AXIS_WIDTH, AXIS_V}},
    {BLOCK "self_attn/v_taps", IN_LAYER(v_taps), GRID_NONE, {AXIS_CONV_TAPS, AXIS_V}},
    {"stack/mhc_a_post", PACKED, GRID_NONE, {AXIS_END}},
    {"stack/mhc_a_pre", PACKED, GRID_NONE, {AXIS_END}},
    {"stack/mhc_a_res", PACKED, GRID_NONE, {AXIS_END}},
    {"stack/mhc_b_post", PACKED, GRID_NONE, {AXIS_LANES}},
    {"stack/mhc_b_pre", PACKED, GRID_NONE, {AXIS_LANES}},
    {"stack/mhc_b_res", PACKED, GRID_NONE, {AXIS_LANES, AXIS_LANES}},
    {"stack/mhc_phi_post", PACKED, GRID_COLUMNS, {AXIS_LANES_WIDTH, AXIS_LANES}},
    {"stack/mhc_phi_pre", PACKED, GRID_COLUMNS, {AXIS_LANES_WIDTH, AXIS_LANES}},
    {"stack/mhc_phi_res", PACKED, GRID_COLUMNS, {AXIS_LANES_WIDTH, AXIS_LANES_SQUARED}},
};
/* clang-format on */
const size_t weights_leaf_count = COUNT_OF(weights_leaves);

size_t weights_leaf_axis(const struct geometry *geometry, enum weights_axis axis)
{
    switch (axis) {
    case AXIS_END:
        return 1;
    case AXIS_VOCAB:
        return geometry->vocab_size;
    case AXIS_WIDTH:
        return geometry->d_model;
    case AXIS_PADDED:
        return geometry->monarch_size;
    case AXIS_LEFT:
        return geometry->monarch_a;
    case AXIS_RIGHT:
        return geometry->monarch_b;
    case AXIS_CONDITION:
        return CONDITION_RANK;
    case AXIS_Q:
        return geometry->head_count * geometry->qk_head_size;
    case AXIS_K:
        return geometry->kv_head_count * geometry->qk_head_size;
    case AXIS_V:
        return geometry->kv_head_count * geometry->v_head_size;
    case AXIS_GATE:
        return geometry->head_count * geometry->v_head_size;
    case AXIS_QK_HEAD:
        return geometry->qk_head_size;
    case AXIS_CONV_TAPS:
        return geometry->conv_taps;
    case AXIS_LANES:
        return geometry->lane_count;
    case AXIS_LANES_SQUARED:
        return geometry->lane_count * geometry->lane_count;
    case AXIS_LANES_WIDTH:
        return geometry->lane_count * geometry->d_model;
    case AXIS_TABLES:
        return geometry->engram_order_count * geometry->engram_heads;
    case AXIS_SLOTS:
        return geometry->engram_slots;
    case AXIS_SUB:
        return geometry->engram_sub;
    case AXIS_ENGRAM_TAPS:
        return ENGRAM_TAPS;
    }
    assert(!"an axis without a size");
    return 0;
}

bool weights_leaf_wanted(const struct weights_leaf *leaf, const struct geometry *geometry)
{
    return leaf->axes[0] != AXIS_CONV_TAPS || geometry->conv_taps > 0;
}

size_t weights_leaf_copies(const struct weights_leaf *leaf, const struct geometry *geometry)
{
    return leaf->place == PLACE_ENGRAM ? geometry->engram_site_count : 1;
}

size_t weights_leaf_columns(const struct weights_leaf *leaf, const struct geometry *geometry)
{
    size_t columns = 1;

    for (size_t i = 0; i < COUNT_OF(leaf->axes) && leaf->axes[i] != AXIS_END; i++)
        columns = weights_leaf_axis(geometry, leaf->axes[i]);
    return columns;
}

size_t weights_leaf_elements(const struct weights_leaf *leaf, const struct geometry *geometry)
{
    size_t elements = 1;

    for (size_t i = 0; i < COUNT_OF(leaf->axes) && leaf->axes[i] != AXIS_END; i++)
        elements *= weights_leaf_axis(geometry, leaf->axes[i]); /* bounded by geometry_parse */
    return elements;
}

size_t weights_leaf_layers(const struct weights_leaf *leaf, const struct geometry *geometry)
{
    return leaf->place == PLACE_LAYER || leaf->place == PLACE_PACKED ? geometry->layer_count : 1;
}

/* ---- in a file ------------------------------------------------------------------------------- */

void weights_leaf_shape(const struct weights_leaf *leaf, const struct geometry *geometry,
                        size_t ret_shape[LIMIT_TENSOR_RANK], size_t *ret_rank)
{
    size_t rank = 0;

    if (leaf->place == PLACE_LAYER || leaf->place == PLACE_PACKED)
        ret_shape[rank++] = geometry->layer_count;
    for (size_t i = 0; i < COUNT_OF(leaf->axes) && leaf->axes[i] != AXIS_END; i++)
        ret_shape[rank++] = weights_leaf_axis(geometry, leaf->axes[i]);
    *ret_rank = rank;
}

void weights_leaf_name(const struct weights_leaf *leaf, size_t site,
                       char ret_name[WEIGHTS_LEAF_NAME_BYTES])
{
    const char *mark = strstr(leaf->name, "%zu");

    if (mark)
        (void)snprintf(ret_name, WEIGHTS_LEAF_NAME_BYTES, "%.*s%zu%s", (int)(mark - leaf->name),
                       leaf->name, site, mark + strlen("%zu")); /* the table's names fit */
    else
        (void)snprintf(ret_name, WEIGHTS_LEAF_NAME_BYTES, "%s", leaf->name);
}

static void shape_text(const size_t *shape, size_t rank, char *ret_text, size_t capacity)
{
    size_t used = 0;

    ret_text[0] = 0;
    for (size_t i = 0; i < rank && used < capacity; i++) {
        int added = snprintf(ret_text + used, capacity - used, "%s%zu", i ? "," : "", shape[i]);

        used += added > 0 ? (size_t)added : 0;
    }
}

bool weights_leaf_find(const struct safetensors *file, const struct geometry *geometry,
                       const struct weights_leaf *leaf, size_t site,
                       const struct tensor **ret_tensor, struct error *err)
{
    char name[WEIGHTS_LEAF_NAME_BYTES], wanted_text[96], found_text[192];
    size_t wanted[LIMIT_TENSOR_RANK], rank;
    const struct tensor *tensor;

    weights_leaf_name(leaf, site, name);
    weights_leaf_shape(leaf, geometry, wanted, &rank);
    shape_text(wanted, rank, wanted_text, sizeof(wanted_text));
    tensor = safetensors_find(file, name);
    if (!tensor)
        return error_set(err, ERR_INVALID, "tensor '%s' [%s] is missing", name, wanted_text);
    shape_text(tensor->shape, tensor->rank, found_text, sizeof(found_text));
    if (tensor->rank != rank || memcmp(tensor->shape, wanted, rank * sizeof(wanted[0])) != 0)
        return error_set(err, ERR_INVALID, "tensor '%s' has the shape [%s], the config wants [%s]",
                         name, found_text, wanted_text);
    if (tensor->type != TENSOR_F32 && tensor->type != TENSOR_F16 && tensor->type != TENSOR_BF16)
        return error_set(err, ERR_INVALID,
                         "tensor '%s' has element type %s, F32, F16 or BF16 was needed", name,
                         tensor_type_name(tensor->type));
    *ret_tensor = tensor;
    return true;
}

bool weights_leaf_find_named(const struct safetensors *file, const struct geometry *geometry,
                             const char *name, const struct tensor **ret_tensor, struct error *err)
{
    for (size_t i = 0; i < weights_leaf_count; i++)
        if (strcmp(weights_leaves[i].name, name) == 0)
            return weights_leaf_find(file, geometry, &weights_leaves[i], 0, ret_tensor, err);
    assert(!"a name that is not in the table");
    return false;
}

bool weights_leaf_check(const struct safetensors *file, const struct geometry *geometry,
                        size_t *ret_parameter_count, struct error *err)
{
    const struct tensor *tensor = NULL;
    size_t parameters = 0;

    for (size_t i = 0; i < weights_leaf_count; i++) {
        const struct weights_leaf *leaf = &weights_leaves[i];

        if (!weights_leaf_wanted(leaf, geometry))
            continue;
        for (size_t site = 0; site < weights_leaf_copies(leaf, geometry); site++) {
            if (!weights_leaf_find(file, geometry, leaf, site, &tensor, err))
                return false;
            parameters +=
                weights_leaf_layers(leaf, geometry) * weights_leaf_elements(leaf, geometry);
        }
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;

        if (strncmp(name, "ab_scales/", strlen("ab_scales/")) == 0)
            return error_set(err, ERR_INVALID,
                             "tensor '%.100s': weights with scales of their own around the "
                             "quantiser are not supported",
                             name);
    }
    *ret_parameter_count = parameters;
    return true;
}

#include "daemon/model/weights.h"

#include "daemon/base/pulse.h"
#include "daemon/model/codebook.h"
#include "daemon/model/random.h"
#include "daemon/model/safetensors.h"
#include "daemon/model/weights_leaf.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION "2"
#define PERMUTATION_COUNT 2
#define SPLIT_SEED_STEP 977 /* from the first half's seed to the second's */
#define EXTRA_ALLOCATIONS (PROJECTION_COUNT + 3 + 2 + PERMUTATION_COUNT + 2)
#define ZERO_MAX 1e-6F

static const uint32_t permutation_seeds[PERMUTATION_COUNT] = {11, 13};

const char *projection_path(enum projection projection)
{
    static const char *const paths[] = {
        [PROJECTION_GATE] = "stack/layers/block/self_attn/gate_proj/kernel",
        [PROJECTION_K] = "stack/layers/block/self_attn/k_proj/kernel",
        [PROJECTION_OUT] = "stack/layers/block/self_attn/out_proj/kernel",
        [PROJECTION_Q] = "stack/layers/block/self_attn/q_proj/kernel",
        [PROJECTION_V] = "stack/layers/block/self_attn/v_proj/kernel",
    };
    static_assert(COUNT_OF(paths) == PROJECTION_COUNT, "every projection has a path");

    assert(projection < PROJECTION_COUNT);
    return paths[projection];
}

void projection_shape(const struct geometry *geometry, enum projection projection, size_t *ret_in,
                      size_t *ret_out)
{
    static const enum weights_axis axes[][2] = {
        [PROJECTION_GATE] = {AXIS_WIDTH, AXIS_GATE}, [PROJECTION_K] = {AXIS_WIDTH, AXIS_K},
        [PROJECTION_OUT] = {AXIS_GATE, AXIS_WIDTH},  [PROJECTION_Q] = {AXIS_WIDTH, AXIS_Q},
        [PROJECTION_V] = {AXIS_WIDTH, AXIS_V},
    };
    static_assert(COUNT_OF(axes) == PROJECTION_COUNT, "every projection has a shape");

    assert(projection < PROJECTION_COUNT);
    *ret_in = weights_leaf_axis(geometry, axes[projection][0]);
    *ret_out = weights_leaf_axis(geometry, axes[projection][1]);
}

static size_t coefficient_count(const struct geometry *geometry)
{
    return 2 * geometry->lane_count + geometry->lane_count * geometry->lane_count;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool open_checkpoint(const char *path, struct safetensors **ret_file,
                            struct geometry *ret_geometry, size_t *ret_parameter_count,
                            struct error *err)
{
    struct safetensors *file = NULL;
    const char *version, *config;

    if (!safetensors_open(path, &file, err))
        return false;
    version = safetensors_metadata(file, "format_version");
    config = safetensors_metadata(file, "config");
    if (!config || !config[0])
        error_set(err, ERR_INVALID, "the metadata holds no 'config': not a checkpoint of a model");
    else if (!version || strcmp(version, FORMAT_VERSION) != 0)
        error_set(err, ERR_INVALID, "checkpoint format version '%.20s', '%s' was needed",
                  version ? version : "", FORMAT_VERSION);
    else if (geometry_parse(config, ret_geometry, err) &&
             weights_leaf_check(file, ret_geometry, ret_parameter_count, err)) {
        *ret_file = file;
        return true;
    }
    error_wrap(err, "checkpoint '%s'", path);
    safetensors_close(file);
    return false;
}

bool weights_check(const char *path, struct geometry *ret_geometry, size_t *ret_parameter_count,
                   struct error *err)
{
    struct safetensors *file = NULL;
    struct geometry geometry;
    size_t parameters;

    if (!open_checkpoint(path, &file, &geometry, &parameters, err))
        return false;
    safetensors_close(file);
    *ret_geometry = geometry;
    *ret_parameter_count = parameters;
    return true;
}

size_t weights_device_bytes(const struct geometry *geometry)
{
    size_t layers = geometry->layer_count, floats = 0;

    for (size_t i = 0; i < weights_leaf_count; i++) {
        const struct weights_leaf *leaf = &weights_leaves[i];

        if (!leaf->mapped && weights_leaf_wanted(leaf, geometry))
            floats += weights_leaf_copies(leaf, geometry) * weights_leaf_layers(leaf, geometry) *
                      weights_leaf_elements(leaf, geometry);
    }
    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        size_t in, out;

        projection_shape(geometry, p, &in, &out);
        floats += layers * in * out;
    }
    floats += geometry->max_seq_len * (geometry->qk_head_size / 2) * 2;
    floats += PERMUTATION_COUNT * geometry->monarch_size + CODEBOOK_MAX;
    if (geometry->kv_bits && geometry->kv_bits < 8)
        floats += (size_t)1 << geometry->kv_bits;
    return floats * sizeof(float);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void *take(struct weights *weights, size_t size_bytes, struct error *err)
{
    void *memory = backend_alloc(weights->backend, size_bytes);

    if (!memory) {
        error_set(err, ERR_NO_MEMORY, "the weights take %zu bytes of device memory: %s",
                  weights_device_bytes(&weights->geometry), backend_fault(weights->backend));
        return NULL;
    }
    weights->allocations[weights->allocation_count++] = memory;
    weights->device_bytes += size_bytes;
    return memory;
}

/* Fresh device memory with these host bytes in it. */
static void *place(struct weights *weights, const void *source, size_t size_bytes,
                   struct error *err)
{
    void *memory = take(weights, size_bytes, err);

    if (memory)
        backend_upload(weights->backend, memory, source, size_bytes);
    return memory;
}

static bool refuse_numbers(const struct tensor *tensor, struct error *err)
{
    return error_set(err, ERR_INVALID, "tensor '%.100s' holds a number that is not finite",
                     tensor->name);
}

static bool convert(const struct tensor *tensor, float *ret_values, struct error *err)
{
    if (!isfinite(tensor_largest(tensor)))
        return refuse_numbers(tensor, err);
    return tensor_to_f32(tensor, ret_values, err);
}

/* As ops read a tensor: where it lies, on its grid. The device's view is released with the weights. */
static bool import_tensor(struct weights *weights, const struct weights_leaf *leaf,
                          const struct tensor *tensor, struct table *ret_table, struct error *err)
{
    const bool rounded = weights->numerics == NUMERICS_W4A8 && leaf->grid != GRID_NONE;
    const void *values = backend_import(weights->backend, tensor->data, tensor->size_bytes);

    if (!values)
        return error_set(err, ERR_NO_MEMORY, "tensor '%.100s' takes %zu bytes of device memory: %s",
                         tensor->name, tensor->size_bytes, backend_fault(weights->backend));
    weights->imports[weights->import_count++] = values;
    *ret_table = (struct table){
        .values = values,
        .storage = tensor->type == TENSOR_F32   ? STORAGE_F32
                   : tensor->type == TENSOR_F16 ? STORAGE_F16
                                                : STORAGE_BF16,
        .codebook = rounded ? &weights->weight_codebook : NULL,
    };
    return true;
}

/* Leaves a tensor in the file and its pages out of memory. */
static bool map_leaf(struct weights *weights, const struct weights_leaf *leaf,
                     const struct tensor *tensor, size_t site, struct error *err)
{
    const float largest = tensor_largest(tensor);
    struct table table;

    if (!isfinite(largest))
        return refuse_numbers(tensor, err);
    tensor_drop_pages(tensor);
    if (!import_tensor(weights, leaf, tensor, &table, err))
        return false;
    if (leaf->place == PLACE_ENGRAM) {
        memcpy((char *)&weights->engrams[site] + leaf->offset, &table, sizeof(table));
        return true;
    }
    assert(leaf->place == PLACE_LAYER);
    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        if (strcmp(leaf->name, projection_path(p)) == 0)
            weights->zero[p] = !(largest > ZERO_MAX);
    for (size_t layer = 0; layer < weights->geometry.layer_count; layer++) {
        memcpy((char *)&weights->layers[layer] + leaf->offset, &table, sizeof(table));
        table.values = (const char *)table.values + tensor->size_bytes / tensor->shape[0];
    }
    return true;
}

/* A matrix with a grid: converted and rounded on the device, straight from the file, whose pages
 * are not needed again. */
static bool freeze_leaf(struct weights *weights, const struct weights_leaf *leaf,
                        const struct tensor *tensor, float **ret_device, struct error *err)
{
    const size_t cols = weights_leaf_columns(leaf, &weights->geometry);
    struct table table;
    float *device;

    if (!isfinite(tensor_largest(tensor)))
        return refuse_numbers(tensor, err);
    device = take(weights, tensor->element_count * sizeof(*device), err);
    if (!device || !import_tensor(weights, leaf, tensor, &table, err))
        return false;
    backend_merge(weights->backend, device, &table, NULL, NULL, 0, tensor->element_count / cols,
                  cols, 0, leaf->grid == GRID_COLUMNS);
    backend_release_import(weights->backend, weights->imports[--weights->import_count]);
    tensor_drop_pages(tensor);
    *ret_device = device;
    return true;
}

/* The small rest: float32 as in the file. */
static bool copy_leaf(struct weights *weights, const struct tensor *tensor, float **ret_device,
                      struct error *err)
{
    const size_t size_bytes = tensor->element_count * sizeof(float);
    float *host = malloc(size_bytes), *device = NULL;

    if (!host)
        return error_set(err, ERR_NO_MEMORY, "no memory to convert tensor '%.100s' of %zu values",
                         tensor->name, tensor->element_count);
    if (convert(tensor, host, err))
        device = place(weights, host, size_bytes, err);
    free(host);
    if (!device)
        return false;
    *ret_device = device;
    return true;
}

static void set_pointer(void *owner, size_t offset, const float *pointer)
{
    memcpy((char *)owner + offset, &pointer, sizeof(pointer));
}

static bool load_leaf(struct weights *weights, const struct weights_leaf *leaf, size_t site,
                      struct error *err)
{
    const size_t elements = weights_leaf_elements(leaf, &weights->geometry);
    const struct tensor *tensor = NULL;
    float *device = NULL;

    if (!weights_leaf_find(weights->file, &weights->geometry, leaf, site, &tensor, err))
        return false;
    if (leaf->mapped)
        return map_leaf(weights, leaf, tensor, site, err);
    if (leaf->grid == GRID_NONE ? !copy_leaf(weights, tensor, &device, err)
                                : !freeze_leaf(weights, leaf, tensor, &device, err))
        return false;
    if (leaf->place == PLACE_WEIGHTS)
        set_pointer(weights, leaf->offset, device);
    else if (leaf->place == PLACE_ENGRAM)
        set_pointer(&weights->engrams[site], leaf->offset, device);
    else
        for (size_t layer = 0; layer < weights->geometry.layer_count; layer++)
            set_pointer(&weights->layers[layer], leaf->offset, device + layer * elements);
    return true;
}

static bool load_leaves(struct weights *weights, const atomic_bool *stop, struct error *err)
{
    for (size_t i = 0; i < weights_leaf_count; i++) {
        const struct weights_leaf *leaf = &weights_leaves[i];

        if (leaf->place == PLACE_PACKED || !weights_leaf_wanted(leaf, &weights->geometry))
            continue;
        for (size_t site = 0; site < weights_leaf_copies(leaf, &weights->geometry); site++) {
            pulse_beat();
            if (stop && atomic_load_explicit(stop, memory_order_relaxed)) /* it guards no data */
                return error_set(err, ERR_CANCELLED, "stopped while the weights were loaded");
            if (!load_leaf(weights, leaf, site, err))
                return false;
        }
    }
    return true;
}

static bool take_kernels(struct weights *weights, struct error *err)
{
    size_t in, out;

    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        float *memory;

        projection_shape(&weights->geometry, p, &in, &out);
        memory = take(weights, weights->geometry.layer_count * in * out * sizeof(*memory), err);
        if (!memory)
            return false;
        for (size_t layer = 0; layer < weights->geometry.layer_count; layer++)
            weights->layers[layer].kernel[p] = memory + layer * in * out;
    }
    return true;
}

/* Packs tensors [layers, rows, cols[i]] side by side: [layers, rows, sum of cols]. */
static bool pack(const struct weights *weights, const char *const names[3], size_t rows,
                 const size_t cols[3], float *ret_packed, struct error *err)
{
    size_t total = cols[0] + cols[1] + cols[2], start = 0;
    const struct tensor *tensor = NULL;

    for (size_t i = 0; i < 3; i++) {
        float *values;

        if (!weights_leaf_find_named(weights->file, &weights->geometry, names[i], &tensor, err))
            return false;
        values = malloc(tensor->element_count * sizeof(*values));
        if (!values)
            return error_set(err, ERR_NO_MEMORY, "no memory to convert tensor '%s' of %zu values",
                             names[i], tensor->element_count);
        if (!convert(tensor, values, err)) {
            free(values);
            return false;
        }
        assert(tensor->element_count == weights->geometry.layer_count * rows * cols[i]);
        for (size_t row = 0; row < weights->geometry.layer_count * rows; row++)
            memcpy(ret_packed + row * total + start, values + row * cols[i],
                   cols[i] * sizeof(*values));
        free(values);
        start += cols[i];
    }
    return true;
}

/* Each layer prefers its own lane: the offsets that go with b_pre and b_post. */
static void add_offsets(const struct geometry *geometry, float *bias)
{
    size_t lanes = geometry->lane_count;

    for (size_t layer = 0; layer < geometry->layer_count; layer++) {
        float *pre = bias + layer * coefficient_count(geometry), *post = pre + lanes;

        for (size_t lane = 0; lane < lanes; lane++) {
            bool own = lane == layer % lanes;

            pre[lane] += own ? 4.0F : -4.0F;
            post[lane] += own ? 0.0F : -4.0F;
        }
    }
}

/* The hyper-connections' three matrices, biases and scales, each packed into one array. */
static bool load_hyper(struct weights *weights, struct error *err)
{
    static const char *const phi_names[] = {"stack/mhc_phi_pre", "stack/mhc_phi_post",
                                            "stack/mhc_phi_res"};
    static const char *const bias_names[] = {"stack/mhc_b_pre", "stack/mhc_b_post",
                                             "stack/mhc_b_res"};
    static const char *const scale_names[] = {"stack/mhc_a_pre", "stack/mhc_a_post",
                                              "stack/mhc_a_res"};
    const struct geometry *geometry = &weights->geometry;
    size_t lanes = geometry->lane_count, layers = geometry->layer_count;
    size_t rows = lanes * geometry->d_model, M = coefficient_count(geometry);
    const size_t cols[3] = {lanes, lanes, lanes * lanes}, ones[3] = {1, 1, 1};
    float *host = malloc(layers * rows * M * sizeof(*host)), *phi = NULL, *bias = NULL;
    float *scale = NULL;

    if (!host)
        return error_set(err, ERR_NO_MEMORY, "no memory to pack %zu values", layers * rows * M);
    if (pack(weights, phi_names, rows, cols, host, err))
        phi = place(weights, host, layers * rows * M * sizeof(*host), err);
    if (phi && pack(weights, bias_names, 1, cols, host, err)) {
        add_offsets(geometry, host);
        bias = place(weights, host, layers * M * sizeof(*host), err);
    }
    if (bias && pack(weights, scale_names, 1, ones, host, err))
        scale = place(weights, host, layers * 3 * sizeof(*host), err);
    free(host);
    if (!scale)
        return false;
    for (size_t layer = 0; layer < layers; layer++) {
        float *matrix = phi + layer * rows * M;

        if (weights->numerics == NUMERICS_W4A8)
            backend_round_code(weights->backend, matrix, NULL, NULL, matrix,
                               &weights->weight_codebook, rows, M, true);
        weights->layers[layer].hyper = (struct hyper){
            .lanes = lanes,
            .D = geometry->d_model,
            .phi = matrix,
            .bias = bias + layer * M,
            .scale = scale + layer * 3,
            .rounding = weights->numerics == NUMERICS_W4A8 ? ROUND_A8 : ROUND_NONE,
        };
    }
    return true;
}

static bool make_permutations(struct weights *weights, struct error *err)
{
    const struct geometry *geometry = &weights->geometry;
    size_t size = geometry->monarch_size, half = size / 2;
    int32_t *host = malloc(size * sizeof(*host)), *device[PERMUTATION_COUNT];

    if (!host)
        return error_set(err, ERR_NO_MEMORY, "no memory for a permutation of %zu", size);
    for (size_t i = 0; i < PERMUTATION_COUNT; i++) {
        if (geometry->split_permutations) {
            random_mt_permutation(permutation_seeds[i], half, host);
            random_mt_permutation(permutation_seeds[i] + SPLIT_SEED_STEP, half, host + half);
            for (size_t j = half; j < size; j++)
                host[j] += (int32_t)half;
        } else {
            random_mt_permutation(permutation_seeds[i], size, host);
        }
        device[i] = place(weights, host, size * sizeof(*host), err);
        if (!device[i]) {
            free(host);
            return false;
        }
    }
    free(host);
    for (size_t layer = 0; layer < geometry->layer_count; layer++) {
        struct monarch *monarch = &weights->layers[layer].monarch;

        monarch->D = geometry->d_model;
        monarch->P = size;
        monarch->a = geometry->monarch_a;
        monarch->b = geometry->monarch_b;
        monarch->rank = CONDITION_RANK;
        monarch->p1 = device[0];
        monarch->p2 = device[1];
    }
    return true;
}

/* angle[t,i] = t / theta^(2 i / size), each step in float32 as the reference computes it. */
static bool make_rotations(struct weights *weights, struct error *err)
{
    size_t half = weights->geometry.qk_head_size / 2, rows = weights->geometry.max_seq_len;
    size_t size_bytes = rows * half * sizeof(float);
    float *cosines = malloc(size_bytes), *sines = malloc(size_bytes);

    if (!cosines || !sines) {
        error_set(err, ERR_NO_MEMORY, "no memory for rotations of %zu positions", rows);
        goto out;
    }
    for (size_t i = 0; i < half; i++) {
        float exponent = (float)(2 * i) / (float)(2 * half);
        float frequency = 1.0F / powf((float)weights->geometry.rope_theta, exponent);

        for (size_t t = 0; t < rows; t++) {
            cosines[t * half + i] = cosf((float)t * frequency);
            sines[t * half + i] = sinf((float)t * frequency);
        }
    }
    weights->rope_cos = place(weights, cosines, size_bytes, err);
    if (weights->rope_cos)
        weights->rope_sin = place(weights, sines, size_bytes, err);
out:
    free(cosines);
    free(sines);
    return weights->rope_sin != NULL;
}

static bool make_codebook(struct weights *weights, int bits, size_t group,
                          struct codebook *ret_codebook, struct error *err)
{
    float values[CODEBOOK_MAX], *device;
    size_t count = codebook_values(bits, group, values);

    device = place(weights, values, count * sizeof(*values), err);
    if (!device)
        return false;
    *ret_codebook = (struct codebook){.values = device, .count = count, .group = group};
    return true;
}

/* kernel = round(base) in every layer. */
static void use_base(struct weights *weights, enum projection projection)
{
    size_t in, out;

    projection_shape(&weights->geometry, projection, &in, &out);
    for (size_t i = 0; i < weights->geometry.layer_count; i++) {
        struct layer_weights *layer = &weights->layers[i];

        backend_merge(weights->backend, layer->kernel[projection], &layer->kernel_base[projection],
                      NULL, NULL, 0, in, out, 0, true);
    }
}

static bool load_all(struct weights *weights, const atomic_bool *stop, struct error *err)
{
    const struct geometry *geometry = &weights->geometry;
    size_t most = weights_leaf_count * (1 + geometry->engram_site_count) + EXTRA_ALLOCATIONS;

    weights->layers = calloc(geometry->layer_count, sizeof(*weights->layers));
    weights->engrams = calloc(geometry->engram_site_count + 1, sizeof(*weights->engrams));
    weights->allocations = calloc(most, sizeof(*weights->allocations));
    weights->imports = calloc(most, sizeof(*weights->imports));
    if (!weights->layers || !weights->engrams || !weights->allocations || !weights->imports)
        return error_set(err, ERR_NO_MEMORY, "no memory for the weights' tables");
    if (!make_codebook(weights, WEIGHT_BITS, WEIGHT_GROUP, &weights->weight_codebook, err))
        return false;
    if (geometry->kv_bits && geometry->kv_bits < 8 &&
        !make_codebook(weights, geometry->kv_bits, KV_GROUP, &weights->kv_codebook, err))
        return false;
    if (!load_leaves(weights, stop, err) || !take_kernels(weights, err) ||
        !load_hyper(weights, err) || !make_permutations(weights, err) ||
        !make_rotations(weights, err))
        return false;
    assert(weights->allocation_count <= most);
    assert(weights->import_count <= most);
    assert(weights->device_bytes == weights_device_bytes(geometry));
    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        if (weights->zero[p]) /* no adapter will merge it */
            use_base(weights, p);
    if (backend_sync(weights->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(weights->backend));
    return true;
}

bool weights_load(struct backend *be, const char *path, enum numerics numerics,
                  const atomic_bool *stop, struct weights **ret_weights, struct error *err)
{
    struct weights *weights = calloc(1, sizeof(*weights));

    if (!weights)
        return error_set(err, ERR_NO_MEMORY, "no memory to load '%s'", path);
    weights->backend = be;
    weights->numerics = numerics;
    if (!open_checkpoint(path, &weights->file, &weights->geometry, &weights->parameter_count, err))
        goto out;
    weights->mapped_bytes = safetensors_size_bytes(weights->file);
    if (!load_all(weights, stop, err)) {
        error_wrap(err, "load '%s'", path);
        goto out;
    }
    *ret_weights = weights;
    return true;
out:
    weights_free(weights);
    return false;
}

void weights_free(struct weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->import_count; i++)
        backend_release_import(weights->backend, weights->imports[i]);
    for (size_t i = 0; i < weights->allocation_count; i++)
        backend_free(weights->backend, weights->allocations[i]);
    free(weights->imports);
    free(weights->allocations);
    free(weights->engrams);
    free(weights->layers);
    safetensors_close(weights->file);
    free(weights);
}

void weights_drop_pages(const struct weights *weights)
{
    for (size_t i = 0; i < safetensors_count(weights->file); i++)
        tensor_drop_pages(safetensors_at(weights->file, i));
}

bool weights_check_unchanged(const struct weights *weights, struct error *err)
{
    if (safetensors_check_unchanged(weights->file, err))
        return true;
    error_wrap(err, "the base in use");
    return false;
}

void weights_use_base(struct weights *weights)
{
    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        use_base(weights, p);
}

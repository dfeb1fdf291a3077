#include "daemon/model/weights.h"

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

        if (weights_leaf_wanted(leaf, geometry))
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

static bool convert(const struct tensor *tensor, float *ret_values, struct error *err)
{
    if (!tensor_to_f32(tensor, ret_values, err))
        return false;
    for (size_t i = 0; i < tensor->element_count; i++)
        if (!isfinite(ret_values[i]))
            return error_set(err, ERR_INVALID, "tensor '%.100s' holds a number that is not finite",
                             tensor->name);
    return true;
}

static void note_zero(struct weights *weights, const struct weights_leaf *leaf, const float *values,
                      size_t count)
{
    float largest = 0;

    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        if (strcmp(leaf->name, projection_path(p)) == 0)
            weights->zero[p] = !(largest > ZERO_MAX);
}

/* Rounds a frozen tensor in place. The projections are not: weights_use_base and the adapter's
 * merge write their rounded form elsewhere. */
static void round_leaf(struct weights *weights, const struct weights_leaf *leaf, float *values)
{
    size_t count = weights_leaf_elements(leaf, &weights->geometry);
    size_t last = 0, cols;

    if (weights->numerics != NUMERICS_W4A8 || leaf->grid == GRID_NONE || leaf->place == PLACE_LAYER)
        return;
    while (last + 1 < COUNT_OF(leaf->axes) && leaf->axes[last + 1] != AXIS_END)
        last++;
    cols = weights_leaf_axis(&weights->geometry, leaf->axes[last]);
    backend_round_code(weights->backend, values, NULL, NULL, values, &weights->weight_codebook,
                       count / cols, cols, leaf->grid == GRID_COLUMNS);
}

static void set_pointer(void *owner, size_t offset, const float *pointer)
{
    memcpy((char *)owner + offset, &pointer, sizeof(pointer));
}

static bool load_leaf(struct weights *weights, const struct safetensors *file,
                      const struct weights_leaf *leaf, size_t site, struct error *err)
{
    size_t elements = weights_leaf_elements(leaf, &weights->geometry);
    const struct tensor *tensor = NULL;
    float *host, *device = NULL;

    if (!weights_leaf_find(file, &weights->geometry, leaf, site, &tensor, err))
        return false;
    host = malloc(tensor->element_count * sizeof(*host));
    if (!host)
        return error_set(err, ERR_NO_MEMORY, "no memory to convert tensor '%s' of %zu values",
                         leaf->name, tensor->element_count);
    if (convert(tensor, host, err))
        device = place(weights, host, tensor->element_count * sizeof(*host), err);
    if (device)
        note_zero(weights, leaf, host, tensor->element_count);
    free(host);
    if (!device)
        return false;
    round_leaf(weights, leaf, device);
    if (leaf->place == PLACE_WEIGHTS)
        set_pointer(weights, leaf->offset, device);
    else if (leaf->place == PLACE_ENGRAM)
        set_pointer(&weights->engrams[site], leaf->offset, device);
    else
        for (size_t layer = 0; layer < weights->geometry.layer_count; layer++)
            set_pointer(&weights->layers[layer], leaf->offset, device + layer * elements);
    return true;
}

static bool load_leaves(struct weights *weights, const struct safetensors *file, struct error *err)
{
    for (size_t i = 0; i < weights_leaf_count; i++) {
        const struct weights_leaf *leaf = &weights_leaves[i];

        if (leaf->place == PLACE_PACKED || !weights_leaf_wanted(leaf, &weights->geometry))
            continue;
        for (size_t site = 0; site < weights_leaf_copies(leaf, &weights->geometry); site++)
            if (!load_leaf(weights, file, leaf, site, err))
                return false;
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
static bool pack(const struct weights *weights, const struct safetensors *file,
                 const char *const names[3], size_t rows, const size_t cols[3], float *ret_packed,
                 struct error *err)
{
    size_t total = cols[0] + cols[1] + cols[2], start = 0;
    const struct tensor *tensor = NULL;

    for (size_t i = 0; i < 3; i++) {
        float *values;

        if (!weights_leaf_find_named(file, &weights->geometry, names[i], &tensor, err))
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
static bool load_hyper(struct weights *weights, const struct safetensors *file, struct error *err)
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
    if (pack(weights, file, phi_names, rows, cols, host, err))
        phi = place(weights, host, layers * rows * M * sizeof(*host), err);
    if (phi && pack(weights, file, bias_names, 1, cols, host, err)) {
        add_offsets(geometry, host);
        bias = place(weights, host, layers * M * sizeof(*host), err);
    }
    if (bias && pack(weights, file, scale_names, 1, ones, host, err))
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

static bool load_all(struct weights *weights, const struct safetensors *file, struct error *err)
{
    const struct geometry *geometry = &weights->geometry;
    size_t most = weights_leaf_count * (1 + geometry->engram_site_count) + EXTRA_ALLOCATIONS;

    weights->layers = calloc(geometry->layer_count, sizeof(*weights->layers));
    weights->engrams = calloc(geometry->engram_site_count + 1, sizeof(*weights->engrams));
    weights->allocations = calloc(most, sizeof(*weights->allocations));
    if (!weights->layers || !weights->engrams || !weights->allocations)
        return error_set(err, ERR_NO_MEMORY, "no memory for the weights' tables");
    if (!make_codebook(weights, WEIGHT_BITS, WEIGHT_GROUP, &weights->weight_codebook, err))
        return false;
    if (geometry->kv_bits && geometry->kv_bits < 8 &&
        !make_codebook(weights, geometry->kv_bits, KV_GROUP, &weights->kv_codebook, err))
        return false;
    if (!load_leaves(weights, file, err) || !take_kernels(weights, err) ||
        !load_hyper(weights, file, err) || !make_permutations(weights, err) ||
        !make_rotations(weights, err))
        return false;
    assert(weights->allocation_count <= most);
    assert(weights->device_bytes == weights_device_bytes(geometry));
    weights_use_base(weights);
    if (backend_sync(weights->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(weights->backend));
    return true;
}

bool weights_load(struct backend *be, const char *path, enum numerics numerics,
                  struct weights **ret_weights, struct error *err)
{
    struct weights *weights = calloc(1, sizeof(*weights));
    struct safetensors *file = NULL;
    bool ok = false;

    if (!weights)
        return error_set(err, ERR_NO_MEMORY, "no memory to load '%s'", path);
    weights->backend = be;
    weights->numerics = numerics;
    if (!open_checkpoint(path, &file, &weights->geometry, &weights->parameter_count, err))
        goto out;
    if (!load_all(weights, file, err)) {
        error_wrap(err, "load '%s'", path);
        goto out;
    }
    *ret_weights = weights;
    ok = true;
out:
    safetensors_close(file);
    if (!ok)
        weights_free(weights);
    return ok;
}

void weights_free(struct weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->allocation_count; i++)
        backend_free(weights->backend, weights->allocations[i]);
    free(weights->allocations);
    free(weights->engrams);
    free(weights->layers);
    free(weights);
}

void weights_use_base(struct weights *weights)
{
    size_t in, out;

    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        projection_shape(&weights->geometry, p, &in, &out);
        for (size_t i = 0; i < weights->geometry.layer_count; i++) {
            struct layer_weights *layer = &weights->layers[i];

            if (weights->numerics == NUMERICS_W4A8)
                backend_round_code(weights->backend, layer->kernel[p], NULL, NULL,
                                   layer->kernel_base[p], &weights->weight_codebook, in, out, true);
            else
                backend_copy(weights->backend, layer->kernel[p], layer->kernel_base[p],
                             in * out * sizeof(float));
        }
    }
}

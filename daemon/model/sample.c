#include "daemon/model/sample.h"

#include "daemon/model/random.h"
#include "daemon/model/weights_leaf.h"

#include <math.h>
#include <stdlib.h>

struct sample {
    struct geometry geometry;
    struct threefry_key key;
    struct tensor_out *tensors;
    char (*names)[WEIGHTS_LEAF_NAME_BYTES];
    size_t count, capacity;
};

/* A product over n values keeps their size; other values are halves, so that gains stay near 1. */
static float deviation_of(const struct tensor_out *tensor, size_t axis_count)
{
    return axis_count < 2 ? 0.5f : 1 / sqrtf((float)tensor->shape[tensor->rank - 2]);
}

static bool add_tensor(struct sample *sample, const struct weights_leaf *leaf, size_t site,
                       struct error *err)
{
    const size_t layers = weights_leaf_layers(leaf, &sample->geometry);
    const size_t count = layers * weights_leaf_elements(leaf, &sample->geometry);
    struct tensor_out *tensor = &sample->tensors[sample->count];
    float *values = malloc(count * sizeof(*values));

    if (!values)
        return error_set(err, ERR_NO_MEMORY, "no memory for '%s'", leaf->name);
    *tensor = (struct tensor_out){.type = TENSOR_F32, .data = values};
    tensor->name = sample->names[sample->count];
    weights_leaf_name(leaf, site, sample->names[sample->count]);
    weights_leaf_shape(leaf, &sample->geometry, tensor->shape, &tensor->rank);
    const bool has_layers = leaf->place == PLACE_LAYER || leaf->place == PLACE_PACKED;
    const float deviation = deviation_of(tensor, tensor->rank - has_layers);
    threefry_normal(threefry_split(&sample->key), 0, count, values);
    for (size_t i = 0; i < count; i++)
        values[i] *= deviation;
    sample->count++;
    return true;
}

static bool add_all(struct sample *sample, struct error *err)
{
    for (size_t i = 0; i < weights_leaf_count; i++) {
        const struct weights_leaf *leaf = &weights_leaves[i];

        if (!weights_leaf_wanted(leaf, &sample->geometry))
            continue;
        for (size_t site = 0; site < weights_leaf_copies(leaf, &sample->geometry); site++) {
            if (!add_tensor(sample, leaf, site, err))
                return false;
        }
    }
    return true;
}

bool sample_write(const char *path, const char *config, uint64_t seed, struct error *err)
{
    const struct metadata_out metadata[] = {{"config", config}, {"format_version", "2"}};
    struct sample sample = {.key = threefry_key_from_seed(seed)};
    char sha256[65];
    uint64_t size_bytes;
    bool ok = false;

    if (!geometry_parse(config, &sample.geometry, err))
        return false;
    sample.capacity = weights_leaf_count * (1 + sample.geometry.engram_site_count);
    sample.tensors = calloc(sample.capacity, sizeof(*sample.tensors));
    sample.names = calloc(sample.capacity, sizeof(*sample.names));
    if (sample.tensors && sample.names)
        ok = add_all(&sample, err) &&
             safetensors_write(path, sample.tensors, sample.count, metadata, COUNT_OF(metadata),
                               &size_bytes, sha256, err);
    else
        error_set(err, ERR_NO_MEMORY, "no memory for %zu tensors", sample.capacity);
    for (size_t i = 0; sample.tensors && i < sample.count; i++)
        free((void *)sample.tensors[i].data);
    free(sample.tensors);
    free(sample.names);
    return ok;
}

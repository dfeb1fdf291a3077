#include "daemon/model/model.h"

#include "daemon/base/limits.h"
#include "daemon/model/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BASE_NAME "base.safetensors"

struct model {
    struct weights *weights;
    struct lora *lora;
    struct network *network;
    uint64_t seed;
};

static bool file_in(const char *folder, const char *file, char ret_path[LIMIT_PATH_BYTES],
                    struct error *err)
{
    const int length = snprintf(ret_path, LIMIT_PATH_BYTES, "%s/%s", folder, file);

    if (length < 0 || length >= LIMIT_PATH_BYTES)
        return error_set(err, ERR_LIMIT, "path of '%s' is longer than %d bytes", file,
                         LIMIT_PATH_BYTES - 1);
    return true;
}

static bool check_base(const char *folder, struct geometry *ret_geometry,
                       size_t *ret_parameter_count, struct error *err)
{
    char path[LIMIT_PATH_BYTES];

    return file_in(folder, BASE_NAME, path, err) &&
           weights_check(path, ret_geometry, ret_parameter_count, err);
}

static bool open_tokenizer(const char *folder, const struct geometry *geometry,
                           struct tokenizer **ret_tokenizer, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct tokenizer *tokenizer;

    if (!file_in(folder, "tokenizer.model", path, err) || !tokenizer_open(path, &tokenizer, err))
        return false;
    const size_t count = tokenizer_piece_count(tokenizer);
    if (count > geometry->vocab_size) {
        tokenizer_close(tokenizer);
        return error_set(err, ERR_CORRUPT,
                         "tokenizer '%s' has %zu pieces, the base's vocabulary %zu", path, count,
                         geometry->vocab_size);
    }
    *ret_tokenizer = tokenizer;
    return true;
}

bool model_inspect(const char *folder, struct model_info *ret_info, struct error *err)
{
    struct geometry g;
    struct tokenizer *tokenizer;
    size_t parameter_count;

    if (!check_base(folder, &g, &parameter_count, err) ||
        !open_tokenizer(folder, &g, &tokenizer, err))
        return false;
    tokenizer_close(tokenizer);
    *ret_info = (struct model_info){.layer_count = g.layer_count,
                                    .d_model = g.d_model,
                                    .vocab_size = g.vocab_size,
                                    .out_vocab = g.out_vocab,
                                    .max_seq_len = g.max_seq_len,
                                    .parameter_count = parameter_count};
    return true;
}

bool model_inspect_adapter(const char *path, size_t *ret_rank, double *ret_alpha, struct error *err)
{
    return lora_inspect(path, ret_rank, ret_alpha, err);
}

bool model_open_tokenizer(const char *folder, struct tokenizer **ret_tokenizer, struct error *err)
{
    struct geometry geometry;
    size_t parameter_count;

    return check_base(folder, &geometry, &parameter_count, err) &&
           open_tokenizer(folder, &geometry, ret_tokenizer, err);
}

bool model_plan(const char *folder, const struct model_spec *spec, struct model_plan *ret_plan,
                struct error *err)
{
    struct geometry geometry;
    char path[LIMIT_PATH_BYTES];
    size_t parameter_count;
    struct stat file;

    if (!file_in(folder, BASE_NAME, path, err) ||
        !weights_check(path, &geometry, &parameter_count, err))
        return false;
    if (stat(path, &file) != 0)
        return error_set(err, ERR_IO, "base '%s' was there and is gone", path);
    const size_t activations = network_device_bytes(&geometry, spec->lora_rank, &spec->limits);
    if (activations == SIZE_MAX)
        return error_set(err, ERR_LIMIT,
                         "%zu tokens at once need more memory than can be addressed",
                         spec->limits.max_tokens);
    ret_plan->weights_bytes = weights_device_bytes(&geometry);
    ret_plan->adapter_bytes = lora_device_bytes(&geometry, spec->lora_rank);
    ret_plan->activations_bytes = activations;
    ret_plan->mapped_bytes = (size_t)file.st_size;
    return true;
}

/* Fresh, or as an earlier run left it. */
static bool open_adapter(struct model *model, const struct model_spec *spec, struct error *err)
{
    if (!spec->adapter_path)
        return lora_new(model->weights, spec->lora_rank, spec->lora_alpha, &model->lora, err) &&
               lora_start(model->lora, spec->seed, err);
    if (!lora_read(model->weights, spec->adapter_path, &model->lora, err))
        return false;
    if (model->lora->rank == spec->lora_rank && model->lora->alpha == spec->lora_alpha)
        return true;
    return error_set(err, ERR_INVALID,
                     "the adapter '%s' has rank %zu and alpha %g, %zu and %g were needed",
                     spec->adapter_path, model->lora->rank, (double)model->lora->alpha,
                     spec->lora_rank, (double)spec->lora_alpha);
}

static bool open_parts(struct model *model, struct backend *be, const char *path,
                       const struct model_spec *spec, const atomic_bool *stop, struct error *err)
{
    if (!weights_load(be, path, spec->numerics, stop, &model->weights, err) ||
        !open_adapter(model, spec, err) ||
        !network_new(model->weights, model->lora, &spec->limits, &model->network, err))
        return false;
    model->seed = spec->seed;
    model_refresh(model);
    return true;
}

bool model_open(struct backend *be, const char *folder, const struct model_spec *spec,
                const atomic_bool *stop, struct model **ret_model, struct error *err)
{
    char path[LIMIT_PATH_BYTES];

    if (!file_in(folder, BASE_NAME, path, err))
        return false;

    struct model *model = calloc(1, sizeof *model);
    if (!model)
        return error_set(err, ERR_NO_MEMORY, "no memory for a model (%zu bytes)", sizeof *model);
    if (!open_parts(model, be, path, spec, stop, err)) {
        model_close(model);
        return false;
    }
    *ret_model = model;
    return true;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    network_free(model->network);
    lora_free(model->lora);
    weights_free(model->weights);
    free(model);
}

struct model_values model_values(struct model *model)
{
    const struct lora *lora = model->lora;

    return (struct model_values){.values = lora->values,
                                 .gradients = lora->gradients,
                                 .moment1 = lora->moment1,
                                 .moment2 = lora->moment2,
                                 .count = lora->value_count};
}

size_t model_skipped_groups(const struct model *model, const char *ret_names[PROJECTION_COUNT])
{
    size_t count = 0;

    for (enum projection projection = 0; projection < PROJECTION_COUNT; projection++)
        if (model->weights->zero[projection])
            ret_names[count++] = projection_path(projection);
    return count;
}

void model_refresh(struct model *model)
{
    lora_merge(model->lora, model->weights);
}

bool model_run(struct model *model, enum network_mode mode, const struct batch *batch,
               float gradient_scale, const atomic_bool *stop, struct batch_result *ret_result,
               struct error *err)
{
    if (!weights_check_unchanged(model->weights, err))
        return false;
    return network_run(model->network, mode, batch, gradient_scale, NULL, stop, ret_result, err);
}

bool model_write_adapter(const struct model *model, const char *path, const char *base_name,
                         const struct metadata_out *extra, size_t extra_count,
                         uint64_t *ret_size_bytes, char ret_sha256[65], struct error *err)
{
    return lora_write(model->lora, path, base_name, model->seed, extra, extra_count, ret_size_bytes,
                      ret_sha256, err);
}

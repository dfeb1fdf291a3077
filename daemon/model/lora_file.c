#include "daemon/model/lora.h"

#include "daemon/base/buf.h"
#include "daemon/base/json.h"
#include "daemon/base/jsontext.h"
#include "daemon/base/strict.h"
#include "daemon/model/safetensors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "lora/"
#define NAME_BYTES 96
#define FIELD_COUNT 6 /* metadata entries of the reference's adapter files */
#define TEXT_BYTES_MAX ((size_t)1 << 16)

struct name {
    char text[NAME_BYTES];
};

static struct name matrix_name(enum projection projection, char matrix)
{
    struct name name;

    (void)snprintf(name.text, sizeof(name.text), PREFIX "%s/%c", projection_path(projection),
                   matrix); /* fits: paths are ours */
    return name;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void describe_group(const struct lora *lora, const struct lora_group *group,
                           const float *values, struct name names[2], struct tensor_out tensors[2])
{
    names[0] = matrix_name(group->projection, 'A');
    names[1] = matrix_name(group->projection, 'B');
    tensors[0] = (struct tensor_out){.name = names[0].text,
                                     .type = TENSOR_F32,
                                     .rank = 3,
                                     .shape = {lora->layer_count, group->in, lora->rank},
                                     .data = values + group->a_offset};
    tensors[1] = (struct tensor_out){.name = names[1].text,
                                     .type = TENSOR_F32,
                                     .rank = 3,
                                     .shape = {lora->layer_count, lora->rank, group->out},
                                     .data = values + group->b_offset};
}

static bool write_with(const struct lora *lora, const char *path, const float *values,
                       const struct metadata_out *metadata, size_t metadata_count,
                       uint64_t *ret_size_bytes, char ret_sha256[65], struct error *err)
{
    struct name names[2 * PROJECTION_COUNT];
    struct tensor_out tensors[2 * PROJECTION_COUNT];

    for (size_t i = 0; i < lora->group_count; i++)
        describe_group(lora, &lora->groups[i], values, &names[2 * i], &tensors[2 * i]);
    return safetensors_write(path, tensors, 2 * lora->group_count, metadata, metadata_count,
                             ret_size_bytes, ret_sha256, err);
}

bool lora_write(const struct lora *lora, const char *path, const char *base_name, uint64_t seed,
                const struct metadata_out *extra, size_t extra_count, uint64_t *ret_size_bytes,
                char ret_sha256[65], struct error *err)
{
    const struct strict_value base = {
        .kind = STRICT_STRING, .text = base_name, .size = strlen(base_name)};
    char scale[JSONTEXT_NUMBER_MAX], rank_text[24], seed_text[24];
    float *values = malloc(lora->value_count * sizeof(*values));
    struct metadata_out *metadata = calloc(FIELD_COUNT + extra_count, sizeof(*metadata));
    struct buf base_text;
    bool ok = false;

    buf_init(&base_text, TEXT_BYTES_MAX);
    jsontext_write_sorted(&base, &base_text);
    if (!values || !metadata || base_text.failed) {
        error_set(err, ERR_NO_MEMORY, "no memory to write the adapter '%s'", path);
        goto out;
    }
    jsontext_format_double(lora_scale(lora), scale);
    (void)snprintf(rank_text, sizeof(rank_text), "%zu", lora->rank); /* both fit 64 bits */
    (void)snprintf(seed_text, sizeof(seed_text), "%llu", (unsigned long long)seed);
    metadata[0] = (struct metadata_out){"base", base_text.data};
    metadata[1] = (struct metadata_out){"languages", "null"};
    metadata[2] = (struct metadata_out){"pieces", "null"};
    metadata[3] = (struct metadata_out){"rank", rank_text};
    metadata[4] = (struct metadata_out){"scale", scale};
    metadata[5] = (struct metadata_out){"seed", seed_text};
    for (size_t i = 0; i < extra_count; i++)
        metadata[FIELD_COUNT + i] = extra[i];
    backend_download(lora->backend, values, lora->values, lora->value_count * sizeof(*values));
    if (backend_sync(lora->backend) != BACKEND_OK) {
        error_set(err, ERR_DEVICE, "%s", backend_fault(lora->backend));
        goto out;
    }
    ok = write_with(lora, path, values, metadata, FIELD_COUNT + extra_count, ret_size_bytes,
                    ret_sha256, err);
out:
    buf_release(&base_text);
    free(metadata);
    free(values);
    return ok;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_number(const struct safetensors *file, const char *field, double *ret_number,
                        struct error *err)
{
    const char *text = safetensors_metadata(file, field);
    struct json *json = NULL;
    bool ok = false;

    if (!text)
        return error_set(err, ERR_INVALID, "the metadata has no '%s'", field);
    if (!json_parse(text, strlen(text), &json, err)) {
        error_wrap(err, "metadata '%s'", field);
        return false;
    }
    if (json_kind_of(json) != JSON_NUMBER || !isfinite(json_number(json)))
        error_set(err, ERR_INVALID, "metadata '%s' is '%.40s', a number was needed", field, text);
    else
        ok = true;
    if (ok)
        *ret_number = json_number(json);
    json_free(json);
    return ok;
}

/* A and B of one projection; their ranks must agree before anything else is asked of them. */
static bool find_pair(const struct safetensors *file, enum projection projection,
                      const struct tensor *ret_pair[2], size_t *ret_rank, struct error *err)
{
    const struct tensor *A, *B;

    A = safetensors_find(file, matrix_name(projection, 'A').text);
    B = safetensors_find(file, matrix_name(projection, 'B').text);
    if (!A || !B)
        return error_set(err, ERR_INVALID, "tensor '%s' is missing",
                         matrix_name(projection, A ? 'B' : 'A').text);
    if (A->rank < 2 || B->rank < 2)
        return error_set(err, ERR_INVALID, "'%s': A and B need three dimensions, not %zu and %zu",
                         projection_path(projection), A->rank, B->rank);
    if (A->shape[A->rank - 1] != B->shape[B->rank - 2])
        return error_set(err, ERR_INVALID, "'%s': A has rank %zu, B has rank %zu",
                         projection_path(projection), A->shape[A->rank - 1], B->shape[B->rank - 2]);
    ret_pair[0] = A;
    ret_pair[1] = B;
    *ret_rank = A->shape[A->rank - 1];
    return true;
}

static bool check_shape(const struct tensor *tensor, const size_t wanted[3], struct error *err)
{
    if (tensor->rank == 3 && memcmp(tensor->shape, wanted, 3 * sizeof(wanted[0])) == 0)
        return true;
    if (tensor->rank != 3)
        return error_set(err, ERR_INVALID,
                         "tensor '%s' has %zu dimensions, the base wants [%zu,%zu,%zu]",
                         tensor->name, tensor->rank, wanted[0], wanted[1], wanted[2]);
    return error_set(err, ERR_INVALID,
                     "tensor '%s' has the shape [%zu,%zu,%zu], the base wants [%zu,%zu,%zu]",
                     tensor->name, tensor->shape[0], tensor->shape[1], tensor->shape[2], wanted[0],
                     wanted[1], wanted[2]);
}

/* Every tensor must belong to a projection of the base that is not zero. */
static bool check_names(const struct weights *weights, const struct safetensors *file,
                        struct error *err)
{
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        bool known = false, zero = false;

        for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
            if (strcmp(name, matrix_name(p, 'A').text) != 0 &&
                strcmp(name, matrix_name(p, 'B').text) != 0)
                continue;
            known = true;
            zero = weights->zero[p];
        }
        if (!known)
            return error_set(err, ERR_INVALID, "tensor '%.100s' belongs to no projection", name);
        if (zero)
            return error_set(err, ERR_INVALID,
                             "tensor '%s' adapts a projection that is zero in the base", name);
    }
    return true;
}

/* The file states alpha / rank. */
static bool read_alpha(const struct safetensors *file, size_t rank, float *ret_alpha,
                       struct error *err)
{
    double scale = 0;

    if (!read_number(file, "scale", &scale, err))
        return false;
    *ret_alpha = (float)(scale * (double)rank);
    if (!(*ret_alpha > 0 && isfinite(*ret_alpha)))
        return error_set(err, ERR_INVALID,
                         "scale %g and rank %zu give alpha %g, a finite number above 0 is needed",
                         scale, rank, (double)*ret_alpha);
    return true;
}

static bool check_file(const struct weights *weights, const struct safetensors *file,
                       size_t *ret_rank, float *ret_alpha, struct error *err)
{
    size_t rank = 0, in, out;
    double stated = 0;

    if (!check_names(weights, file, err))
        return false;
    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        const struct tensor *pair[2] = {NULL};
        size_t found = 0;

        if (weights->zero[p])
            continue;
        if (!find_pair(file, p, pair, &found, err))
            return false;
        assert(pair[0] && pair[1]);
        if (rank && found != rank)
            return error_set(err, ERR_INVALID, "'%s' has rank %zu, the projections before it %zu",
                             projection_path(p), found, rank);
        rank = found;
        projection_shape(&weights->geometry, p, &in, &out);
        if (!check_shape(pair[0], (size_t[]){weights->geometry.layer_count, in, rank}, err) ||
            !check_shape(pair[1], (size_t[]){weights->geometry.layer_count, rank, out}, err))
            return false;
    }
    if (!read_alpha(file, rank, ret_alpha, err) || !read_number(file, "rank", &stated, err))
        return false;
    if (stated != (double)rank)
        return error_set(err, ERR_INVALID, "the metadata says rank %g, the tensors have rank %zu",
                         stated, rank);
    *ret_rank = rank;
    return true;
}

static bool read_values(struct lora *lora, const struct safetensors *file, struct error *err)
{
    float *values = calloc(lora->value_count, sizeof(*values));
    bool ok = false;

    if (!values)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu values", lora->value_count);
    for (size_t i = 0; i < lora->group_count; i++) {
        const struct lora_group *group = &lora->groups[i];
        const struct tensor *pair[2] = {NULL};
        size_t rank = 0;

        if (!find_pair(file, group->projection, pair, &rank, err) ||
            !tensor_to_f32(pair[0], values + group->a_offset, err) ||
            !tensor_to_f32(pair[1], values + group->b_offset, err))
            goto out;
    }
    for (size_t i = 0; i < lora->value_count; i++)
        if (!isfinite(values[i])) {
            error_set(err, ERR_INVALID, "the adapter holds a number that is not finite");
            goto out;
        }
    backend_upload(lora->backend, lora->values, values, lora->value_count * sizeof(*values));
    backend_zero(lora->backend, lora->gradients, lora->value_count * sizeof(*values));
    backend_zero(lora->backend, lora->moment1, lora->value_count * sizeof(*values));
    backend_zero(lora->backend, lora->moment2, lora->value_count * sizeof(*values));
    ok = backend_sync(lora->backend) == BACKEND_OK ||
         error_set(err, ERR_DEVICE, "%s", backend_fault(lora->backend));
out:
    free(values);
    return ok;
}

bool lora_inspect(const char *path, size_t *ret_rank, double *ret_alpha, struct error *err)
{
    struct safetensors *file = NULL;
    double rank = 0;
    float alpha = 0;
    bool ok = false;

    if (!safetensors_open(path, &file, err))
        return false;
    if (!read_number(file, "rank", &rank, err))
        goto out;
    if (!(rank >= 1 && rank <= LORA_RANK_MAX && rank == floor(rank))) {
        error_set(err, ERR_INVALID, "its rank is %g, 1 to %d are possible", rank, LORA_RANK_MAX);
        goto out;
    }
    if (!read_alpha(file, (size_t)rank, &alpha, err))
        goto out;
    *ret_rank = (size_t)rank;
    *ret_alpha = lora_shortest(alpha);
    ok = true;
out:
    if (!ok)
        error_wrap(err, "adapter '%s'", path);
    safetensors_close(file);
    return ok;
}

bool lora_read(const struct weights *weights, const char *path, struct lora **ret_lora,
               struct error *err)
{
    struct safetensors *file = NULL;
    struct lora *lora = NULL;
    size_t rank = 0;
    float alpha = 0;
    bool ok = false;

    if (!safetensors_open(path, &file, err))
        return false;
    if (!check_file(weights, file, &rank, &alpha, err) ||
        !lora_new(weights, rank, alpha, &lora, err) || !read_values(lora, file, err)) {
        error_wrap(err, "adapter '%s'", path);
        goto out;
    }
    *ret_lora = lora;
    lora = NULL;
    ok = true;
out:
    lora_free(lora);
    safetensors_close(file);
    return ok;
}

#include "daemon/model/lora.h"

#include "daemon/model/random.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_COUNT 4 /* values, gradients, two moments */

static size_t group_values(const struct geometry *geometry, size_t rank, enum projection projection)
{
    size_t in, out;

    projection_shape(geometry, projection, &in, &out);
    return geometry->layer_count * rank * (in + out);
}

size_t lora_device_bytes(const struct geometry *geometry, size_t rank)
{
    size_t values = 0;

    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        values += group_values(geometry, rank, p);
    return ARRAY_COUNT * values * sizeof(float);
}

static void lay_out(struct lora *lora, const struct weights *weights)
{
    const struct geometry *geometry = &weights->geometry;

    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        struct lora_group *group = &lora->groups[lora->group_count];

        if (weights->zero[p])
            continue;
        group->projection = p;
        projection_shape(geometry, p, &group->in, &group->out);
        group->a_offset = lora->value_count;
        group->b_offset = group->a_offset + geometry->layer_count * group->in * lora->rank;
        lora->value_count += group_values(geometry, lora->rank, p);
        lora->group_count++;
    }
}

double lora_shortest(float value)
{
    char text[32];
    double number = value;

    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, (double)value); /* fits */
        number = strtod(text, NULL);
        if ((float)number == value)
            break;
    }
    return number;
}

double lora_scale(const struct lora *lora)
{
    return lora_shortest(lora->alpha) / (double)lora->rank;
}

bool lora_new(const struct weights *weights, size_t rank, float alpha, struct lora **ret_lora,
              struct error *err)
{
    struct lora *lora = calloc(1, sizeof(*lora));
    float **arrays[ARRAY_COUNT];

    if (!lora)
        return error_set(err, ERR_NO_MEMORY, "no memory for an adapter");
    lora->backend = weights->backend;
    lora->rank = rank;
    lora->layer_count = weights->geometry.layer_count;
    lora->alpha = alpha;
    if (rank < 1 || rank > LORA_RANK_MAX) {
        error_set(err, ERR_INVALID, "the adapter's rank is %zu, 1 to %d are possible", rank,
                  LORA_RANK_MAX);
        goto out;
    }
    if (!isfinite(alpha)) {
        error_set(err, ERR_INVALID, "the adapter's alpha is not finite");
        goto out;
    }
    lora->scale = (float)lora_scale(lora);
    lay_out(lora, weights);
    if (!lora->group_count) {
        error_set(err, ERR_INVALID,
                  "every projection of the base is zero: there is nothing to adapt");
        goto out;
    }
    arrays[0] = &lora->values;
    arrays[1] = &lora->gradients;
    arrays[2] = &lora->moment1;
    arrays[3] = &lora->moment2;
    for (size_t i = 0; i < ARRAY_COUNT; i++) {
        *arrays[i] = backend_alloc(lora->backend, lora->value_count * sizeof(float));
        if (!*arrays[i]) {
            error_set(err, ERR_NO_MEMORY, "the adapter takes %zu bytes of device memory: %s",
                      ARRAY_COUNT * lora->value_count * sizeof(float),
                      backend_fault(lora->backend));
            goto out;
        }
    }
    *ret_lora = lora;
    return true;
out:
    lora_free(lora);
    return false;
}

void lora_free(struct lora *lora)
{
    if (!lora)
        return;
    backend_free(lora->backend, lora->moment2);
    backend_free(lora->backend, lora->moment1);
    backend_free(lora->backend, lora->gradients);
    backend_free(lora->backend, lora->values);
    free(lora);
}

bool lora_start(struct lora *lora, uint64_t seed, struct error *err)
{
    struct threefry_key key = threefry_key_from_seed(seed);
    const float share = 1.0F / (float)lora->rank;
    size_t size_bytes = lora->value_count * sizeof(float);
    float *host = calloc(lora->value_count, sizeof(*host)); /* B stays zero */

    if (!host)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu start values", lora->value_count);
    for (size_t i = 0; i < lora->group_count; i++) {
        const struct lora_group *group = &lora->groups[i];
        size_t count = lora->layer_count * group->in * lora->rank;
        float *A = host + group->a_offset;

        threefry_normal(threefry_split(&key), 0, count, A);
        for (size_t j = 0; j < count; j++)
            A[j] *= share;
    }
    backend_upload(lora->backend, lora->values, host, size_bytes);
    backend_zero(lora->backend, lora->gradients, size_bytes);
    backend_zero(lora->backend, lora->moment1, size_bytes);
    backend_zero(lora->backend, lora->moment2, size_bytes);
    free(host);
    if (backend_sync(lora->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(lora->backend));
    return true;
}

void lora_merge(const struct lora *lora, struct weights *weights)
{
    for (size_t i = 0; i < lora->group_count; i++) {
        const struct lora_group *group = &lora->groups[i];
        const size_t in = group->in, out = group->out, rank = lora->rank;

        for (size_t l = 0; l < lora->layer_count; l++) {
            struct layer_weights *layer = &weights->layers[l];

            backend_merge(lora->backend, layer->kernel[group->projection],
                          &layer->kernel_base[group->projection],
                          lora->values + group->a_offset + l * in * rank,
                          lora->values + group->b_offset + l * rank * out, lora->scale, in, out,
                          rank, true);
        }
        weights_drop_pages(weights);
    }
}

void lora_backward(const struct lora *lora, size_t group_index, size_t layer, const float *X,
                   const float *dY, size_t N, float *scratch)
{
    const struct lora_group *group = &lora->groups[group_index];
    struct backend *be = lora->backend;
    size_t in = group->in, out = group->out, rank = lora->rank;
    size_t a_offset = group->a_offset + layer * in * rank;
    size_t b_offset = group->b_offset + layer * rank * out;
    float *down = scratch, *back = scratch + N * rank; /* X A and dY B^T, both [N, rank] */

    assert(group_index < lora->group_count);
    assert(layer < lora->layer_count);
    if (!N)
        return;
    backend_matmul(
        be, down, X, lora->values + a_offset,
        &(struct matmul){
            .M = N, .N = rank, .K = in, .lda = in, .ldb = rank, .ldc = rank, .alpha = 1.0F});
    backend_matmul(be, back, dY, lora->values + b_offset,
                   &(struct matmul){.M = N,
                                    .N = rank,
                                    .K = out,
                                    .transpose_b = true,
                                    .lda = out,
                                    .ldb = out,
                                    .ldc = rank,
                                    .alpha = 1.0F});
    backend_matmul(be, lora->gradients + a_offset, X, back,
                   &(struct matmul){.M = in,
                                    .N = rank,
                                    .K = N,
                                    .transpose_a = true,
                                    .lda = in,
                                    .ldb = rank,
                                    .ldc = rank,
                                    .alpha = lora->scale,
                                    .beta = 1.0F});
    backend_matmul(be, lora->gradients + b_offset, down, dY,
                   &(struct matmul){.M = rank,
                                    .N = out,
                                    .K = N,
                                    .transpose_a = true,
                                    .lda = rank,
                                    .ldb = out,
                                    .ldc = out,
                                    .alpha = lora->scale,
                                    .beta = 1.0F});
}

/*
 * lora: low-rank adapters on the five attention projections.
 *
 * Purpose    W + s A B, s = alpha / rank; A [layers, in, rank], B [layers, rank, out] per
 *            projection. All values of all groups lie in one device array, so that norm, clipping
 *            and AdamW are one call each; gradients and both moments have the same layout.
 * Ownership  lora_new / lora_free.
 * Threads    The worker's.
 * Failure    Shapes that do not fit each other or the base are refused with the layer named.
 */
#ifndef NEEDLED_LORA_H
#define NEEDLED_LORA_H

#include "daemon/model/weights.h"

#define LORA_RANK_MAX 4096

struct lora_group {
    enum projection projection;
    size_t in, out;
    size_t a_offset, b_offset; /* in floats, from the start of the arrays */
};

struct lora {
    struct backend *backend;
    size_t rank, layer_count;
    float alpha, scale;
    struct lora_group groups[PROJECTION_COUNT]; /* sorted by path; zero groups left out */
    size_t group_count;
    size_t value_count;
    float *values, *gradients, *moment1, *moment2; /* device, [value_count] */
};

size_t lora_device_bytes(const struct geometry *geometry, size_t rank);
MUST_CHECK bool lora_new(const struct weights *weights, size_t rank, float alpha,
                         struct lora **ret_lora, struct error *err);
void lora_free(struct lora *lora); /* NULL is fine */
/* alpha / rank as the adapter file states it: in double, from alpha's shortest decimal. */
double lora_scale(const struct lora *lora);
/* The double that a user wrote as alpha: the shortest decimal that reads back as this float. */
double lora_shortest(float value);

/* A ~ N(0, 1) / rank from the seed, B = 0, moments = 0. */
MUST_CHECK bool lora_start(struct lora *lora, uint64_t seed, struct error *err);
/* weights->kernel[] = round(base + s A B) in every group and layer, from the base each time. */
void lora_merge(const struct lora *lora, struct weights *weights);
/* dA += s X^T (dY B^T), dB += s (X A)^T dY for one group and layer; X [N,in], dY [N,out];
 * scratch [2 N rank + in rank]. */
void lora_backward(const struct lora *lora, size_t group, size_t layer, const float *X,
                   const float *dY, size_t N, float *scratch);

/* The adapter file as the reference's write_adapter lays it out: tensors lora/<path>/A and /B in
 * float32, metadata scale, base, rank, seed, pieces, languages as JSON texts. Nothing in it varies
 * between equal runs. `extra` (may be NULL) are further metadata entries. */
struct metadata_out;
MUST_CHECK bool lora_write(const struct lora *lora, const char *path, const char *base_name,
                           uint64_t seed, const struct metadata_out *extra, size_t extra_count,
                           uint64_t *ret_size_bytes, char ret_sha256[65], struct error *err);
/* Rank and alpha as such a file's metadata states them, whatever its base. */
MUST_CHECK bool lora_inspect(const char *path, size_t *ret_rank, double *ret_alpha,
                             struct error *err);
/* Reads such a file into an adapter of the same base; ranks and shapes are checked. Gradients and
 * moments are 0. */
MUST_CHECK bool lora_read(const struct weights *weights, const char *path, struct lora **ret_lora,
                          struct error *err);

#endif

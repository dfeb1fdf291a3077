/*
 * network: what the tests of the network share: fixtures, backends, lines as forests.
 *
 * Purpose    Opens recorded tensors, builds batches (chains, or lines that share their starts), and
 *            compares arrays the way the fixtures' tolerances are stated.
 * Ownership  x_open / x_close, x_new / x_free; a fixture's arrays are the caller's to free().
 * Threads    The test's.
 * Failure    Every failure fails the test.
 */
#ifndef NEEDLED_TEST_NETWORK_H
#define NEEDLED_TEST_NETWORK_H

#include "tests/support/test.h"

#include "daemon/model/codebook.h"
#include "daemon/model/network.h"
#include "daemon/model/safetensors.h"

#include <math.h>

#define GEOMETRY_COUNT 2
static const char *const geometry_folders[GEOMETRY_COUNT] = {FIXTURES "needle3/",
                                                             FIXTURES "needle3/mini/"};
static const char *const numerics_names[2] = {
    [NUMERICS_W4A8] = "qat", [NUMERICS_FLOAT32] = "float"};

static inline void fail_on(bool ok, const struct error *err)
{
    if (!ok)
        fail_msg("%s", err->message);
}

/* ---- recorded tensors ------------------------------------------------------------------------ */

static inline struct safetensors *fixture_open(const char *folder, const char *file)
{
    char path[256];
    struct safetensors *fixture;
    struct error err = {0};

    snprintf(path, sizeof(path), "%s%s", folder, file);
    fail_on(safetensors_open(path, &fixture, &err), &err);
    return fixture;
}

static inline const struct tensor *fixture_tensor(const struct safetensors *fixture,
                                                  const char *prefix, const char *name)
{
    char full[256];

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    const struct tensor *tensor = safetensors_find(fixture, full);
    if (!tensor)
        fail_msg("no tensor '%s' in the fixture", full);
    return tensor;
}

static inline float *fixture_floats(const struct safetensors *fixture, const char *prefix,
                                    const char *name, size_t *ret_count)
{
    const struct tensor *tensor = fixture_tensor(fixture, prefix, name);
    float *values = calloc(tensor->element_count + 1, sizeof(float));
    struct error err = {0};

    assert_non_null(values);
    fail_on(tensor_to_f32(tensor, values, &err), &err);
    *ret_count = tensor->element_count;
    return values;
}

static inline int32_t *fixture_ints(const struct safetensors *fixture, const char *name,
                                    size_t *ret_count)
{
    const struct tensor *tensor = fixture_tensor(fixture, "", name);
    int32_t *values = calloc(tensor->element_count, sizeof(int32_t));

    assert_non_null(values);
    assert_int_equal(tensor->type, TENSOR_I32);
    memcpy(values, tensor->data, tensor->size_bytes);
    *ret_count = tensor->element_count;
    return values;
}

static inline double fixture_scalar(const struct safetensors *fixture, const char *prefix,
                                    const char *name)
{
    size_t count;
    float *value = fixture_floats(fixture, prefix, name, &count);
    const double number = value[0];

    assert_int_equal(count, 1);
    free(value);
    return number;
}

/* ---- lines and batches ----------------------------------------------------------------------- */

#define LINE_MAX_COUNT 16

struct line {
    size_t count;
    const int32_t *tokens;
    const float *mask; /* 1 where the token is a target of the one before */
};

struct forest {
    struct batch batch;
    uint32_t *tokens, *label;
    int32_t *parent, *depth, *run, *end, *row;
    float *weight;
    size_t weight_sum; /* of all lines */
    size_t capacity;
};

static inline void *forest_array(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);

    assert_non_null(memory);
    return memory;
}

/* The lines[members] that agree on all tokens before `depth` and go on with the same one become one
 * token; then their continuations, in order of the first line of each. */
static inline void forest_grow(struct forest *forest, const struct line *lines,
                               const size_t *members, size_t count, int32_t parent, bool share)
{
    bool done[LINE_MAX_COUNT] = {0};
    const size_t depth = parent < 0 ? 0 : (size_t)forest->depth[parent] + 1;

    for (size_t i = 0; i < count; i++) {
        size_t group[LINE_MAX_COUNT], group_count = 0;
        const struct line *first = &lines[members[i]];

        if (done[i] || depth >= first->count)
            continue;
        for (size_t j = i; j < count; j++) {
            const struct line *other = &lines[members[j]];

            if (done[j] || depth >= other->count || other->tokens[depth] != first->tokens[depth])
                continue;
            if (j > i && !share)
                continue;
            done[j] = true;
            group[group_count++] = members[j];
        }

        const size_t n = forest->batch.token_count++;
        assert_true(n < forest->capacity);
        forest->tokens[n] = (uint32_t)first->tokens[depth];
        forest->parent[n] = parent;
        forest->depth[n] = (int32_t)depth;
        forest->run[n] = n > 0 && parent == (int32_t)n - 1 ? forest->run[n - 1] : (int32_t)n;
        for (size_t j = 0; j < group_count; j++) {
            const struct line *line = &lines[group[j]];

            if (depth + 1 >= line->count || line->mask[depth + 1] == 0)
                continue;
            const size_t m = forest->batch.target_count++;
            forest->row[m] = (int32_t)n;
            forest->label[m] = (uint32_t)line->tokens[depth + 1];
            forest->weight[m] = line->mask[depth + 1];
            forest->weight_sum++;
        }
        forest_grow(forest, lines, group, group_count, (int32_t)n, share);
        forest->end[n] = (int32_t)forest->batch.token_count;
    }
}

/* Chains side by side, or, with `share`, a forest in which equal starts are one. */
static inline struct forest *forest_new(const struct line *lines, size_t line_count, bool share)
{
    struct forest *forest = forest_array(1, sizeof(*forest));
    size_t members[LINE_MAX_COUNT];

    assert_true(line_count <= LINE_MAX_COUNT);
    for (size_t i = 0; i < line_count; i++) {
        members[i] = i;
        forest->capacity += lines[i].count;
    }
    forest->tokens = forest_array(forest->capacity, sizeof(uint32_t));
    forest->label = forest_array(forest->capacity, sizeof(uint32_t));
    forest->parent = forest_array(forest->capacity, sizeof(int32_t));
    forest->depth = forest_array(forest->capacity, sizeof(int32_t));
    forest->run = forest_array(forest->capacity, sizeof(int32_t));
    forest->end = forest_array(forest->capacity, sizeof(int32_t));
    forest->row = forest_array(forest->capacity, sizeof(int32_t));
    forest->weight = forest_array(forest->capacity, sizeof(float));
    forest_grow(forest, lines, members, line_count, -1, share);
    forest->batch.tokens = forest->tokens;
    forest->batch.parent = forest->parent;
    forest->batch.depth = forest->depth;
    forest->batch.run = forest->run;
    forest->batch.end = forest->end;
    forest->batch.target_row = forest->row;
    forest->batch.target_label = forest->label;
    forest->batch.target_weight = forest->weight;
    return forest;
}

static inline void forest_free(struct forest *forest)
{
    free(forest->tokens);
    free(forest->label);
    free(forest->parent);
    free(forest->depth);
    free(forest->run);
    free(forest->end);
    free(forest->row);
    free(forest->weight);
    free(forest);
}

/* The recorded rows [B,T] as B chains of T tokens, padding included. */
static inline struct forest *forest_from_fixture(const struct safetensors *fixture)
{
    size_t count, mask_count;
    int32_t *tokens = fixture_ints(fixture, "tokens", &count);
    float *mask = fixture_floats(fixture, "", "mask", &mask_count);
    const size_t T = fixture_tensor(fixture, "", "tokens")->shape[1], B = count / T;
    struct line lines[LINE_MAX_COUNT];

    assert_int_equal(count, mask_count);
    assert_true(B <= LINE_MAX_COUNT);
    for (size_t b = 0; b < B; b++)
        lines[b] = (struct line){T, &tokens[b * T], &mask[b * T]};
    struct forest *forest = forest_new(lines, B, false);
    free(tokens);
    free(mask);
    return forest;
}

/* ---- backends, weights, adapters ------------------------------------------------------------- */

/* NULL where this build or machine has no such device. */
static inline struct backend *bench_open(enum backend_kind kind)
{
    const struct backend_options options = {.thread_count = 1};
    struct backend *be;
    char reason[256];

    if (backend_device_count(kind, reason, sizeof(reason)) == 0)
        return NULL;
    if (backend_open(kind, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s: %s", backend_name(kind), reason);
    return be;
}

static inline struct weights *bench_weights(struct backend *be, const char *folder,
                                            enum numerics numerics)
{
    char path[256];
    struct weights *weights;
    struct error err = {0};

    snprintf(path, sizeof(path), "%sbase.safetensors", folder);
    fail_on(weights_load(be, path, numerics, NULL, &weights, &err), &err);
    weights_use_base(weights);
    return weights;
}

/* Host copy of a frozen matrix of `count` values as the backend reads it, without its grid. */
static inline float *bench_read_table(struct backend *be, const struct table *table, size_t count)
{
    const struct table plain = {table->values, table->storage, NULL};
    float *device = backend_alloc(be, count * sizeof(float)),
          *values = calloc(count, sizeof(float));

    assert_non_null(device);
    assert_non_null(values);
    backend_merge(be, device, &plain, NULL, NULL, 0, 1, count, 0, false);
    backend_download(be, values, device, count * sizeof(float));
    backend_free(be, device);
    return values;
}

/* The adapter recorded with the gradients, merged into the weights. */
static inline struct lora *bench_lora(struct weights *weights, const struct safetensors *fixture)
{
    struct lora *lora;
    struct error err = {0};

    fail_on(lora_new(weights, 4, 8.0f, &lora, &err), &err);
    for (size_t i = 0; i < lora->group_count; i++) {
        const struct lora_group *group = &lora->groups[i];
        const size_t offsets[2] = {group->a_offset, group->b_offset};

        for (size_t side = 0; side < 2; side++) {
            char name[128];
            size_t count;

            snprintf(name, sizeof(name), "%s/%s", projection_path(group->projection),
                     side ? "B" : "A");
            float *values = fixture_floats(fixture, "lora/", name, &count);
            backend_upload(weights->backend, lora->values + offsets[side], values,
                           count * sizeof(float));
            free(values);
        }
    }
    lora_merge(lora, weights);
    return lora;
}

static inline struct network *bench_network(struct weights *weights, const struct lora *lora,
                                            const struct forest *forest, bool keep)
{
    const struct network_limits limits = {forest->batch.token_count, forest->batch.target_count,
                                          keep ? 0 : SIZE_MAX};
    struct network *network;
    struct error err = {0};

    fail_on(network_new(weights, lora, &limits, &network, &err), &err);
    return network;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static inline double max_difference(const float *a, const float *b, size_t count)
{
    double largest = 0;

    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)a[i] - b[i]);

        if (!(difference <= largest))
            largest = difference;
    }
    return largest;
}

/* |a - b| / |b|, Frobenius; absolute where b is zero. */
static inline double relative_difference(const float *a, const float *b, size_t count)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference) / (size > 0 ? sqrt(size) : 1);
}

#endif

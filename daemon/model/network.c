#include "daemon/model/network.h"

#include "daemon/base/pulse.h"
#include "daemon/model/activations.h"
#include "daemon/model/engram.h"
#include "daemon/model/gradients.h"
#include "daemon/model/layer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct network {
    struct weights *weights;
    const struct lora *lora;
    struct network_limits limits;
    struct activations activations;
    int32_t *engram_index, *engram_distinct; /* host: [max_tokens, tables] */
    uint32_t *engram_row, *engram_seen;      /* host: [max_tokens], scratch */
    float *outcome;                          /* host: [2,max_targets], as on the device */
    network_probe_fn *probe;
    void *probe_context;
};

/* What is the same all through one run. */
struct run {
    struct network *network;
    struct weights *weights;
    struct activations *a;
    const struct batch *batch;
    struct weight_gradients *full; /* NULL: not wanted */
    const atomic_bool *stop;
    struct tree tree; /* device */
    float gradient_scale;
    bool learns; /* something is to be added to */
};

size_t network_device_bytes(const struct geometry *geometry, size_t lora_rank,
                            const struct network_limits *limits)
{
    return activations_device_bytes(geometry, lora_rank, limits);
}

/* Of one element at least: without sites they are not read. */
static bool new_engram_arrays(struct network *network, const struct geometry *g, struct error *err)
{
    const size_t tokens = network->limits.max_tokens, slots = tokens * engram_table_count(g) + 1;

    network->engram_index = calloc(slots, sizeof *network->engram_index);
    network->engram_distinct = calloc(slots, sizeof *network->engram_distinct);
    network->engram_row = calloc(tokens, sizeof *network->engram_row);
    network->engram_seen = calloc(engram_seen_count(tokens), sizeof *network->engram_seen);
    if (!network->engram_index || !network->engram_distinct || !network->engram_row ||
        !network->engram_seen)
        return error_set(err, ERR_NO_MEMORY, "no memory for the n-grams of %zu tokens", tokens);
    return true;
}

bool network_new(struct weights *weights, const struct lora *lora,
                 const struct network_limits *limits, struct network **ret_network,
                 struct error *err)
{
    const struct geometry *g = &weights->geometry;
    struct network *network = calloc(1, sizeof *network);
    const size_t targets = limits->max_targets + 1; /* never an empty array */

    if (!network)
        return error_set(err, ERR_NO_MEMORY, "no memory for a network (%zu bytes)",
                         sizeof *network);
    network->weights = weights;
    network->lora = lora;
    network->limits = *limits;
    if (!activations_init(&network->activations, weights->backend, g, lora ? lora->rank : 0, limits,
                          err)) {
        network_free(network);
        return false;
    }
    if (!new_engram_arrays(network, g, err)) {
        network_free(network);
        return false;
    }
    network->outcome = calloc(targets, 2 * sizeof *network->outcome);
    if (!network->outcome) {
        network_free(network);
        return error_set(err, ERR_NO_MEMORY, "no memory for the host's side of %zu tokens",
                         limits->max_tokens);
    }
    *ret_network = network;
    return true;
}

void network_free(struct network *network)
{
    if (!network)
        return;
    activations_release(&network->activations);
    free(network->engram_index);
    free(network->engram_distinct);
    free(network->engram_row);
    free(network->engram_seen);
    free(network->outcome);
    free(network);
}

void network_set_probe(struct network *network, network_probe_fn *probe, void *context)
{
    network->probe = probe;
    network->probe_context = context;
}

static void show(const struct run *run, const char *name, const float *values, size_t cols)
{
    if (run->network->probe)
        run->network->probe(run->network->probe_context, name, values, run->tree.token_count, cols);
}

static bool stopped(const struct run *run)
{
    pulse_beat();
    return run->stop && atomic_load_explicit(run->stop, memory_order_relaxed);
}

static void check_tokens(const struct batch *batch, const struct geometry *g)
{
    for (size_t n = 0; n < batch->token_count; n++) {
        assert(batch->tokens[n] < g->vocab_size);
        assert(batch->parent[n] < (int32_t)n);
        assert(batch->depth[n] >= 0);
        assert((size_t)batch->depth[n] < g->max_seq_len);
        assert(batch->end[n] > (int32_t)n);
        assert((size_t)batch->end[n] <= batch->token_count);
    }
}

static void check_targets(const struct batch *batch, const struct geometry *g)
{
    for (size_t m = 0; m < batch->target_count; m++) {
        assert(batch->target_row[m] >= 0);
        assert((size_t)batch->target_row[m] < batch->token_count);
        assert(m == 0 || batch->target_row[m - 1] <= batch->target_row[m]);
        assert(batch->target_label[m] < g->out_vocab);
    }
}

static void check_batch(const struct batch *batch, const struct geometry *g,
                        const struct network_limits *limits)
{
    assert(batch->token_count > 0);
    assert(batch->token_count <= limits->max_tokens);
    assert(batch->target_count <= limits->max_targets);
    check_tokens(batch, g);
    check_targets(batch, g);
}

static void upload_batch(struct run *run)
{
    const struct batch *batch = run->batch;
    struct backend *be = run->weights->backend;
    struct activations *a = run->a;
    const size_t N = batch->token_count, targets = batch->target_count;

    backend_upload(be, a->tokens, batch->tokens, N * sizeof *a->tokens);
    backend_upload(be, a->parent, batch->parent, N * sizeof *a->parent);
    backend_upload(be, a->depth, batch->depth, N * sizeof *a->depth);
    backend_upload(be, a->run, batch->run, N * sizeof *a->run);
    backend_upload(be, a->end, batch->end, N * sizeof *a->end);
    if (targets) {
        backend_upload(be, a->target_row, batch->target_row, targets * sizeof *a->target_row);
        backend_upload(be, a->target_label, batch->target_label, targets * sizeof *a->target_label);
        backend_upload(be, a->target_weight, batch->target_weight,
                       targets * sizeof *a->target_weight);
    }
    run->tree = (struct tree){
        .token_count = N, .parent = a->parent, .depth = a->depth, .run = a->run, .end = a->end};
}

static void forward_engrams(struct run *run)
{
    const struct geometry *g = &run->weights->geometry;
    const size_t tables = engram_table_count(g), N = run->batch->token_count;
    const size_t row_size = tables * sizeof(int32_t);
    struct network *network = run->network;
    struct backend *be = run->weights->backend;

    if (g->engram_site_count == 0)
        return;
    engram_indices(g, run->batch, network->engram_index);
    const size_t distinct = engram_distinct(network->engram_index, N, tables, network->engram_seen,
                                            network->engram_distinct, network->engram_row);
    backend_upload(be, run->a->engram_index, network->engram_index, N * row_size);
    backend_upload(be, run->a->engram_distinct, network->engram_distinct, distinct * row_size);
    backend_upload(be, run->a->engram_row, network->engram_row, N * sizeof(uint32_t));
    for (size_t site = 0; site < g->engram_site_count; site++) {
        char name[32];

        engram_forward(run->weights, run->a, site, &run->tree, distinct);
        (void)snprintf(name, sizeof name, "engrams_%zu.k", site); /* short by nature */
        show(run, name, run->a->engram_key[site], g->d_model);
        (void)snprintf(name, sizeof name, "engrams_%zu.v", site);
        show(run, name, run->a->engram_value[site], g->d_model);
        weights_drop_pages(run->weights);
    }
}

static struct layer layer_at(const struct run *run, size_t index)
{
    const int site = geometry_engram_site(&run->weights->geometry, index);
    struct layer layer = {
        .weights = run->weights, .lora = run->network->lora, .tree = &run->tree, .index = index};

    if (site >= 0) {
        layer.key = run->a->engram_key[site];
        layer.value = run->a->engram_value[site];
    }
    return layer;
}

/* Tokens to the lanes of the first layer. */
static void spread_tokens(struct run *run)
{
    struct backend *be = run->weights->backend;
    const struct geometry *g = &run->weights->geometry;
    struct activations *a = run->a;
    const size_t N = run->tree.token_count, D = g->d_model;

    backend_embed_forward(be, a->x, run->weights->embedding, a->tokens, sqrtf((float)D), N, D);
    backend_lanes_spread_forward(be, a->lanes[0], a->x, N, g->lane_count, D);
}

/* Tokens to the normalised hidden state; false when asked to stop. */
static bool forward(struct run *run)
{
    struct backend *be = run->weights->backend;
    const struct geometry *g = &run->weights->geometry;
    struct activations *a = run->a;
    const size_t N = run->tree.token_count, D = g->d_model;

    forward_engrams(run);
    spread_tokens(run);
    show(run, "x0", a->x, D);
    for (size_t l = 0; l < g->layer_count; l++) {
        struct layer layer = layer_at(run, l);

        if (stopped(run))
            return false;
        layer.probe = run->network->probe;
        layer.probe_context = run->network->probe_context;
        layer_forward(&layer, &a->layers[l], a->lanes[l], a->lanes[l + 1]);
    }
    backend_lanes_mean_forward(be, a->mean, a->lanes[g->layer_count], N, g->lane_count, D);
    backend_rmsnorm_forward(be, a->final, a->final_r, a->mean, run->weights->final_norm, N, D,
                            layer_rounding(run->weights));
    show(run, "final", a->final, D);
    return true;
}

/* Losses at the targets; where something learns, also the gradient of the hidden state. */
static void compare(struct run *run)
{
    const struct geometry *g = &run->weights->geometry;
    struct activations *a = run->a;

    if (run->batch->target_count == 0)
        return;
    backend_cross_entropy(run->weights->backend, a->outcome, a->outcome + run->batch->target_count,
                          run->learns ? a->backward.dbranch : NULL,
                          run->full && run->learns ? run->full->embedding : NULL, a->final,
                          run->weights->embedding, a->target_row, a->target_label, a->target_weight,
                          run->gradient_scale, run->batch->target_count, run->tree.token_count,
                          g->out_vocab, g->d_model);
}

/* The lanes of the layer's segment, which later segments wrote over: made again when backward comes
 * to its last layer. */
static void recall_lanes(struct run *run, size_t l)
{
    struct activations *a = run->a;
    const size_t start = a->segment[l];

    if (l + 1 == run->weights->geometry.layer_count || a->segment[l + 1] == start)
        return;
    if (start == 0)
        spread_tokens(run);
    for (size_t i = start; i < l; i++) {
        const struct layer layer = layer_at(run, i);

        layer_recall_lanes(&layer, &a->layers[i], a->lanes[i], a->lanes[i + 1]);
    }
}

static void backward_layer(struct run *run, size_t l)
{
    struct activations *a = run->a;
    const struct layer layer = layer_at(run, l);
    const int site = geometry_engram_site(&run->weights->geometry, l);

    recall_lanes(run, l);
    layer_recall(&layer, &a->layers[l], a->lanes[l], !run->full && l >= a->recomputed_layers);
    layer_backward(&layer, &a->layers[l], a->lanes[l], &a->backward,
                   run->full ? &run->full->layers[l] : NULL);
    if (run->full && site >= 0)
        engram_backward(run->weights, a, (size_t)site, &run->tree, &run->full->engrams[site]);
}

/* From the gradient of the hidden state down; false when asked to stop. */
static bool backward(struct run *run)
{
    struct backend *be = run->weights->backend;
    const struct geometry *g = &run->weights->geometry;
    struct activations *a = run->a;
    struct backward *b = &a->backward;
    const size_t N = run->tree.token_count, D = g->d_model;

    backend_rmsnorm_backward(be, b->dnorm, run->full ? run->full->final_norm : NULL, b->dbranch,
                             a->mean, run->weights->final_norm, a->final_r, N, D);
    backend_lanes_mean_backward(be, b->dlanes, b->dnorm, N, g->lane_count, D);
    for (size_t l = g->layer_count; l-- > 0;) {
        if (stopped(run))
            return false;
        backward_layer(run, l);
    }
    if (run->full) {
        backend_lanes_spread_backward(be, b->dnorm, b->dlanes, N, g->lane_count, D);
        backend_embed_backward(be, run->full->embedding, b->dnorm, a->tokens, sqrtf((float)D), N,
                               D);
    }
    return true;
}

/* Waits for all of the batch's work, once: the only thing that comes back from it. */
static void download_outcome(const struct run *run)
{
    if (run->batch->target_count > 0)
        backend_download(run->weights->backend, run->network->outcome, run->a->outcome,
                         2 * run->batch->target_count * sizeof(float));
}

/* In the order of the targets, in double: the same sum for the same batch. */
static struct batch_result add_up(const struct run *run)
{
    const struct batch *batch = run->batch;
    const float *loss = run->network->outcome, *hit = loss + batch->target_count;
    struct batch_result result = {0};

    for (size_t m = 0; m < batch->target_count; m++) {
        const double weight = batch->target_weight[m];

        result.loss_sum += weight * loss[m];
        result.hit_sum += weight * hit[m];
        result.weight_sum += weight;
    }
    return result;
}

bool network_run(struct network *network, enum network_mode mode, const struct batch *batch,
                 float gradient_scale, struct weight_gradients *full, const atomic_bool *stop,
                 struct batch_result *ret_result, struct error *err)
{
    struct backend *be = network->weights->backend;
    const bool learner = full || (network->lora && network->lora->group_count > 0);
    struct run run = {.network = network,
                      .weights = network->weights,
                      .a = &network->activations,
                      .batch = batch,
                      .full = full,
                      .stop = stop,
                      .gradient_scale = gradient_scale,
                      .learns = mode == NETWORK_TRAIN && batch->target_count > 0 && learner};
    bool finished;

    check_batch(batch, &network->weights->geometry, &network->limits);
    upload_batch(&run);
    finished = forward(&run);
    if (finished) {
        compare(&run);
        finished = !run.learns || backward(&run);
    }
    if (finished)
        download_outcome(&run);

    const enum backend_status status = backend_sync(be); /* the batch is the caller's again */
    if (status == BACKEND_NO_MEMORY)
        return error_set(err, ERR_NO_MEMORY, "%s", backend_fault(be));
    if (status != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(be));
    if (!finished)
        return error_set(err, ERR_CANCELLED, "stopped between two layers");

    *ret_result = add_up(&run);
    return true;
}

/*
 * network: forward and backward of the whole network over one micro-batch.
 *
 * Purpose    Strings the ops together; one layer reads like its formula in layer.c. Only real
 *            tokens are computed, as a forest of lines (struct tree); logits only at the targets.
 * Ownership  network_new / network_free; all memory is taken once, from the plan.
 * Threads    The worker's.
 * Failure    network_run fails on a device fault or when asked to stop (ERR_CANCELLED).
 */
#ifndef NEEDLED_NETWORK_H
#define NEEDLED_NETWORK_H

#include "daemon/model/lora.h"
#include "daemon/model/weights.h"

#include <stdatomic.h>

struct batch { /* host arrays; the tree as in kernels/ops.h, depth < max_seq_len */
    size_t token_count;
    const uint32_t *tokens;
    const int32_t *parent, *depth, *run, *end;
    size_t target_count; /* ascending by row; may be 0 */
    const int32_t *target_row;
    const uint32_t *target_label;
    const float *target_weight;
};

struct batch_result { /* sums over the targets, weighted */
    double loss_sum, hit_sum, weight_sum;
};

/* Gradients of every weight, in one device array: for full fine-tuning, and to test the ops. NULL in
 * network_run when only the adapter learns. */
struct weight_gradients;

struct network_limits {
    size_t max_tokens, max_targets; /* of one micro-batch */
    size_t recomputed_layers;       /* these first ones are computed again in backward; 0: none */
};

struct network;

size_t network_device_bytes(const struct geometry *geometry, size_t lora_rank,
                            const struct network_limits *limits);
MUST_CHECK bool network_new(struct weights *weights, const struct lora *lora,
                            const struct network_limits *limits, struct network **ret_network,
                            struct error *err);
void network_free(struct network *network); /* NULL is fine */

enum network_mode { NETWORK_EVALUATE, NETWORK_TRAIN };

/* Adds the gradient of (sum of weighted losses) * gradient_scale to lora->gradients (and to full, when
 * not NULL) in NETWORK_TRAIN. *stop (may be NULL) is read between layers. */
MUST_CHECK bool network_run(struct network *network, enum network_mode mode,
                            const struct batch *batch, float gradient_scale,
                            struct weight_gradients *full, const atomic_bool *stop,
                            struct batch_result *ret_result, struct error *err);

/* One tap into the computation, for tests: called with a name ("layer0.q_proj_out"), the device
 * array and its shape while network_run goes on. NULL switches it off. */
typedef void network_probe_fn(void *context, const char *name, const float *device, size_t rows,
                              size_t cols);
void network_set_probe(struct network *network, network_probe_fn *probe, void *context);

MUST_CHECK bool weight_gradients_new(const struct weights *weights,
                                     struct weight_gradients **ret_gradients, struct error *err);
void weight_gradients_free(struct weight_gradients *gradients); /* NULL is fine */
void weight_gradients_clear(struct weight_gradients *gradients);
/* Copies the gradient of the checkpoint's tensor `name` (all layers) to the host; false if unknown. */
bool weight_gradients_get(const struct weight_gradients *gradients, const char *name,
                          float *ret_values, size_t capacity, size_t *ret_count);

#endif

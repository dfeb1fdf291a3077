/*
 * gradients: where the gradient of each weight is added up, for full fine-tuning and tests.
 *
 * Purpose    One device array in the order of the checkpoint's tensors, seen per layer as the ops
 *            want it (hyper-connections packed) and by name as the checkpoint has it. The rest of
 *            the manual is in network.h; this is for the layers alone.
 * Ownership  weight_gradients_new / weight_gradients_free.
 * Threads    The worker's.
 * Failure    See network.h.
 */
#ifndef NEEDLED_GRADIENTS_H
#define NEEDLED_GRADIENTS_H

#include "daemon/model/network.h"

struct layer_gradients { /* named as in struct layer_weights */
    float *attn_norm, *post_attn_norm, *pre_hada_norm, *attn_gate;
    float *q_taps, *k_taps, *v_taps, *q_norm, *k_norm;
    float *kernel[PROJECTION_COUNT];
    struct monarch_gradients monarch;
    struct hyper_gradients hyper;
};

struct engram_gradients {
    float *table, *key, *value, *taps;
};

/* A tensor of the checkpoint: `rows` rows a layer, `width` columns out of a packed `row_stride`. */
struct gradient_slot {
    char name[80];
    size_t offset, layer_count, layer_stride, rows, row_stride, width;
};

#define GRADIENT_LAYER_SLOTS 40 /* tensors that are stacked by layer, and the three outside */
#define GRADIENT_SLOTS_MAX (GRADIENT_LAYER_SLOTS + 4 * GEOMETRY_MAX_SITES)

struct weight_gradients {
    struct backend *backend;
    float *values; /* device */
    float *packed; /* host: one layer of the widest packed tensor */
    size_t value_count;
    float *embedding, *final_norm;
    struct layer_gradients *layers;
    struct engram_gradients engrams[GEOMETRY_MAX_SITES];
    struct gradient_slot slots[GRADIENT_SLOTS_MAX];
    size_t slot_count;
};

#endif

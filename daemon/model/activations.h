/*
 * activations: the memory of one micro-batch, laid out once.
 *
 * Purpose    The plan of what a run writes. A layer keeps what took a product or attention to make;
 *            the rest of it is made again in backward, in places that all layers share. The lanes
 *            stand at the start of each segment of layers. What forward needs for a moment lies
 *            where backward works later. The same walk adds the sizes up and hands the places out,
 *            so the plan cannot disagree with the use.
 * Ownership  activations_init / activations_release; one device allocation.
 * Threads    The worker's.
 * Failure    Sizes past size_t count as SIZE_MAX; no memory is said in bytes.
 */
#ifndef NEEDLED_ACTIVATIONS_H
#define NEEDLED_ACTIVATIONS_H

#include "daemon/model/network.h"

/* What a layer leaves for its backward; N rows each. (k): kept, while the layer is not one of those
 * that are computed again; (K): kept in any case; the others are shared by all layers. */
struct layer_activations {
    float *u;             /* [D] block input: the lanes, mixed */
    float *h, *raw, *h_r; /* [M] coefficients (K), [M] before their sigmoids (k), [1] (k) */
    float *injected;      /* [D] u plus the engram value, [1]; NULL without sites */
    float *alpha;
    float *attn_in, *attn_in_r;                  /* [D] normalised (and rounded), [1] */
    float *q_proj, *k_proj, *v_proj, *gate_proj; /* [H C] [G C] [G V] [H V]; the last (k), the first
                                                    two (k) without taps */
    float *q_tap, *k_tap, *v_tap; /* the same after the taps, two (k); NULL without taps */
    float *q_r, *k_r;             /* [H] [G] */
    float *q, *k, *v;             /* what attention reads; v (k) */
    float *heads, *lse;           /* [H V] (k), [H] (k) */
    float *out_in;                /* [H V] gated (and rounded) */
    float *attn_out, *attn_out_r; /* [D] (k), [1] */
    float *middle;                /* [D] the stream after attention */
    float *mlp_in, *mlp_in_r;     /* [D], [1] */
    float *out;                   /* [D] block output (K) */
};

/* Gradients on their way down; one set serves all layers. "d" of what carries the name above. */
struct backward {
    float *dlanes;          /* [lanes D], of a layer's output, then of its input */
    float *dh;              /* [M] */
    float *dout, *dskip;    /* [D] of the block's output, of the stream inside the block */
    float *dbranch, *dnorm; /* [D] of what a branch ends in, of what its norm reads */
    float *dout_in, *dheads, *dgate_proj;
    float *dq, *dk, *dv, *dq_proj, *dk_proj, *dv_proj;
    /* [D] of an engram site: key, value, value before taps; where the layer's own are spent */
    float *dkey, *dvalue, *draw, *drows;
    float *lora; /* scratch of lora_backward */
};

struct activations {
    struct backend *backend;
    void *memory;
    size_t size_bytes;

    uint32_t *tokens, *target_label;
    int32_t *parent, *depth, *run, *end, *target_row;
    int32_t *engram_index, *engram_distinct; /* [N, tables] slots; the different rows among them */
    uint32_t *engram_row;                    /* [N] each token's of engram_distinct */
    float *target_weight;
    float *outcome; /* losses of a batch's targets, then their hits */

    float *engram_rows, *engram_raw; /* [D] of the site at work: gathered rows, their product */
    float *engram_key[GEOMETRY_MAX_SITES], *engram_value[GEOMETRY_MAX_SITES]; /* [D] */

    float *x;                              /* [D] embedded tokens */
    float *lanes[GEOMETRY_MAX_LAYERS + 1]; /* [lanes D] input of each layer, then the last output */
    size_t segment[GEOMETRY_MAX_LAYERS];   /* first layer of the segment each layer is in */
    size_t recomputed_layers;              /* layers below this find no products in backward */
    struct layer_activations layers[GEOMETRY_MAX_LAYERS];
    float *mean, *final, *final_r; /* [D] mean of the lanes, [D] normalised (and rounded), [1] */
    struct backward backward;
};

/* Bytes a run of these limits needs on the device; SIZE_MAX when they do not fit a size_t. */
size_t activations_device_bytes(const struct geometry *geometry, size_t lora_rank,
                                const struct network_limits *limits);
MUST_CHECK bool activations_init(struct activations *activations, struct backend *be,
                                 const struct geometry *geometry, size_t lora_rank,
                                 const struct network_limits *limits, struct error *err);
void activations_release(struct activations *activations); /* zeroed is fine */

#endif

/*
 * weights: a base checkpoint on a device, ready to compute with.
 *
 * Purpose    Reads <folder>/base.safetensors, checks every tensor's presence, shape and numbers
 *            against the geometry. The large tensors (engram tables, projections) stay in the mapped
 *            file, for ops to read; the rest is converted to float32 and quantised once (W4
 *            numerics), and laid out as the ops take it: packed hyper-connection matrices,
 *            permutations, rotary tables.
 * Ownership  weights_load / weights_free; device memory belongs to the backend and dies here, and
 *            the file stays mapped until then.
 * Threads    The worker's.
 * Failure    The first missing or misshapen tensor is named with both shapes; extra tensors (heads,
 *            mtp_*) are ignored; no memory is said in bytes. A base in use must not be written to: new
 *            ones are renamed over it. weights_check_unchanged finds one that was written to before
 *            it is read again; cut short in the middle of a run it ends the process (SIGBUS), and
 *            the job is taken up again at the next start.
 */
#ifndef NEEDLED_WEIGHTS_H
#define NEEDLED_WEIGHTS_H

#include "daemon/base/error.h"
#include "daemon/model/geometry.h"
#include "kernels/backend.h"

#include <stdatomic.h>

struct safetensors;

/* W4A8: weights through the 4-bit code, activations to 8 bits, straight-through gradients. */
enum numerics { NUMERICS_W4A8, NUMERICS_FLOAT32 };

/* In sorted path order, as the reference draws their start values. */
enum projection {
    PROJECTION_GATE,
    PROJECTION_K,
    PROJECTION_OUT,
    PROJECTION_Q,
    PROJECTION_V,
    PROJECTION_COUNT
};
/* "stack/layers/block/self_attn/gate_proj/kernel", ... */
const char *projection_path(enum projection projection);
void projection_shape(const struct geometry *geometry, enum projection projection, size_t *ret_in,
                      size_t *ret_out);

struct layer_weights {
    const float *attn_norm, *post_attn_norm, *pre_hada_norm; /* gains [D] */
    const float *attn_gate;                                  /* [1], before the sigmoid */
    const float *q_taps, *k_taps, *v_taps;      /* [taps, width]; NULL when conv_taps is 0 */
    const float *q_norm, *k_norm;               /* gains [qk_head_size] */
    struct table kernel_base[PROJECTION_COUNT]; /* [in,out] in the mapped file */
    float *kernel[PROJECTION_COUNT]; /* [in,out] what is multiplied with: merged, then rounded */
    struct monarch monarch;
    struct hyper hyper; /* bias holds b plus the offsets of lane = layer mod lanes */
};

struct engram_weights {
    struct table table;       /* [tables, slots, sub], in the mapped file */
    const float *key, *value; /* [D, D] */
    const float *taps;        /* [ENGRAM_TAPS, D] */
};

struct weights {
    struct backend *backend;
    struct geometry geometry;
    enum numerics numerics;
    struct safetensors *file;    /* mapped: the tables are in it */
    bool zero[PROJECTION_COUNT]; /* every layer of the group is below 1e-6: LoRA leaves it out */
    const float *embedding;      /* [vocab, D]; its first out_vocab rows are the head */
    const float *final_norm;     /* [D] */
    const float *rope_cos, *rope_sin;             /* [max_seq_len, qk_head_size / 2] */
    struct codebook weight_codebook, kv_codebook; /* kv: only when kv_bits < 8 */
    struct layer_weights *layers;
    struct engram_weights *engrams;
    size_t parameter_count;
    size_t device_bytes, mapped_bytes; /* the file's size; what is read of it is the page cache's */
    void **allocations;                /* everything to free */
    const void **imports;              /* everything to release */
    size_t allocation_count, import_count;
};

/* Reads the geometry and checks all tensors without a device. */
MUST_CHECK bool weights_check(const char *path, struct geometry *ret_geometry,
                              size_t *ret_parameter_count, struct error *err);
/* Bytes weights_load will need on the device. */
size_t weights_device_bytes(const struct geometry *geometry);
/* kernel[] holds nothing yet, except where a projection is zero in every layer: weights_use_base or
 * lora_merge comes next. *stop (may be NULL) is read between tensors: ERR_CANCELLED. */
MUST_CHECK bool weights_load(struct backend *be, const char *path, enum numerics numerics,
                             const atomic_bool *stop, struct weights **ret_weights,
                             struct error *err);
void weights_free(struct weights *weights); /* NULL is fine */
/* After ops have read the file: its pages leave the process; the next read finds them in the page
 * cache. Otherwise the whole file would come to stand in memory beside what is planned. */
void weights_drop_pages(const struct weights *weights);
MUST_CHECK bool weights_check_unchanged(const struct weights *weights, struct error *err);

/* The rounded base into every kernel[]: a model without an adapter. */
void weights_use_base(struct weights *weights);

#endif

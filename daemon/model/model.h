/*
 * model: what the trainer knows of a model family.
 *
 * Purpose    Opens a base with an adapter on a device, runs micro-batches, hands out the trainable
 *            values. Another family is another implementation behind this header.
 * Ownership  model_open / model_close.
 * Threads    The worker's.
 * Failure    Files are refused by name, memory in bytes; device faults come back from model_run.
 */
#ifndef NEEDLED_MODEL_H
#define NEEDLED_MODEL_H

#include "daemon/model/network.h"

struct tokenizer;

/* A base is a folder with base.safetensors and tokenizer.model. */
struct model_info {
    size_t layer_count, d_model, vocab_size, out_vocab, max_seq_len, parameter_count;
};
/* Checks both files without a device. */
MUST_CHECK bool model_inspect(const char *folder, struct model_info *ret_info, struct error *err);
/* Opens the folder's tokenizer; a piece count above the vocabulary is refused. */
MUST_CHECK bool model_open_tokenizer(const char *folder, struct tokenizer **ret_tokenizer,
                                     struct error *err);

/* Rank and alpha of an adapter file, by its own words. */
MUST_CHECK bool model_inspect_adapter(const char *path, size_t *ret_rank, double *ret_alpha,
                                      struct error *err);

struct model_spec {
    enum numerics numerics;
    size_t lora_rank;
    float lora_alpha;
    uint64_t seed;            /* start values of the adapter */
    const char *adapter_path; /* the start values are that file's, of lora_rank; NULL: the seed's */
    struct network_limits limits;
};

struct model_plan {
    size_t weights_bytes, adapter_bytes,
        activations_bytes; /* adapter: values, gradients, moments */
    size_t mapped_bytes;   /* the base's file, apart from these: pages of it are read and dropped */
};
MUST_CHECK bool model_plan(const char *folder, const struct model_spec *spec,
                           struct model_plan *ret_plan, struct error *err);

struct model;

/* *stop (may be NULL) is read while the weights are loaded: ERR_CANCELLED. */
MUST_CHECK bool model_open(struct backend *be, const char *folder, const struct model_spec *spec,
                           const atomic_bool *stop, struct model **ret_model, struct error *err);
void model_close(struct model *model); /* NULL is fine */

/* The trainable values, their gradients and moments; all device arrays of `count` floats. */
struct model_values {
    float *values, *gradients, *moment1, *moment2;
    size_t count;
};
struct model_values model_values(struct model *model);
/* Names of weight groups the adapter leaves out since they are all zero in the base. */
size_t model_skipped_groups(const struct model *model, const char *ret_names[PROJECTION_COUNT]);

/* After the values changed: merges and rounds. */
void model_refresh(struct model *model);
/* See network_run. A base whose file was written to is refused before it is read. */
MUST_CHECK bool model_run(struct model *model, enum network_mode mode, const struct batch *batch,
                          float gradient_scale, const atomic_bool *stop,
                          struct batch_result *ret_result, struct error *err);
/* Writes the adapter file; extra metadata says device and numerics. */
MUST_CHECK bool model_write_adapter(const struct model *model, const char *path,
                                    const char *base_name, const struct metadata_out *extra,
                                    size_t extra_count, uint64_t *ret_size_bytes,
                                    char ret_sha256[65], struct error *err);

#endif

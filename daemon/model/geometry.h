/*
 * geometry: the numbers that shape a network, read from its checkpoint.
 *
 * Purpose    Parses and checks the config JSON of a checkpoint; nothing is compiled in.
 * Ownership  A plain value.
 * Threads    Any.
 * Failure    A missing, mistyped or impossible field is named.
 */
#ifndef NEEDLED_GEOMETRY_H
#define NEEDLED_GEOMETRY_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define GEOMETRY_MAX_LAYERS 256
#define GEOMETRY_MAX_SITES 64
#define GEOMETRY_MAX_ORDERS 8
#define GEOMETRY_MAX_LANES 8
#define ENGRAM_TAPS 4    /* causal taps on engram values */
#define CONDITION_RANK 8 /* of the Monarch MLP's conditioning */
#define SINKHORN_ROUNDS 20

struct geometry {
    size_t vocab_size,
        out_vocab; /* out_vocab: rows of the tied head, vocab_size when 0 in the file */
    size_t d_model, layer_count, head_count, kv_head_count, qk_head_size, v_head_size;
    size_t max_seq_len;
    double rope_theta;
    size_t engram_order_count, engram_orders[GEOMETRY_MAX_ORDERS];
    size_t engram_heads;             /* resolved: never 0 */
    size_t engram_seed_heads;        /* hash stride, resolved: engram_heads when 0 in the file */
    size_t engram_slots, engram_sub; /* sub: width of one table row */
    size_t engram_site_count, engram_layers[GEOMETRY_MAX_SITES];
    size_t global_layer_count, global_layers[GEOMETRY_MAX_LAYERS];
    size_t sliding_window; /* 0: every layer is global */
    size_t lane_count;
    size_t conv_taps;                          /* causal taps on q, k, v; 0: none */
    bool split_permutations;                   /* ladder_widths present */
    size_t monarch_size, monarch_a, monarch_b; /* padded width and its two factors */
    int kv_bits, act_bits;
};

MUST_CHECK bool geometry_parse(const char *config_json, struct geometry *ret_geometry,
                               struct error *err);
bool geometry_is_global(const struct geometry *geometry, size_t layer);  /* full attention */
int geometry_engram_site(const struct geometry *geometry, size_t layer); /* -1: none */

#endif

/*
 * weights_leaf: every tensor of a checkpoint that the network reads, as one table.
 *
 * Purpose    Says each tensor's name, shape and place in struct weights; finds it in a file and
 *            checks it against the geometry. Used by weights.c, and by sample.c to make a file.
 * Ownership  None; tensors are borrowed from the open file.
 * Threads    Any.
 * Failure    The first missing or misshapen tensor is named, with both shapes.
 */
#ifndef NEEDLED_WEIGHTS_LEAF_H
#define NEEDLED_WEIGHTS_LEAF_H

#include "daemon/model/geometry.h"
#include "daemon/model/safetensors.h"

#define WEIGHTS_LEAF_NAME_BYTES 96

enum weights_place {
    PLACE_WEIGHTS, /* a pointer in struct weights */
    PLACE_ENGRAM,  /* one in each struct engram_weights */
    PLACE_LAYER,   /* one in each struct layer_weights; the tensor's first axis is the layer */
    PLACE_PACKED,  /* goes into an array of several tensors; layers first */
};

/* How it is rounded when the weights are: groups along the last axis, or along the first. */
enum weights_grid { GRID_NONE, GRID_ROWS, GRID_COLUMNS };

/* Sizes of axes, resolved by the geometry. */
enum weights_axis {
    AXIS_END,
    AXIS_VOCAB,
    AXIS_WIDTH,
    AXIS_PADDED, /* the Monarch layer's power of two, and its factors */
    AXIS_LEFT,
    AXIS_RIGHT,
    AXIS_CONDITION,
    AXIS_Q,
    AXIS_K,
    AXIS_V,
    AXIS_GATE, /* all heads of values side by side */
    AXIS_QK_HEAD,
    AXIS_CONV_TAPS,
    AXIS_LANES,
    AXIS_LANES_SQUARED,
    AXIS_LANES_WIDTH, /* all lanes of a token side by side */
    AXIS_TABLES,
    AXIS_SLOTS,
    AXIS_SUB,
    AXIS_ENGRAM_TAPS,
};

struct weights_leaf {
    const char *name; /* of an engram: with %zu for the site */
    enum weights_place place;
    size_t offset; /* of the pointer in its struct; PLACE_PACKED: unused */
    bool mapped;   /* stays in the file: there is a struct table in place of the pointer */
    enum weights_grid grid;
    enum weights_axis axes[4]; /* without the layer */
};

extern const struct weights_leaf weights_leaves[];
extern const size_t weights_leaf_count;

size_t weights_leaf_axis(const struct geometry *geometry, enum weights_axis axis);
/* Whether this geometry has the tensor at all. */
bool weights_leaf_wanted(const struct weights_leaf *leaf, const struct geometry *geometry);
/* How many tensors it stands for: the sites of an engram, 1 otherwise. */
size_t weights_leaf_copies(const struct weights_leaf *leaf, const struct geometry *geometry);
/* Length of the last axis, 1 where there is none. */
size_t weights_leaf_columns(const struct weights_leaf *leaf, const struct geometry *geometry);
/* Elements of one layer (or of the whole tensor where there are none). */
size_t weights_leaf_elements(const struct weights_leaf *leaf, const struct geometry *geometry);
/* Layers of the tensor, 1 where it has none. */
size_t weights_leaf_layers(const struct weights_leaf *leaf, const struct geometry *geometry);

/* As the checkpoint has it, layers first. */
void weights_leaf_shape(const struct weights_leaf *leaf, const struct geometry *geometry,
                        size_t ret_shape[LIMIT_TENSOR_RANK], size_t *ret_rank);
void weights_leaf_name(const struct weights_leaf *leaf, size_t site,
                       char ret_name[WEIGHTS_LEAF_NAME_BYTES]);

MUST_CHECK bool weights_leaf_find(const struct safetensors *file, const struct geometry *geometry,
                                  const struct weights_leaf *leaf, size_t site,
                                  const struct tensor **ret_tensor, struct error *err);
/* The same by name, for those that are packed. */
MUST_CHECK bool weights_leaf_find_named(const struct safetensors *file,
                                        const struct geometry *geometry, const char *name,
                                        const struct tensor **ret_tensor, struct error *err);
/* All of them; also what the file holds that would change the result and is not supported. */
MUST_CHECK bool weights_leaf_check(const struct safetensors *file, const struct geometry *geometry,
                                   size_t *ret_parameter_count, struct error *err);

#endif

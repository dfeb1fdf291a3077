/*
 * monarch: tiles of tokens on their way through the Monarch layer.
 *
 * Purpose    What forward and backward share: the layout of a tile and the walk through it.
 * Ownership  A plan and its tiles point into the op's scratch: the plan's tables are shared, a tile
 *            belongs to one team part.
 * Threads    Any; one tile belongs to one thread.
 * Failure    None.
 *
 * A tile is 16 tokens side by side. Every array is rows of 16 floats, one a channel, so a
 * permutation moves whole rows (while a product stores them), what is elementwise has a vector of
 * tokens for each channel, and a Kronecker factor is one product of small matrices:
 *
 *   channel      0      1   ...  b - 1  (pad)   b    b + 1  ...
 *   token 0      .      .          .            .      .           by b: rows within each block,
 *   ...                                                            one block a column of results
 *   token 15     .      .          .            .      .           by a: the same row of each block
 *
 * One row of padding after each block of b: the pass by a would else step through memory by a power
 * of two and find all its rows in one set of the cache. At P 1024 an array is 66 KiB: a tile's two
 * (forward) to five (backward) stay in the second level of the cache.
 *
 * D is less than P: blocks past D are zero at the start and nobody looks at them at the end. So the
 * first factor by b and the last, as well as what meets them, are cut to the blocks that hold D.
 */
#ifndef NEEDLED_MONARCH_H
#define NEEDLED_MONARCH_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/monarch_rows.h"

enum monarch_use {
    MONARCH_FORWARD,
    MONARCH_BACKWARD, /* gradient of the input alone */
    MONARCH_WEIGHTS   /* and of the weights: keeps everything */
};

struct monarch_plan {
    const struct monarch *w;
    enum monarch_use use;
    size_t shift;                        /* b = 1 << shift */
    size_t step;                         /* floats from block to block */
    size_t blocks;                       /* of a, those that hold D, in fours */
    size_t size;                         /* floats of an array */
    const uint32_t *place1, *place2;     /* [P] where row p1[q], p2[q] stands */
    const uint32_t *inverse1, *inverse2; /* where row q goes: the row i with p1[i] = q */
    const float *inverse_d3;             /* d3 of that row */
};

/* [P] rows each, names as in the formula. Where not all is kept, x, left and dk are one array and
 * in1, in2, z2, in3, z3 and dz another (in forward z1 too): each is gone when the next is made.
 * Backward for the input alone skips all from in2 to z3: in2 is NULL. (Set to dz, it makes
 * monarch_tile_finish work, and y can be had again.) */
struct monarch_tile {
    const struct monarch_plan *plan;
    size_t T;
    float *x, *in1, *z1, *in2, *z2, *in3, *z3;
    float *e, *slope;      /* slope: of c sigmoid(c); NULL: not wanted */
    float *left, *dk, *dz; /* work */
    float *m, *dm;         /* [rank] rows */
};

/* Floats of scratch: for the tables, and for each tile. */
size_t monarch_plan_floats(const struct monarch *weights);
size_t monarch_tile_floats(const struct monarch *weights, enum monarch_use use);
struct monarch_plan monarch_plan(const struct monarch *weights, enum monarch_use use,
                                 float *scratch);
struct monarch_tile monarch_tile(const struct monarch_plan *plan, float *scratch);

/* From T tokens x [T,D] to z1; to in2, e and slope unless they are NULL. */
void monarch_tile_start(struct monarch_tile *tile, const float *x, size_t T);
/* From in2 to z3: with d4 and skip, y. */
void monarch_tile_finish(struct monarch_tile *tile);

/* One factor of K, or its transpose when `back`. By b: out = in by w within each block, for `from`
 * = `to` blocks. By a: the rows of same place in each block, from `from` blocks to `to`. Rows of
 * out stand as those of in, or at place, times scale unless it is NULL. */
struct monarch_factor {
    float *out;
    const float *in, *w;
    bool back;
    size_t from, to;
    const uint32_t *place;
    const float *scale;
};
void monarch_by_a(const struct monarch_plan *plan, const struct monarch_factor *factor);
void monarch_by_b(const struct monarch_plan *plan, const struct monarch_factor *factor);

/* out [rank] rows (+)= sum over `channels` of w[channel,r] in(channel): steps of w in floats. */
void monarch_to_rank(const struct monarch_plan *plan, float *out, const float *in, const float *w,
                     size_t channel_step, size_t rank_step, size_t channels);

/* ---- gradients of the weights: monarch_weights.c; tiles of use MONARCH_WEIGHTS ----------------*/

/* One block of rows' sum, an array after the other. */
size_t monarch_weights_floats(const struct monarch *weights);
struct monarch_gradients monarch_weights_at(float *memory, const struct monarch *weights);
/* gradients += the sums of `count` blocks, in their order. */
void monarch_weights_add(struct cpu *cpu, const struct monarch_gradients *gradients,
                         const struct monarch *weights, const float *memory, size_t count);

/* dwa and dwb of one K from its input and dk; uses left. */
struct monarch_pair {
    float *dwa, *dwb;
    const float *in, *dk, *wa, *wb;
};
void monarch_weights_factors(const struct monarch_tile *tile, const struct monarch_pair *pair);

/* out[channel, r] += sum over tokens of rows(channel) of_rank(r): steps of out in floats. */
void monarch_weights_condition(const struct monarch_plan *plan, float *out, size_t channel_step,
                               size_t rank_step, const float *rows, const float *of_rank,
                               size_t channels);

#endif

/*
 * panel: what both directions of attention share: panels of queries, tiles of packed keys and
 * values, and which pairs of the two are visible. The picture stands in attention.c.
 *
 * Purpose    Cuts queries and keys into pieces whose products are dense, and finds in little time
 *            what a piece of queries sees of a piece of keys.
 * Ownership  All memory is the op's scratch; the arrays that are read are the caller's.
 * Threads    A plan is read by all; a panel belongs to one thread.
 * Failure    None: who asked for the scratch has it.
 */
#ifndef NEEDLED_PANEL_H
#define NEEDLED_PANEL_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/tile.h"
#include "kernels/cpu/ops/vector.h"

#include <stdbool.h>

#define PANEL_KEYS 64 /* keys of a tile */
#define PANEL_CHUNKS (PANEL_KEYS / TILE_CHUNK)

static_assert(TILE_CHUNK % TILE_ROWS == 0, "a block of keys lies in one chunk");
static_assert(TILE_CHUNK == LANES, "a chunk is summed lane by lane");

struct panel_bounds { /* of the tokens of one tile */
    int32_t end_min, end_max, depth_min, depth_max;
};

struct panel_plan {
    const struct attention *shape;
    const struct tree *tree;
    size_t share;                                           /* query heads of a key/value head */
    size_t c_width, v_width;                                /* C and V up to whole chunks */
    size_t tile_count, token_count, row_count, panel_count; /* tokens, rows of a panel: at most */
    struct panel_bounds *bounds;                            /* [tiles] */
    /* [tiles,G] of [C,KEYS], [KEYS,c_width], [V,KEYS], [KEYS,v_width]; zeroes fill up. Those that
     * are NULL are not packed. */
    float *k_columns, *k_rows, *v_columns, *v_rows;
};

/* Chunks [begin, end) of a tile hold all that is seen; whole: and nothing else. */
struct panel_range {
    uint8_t begin, end;
    bool whole;
};

/* Some tokens' queries of the heads of one group, a row each: row = token share + head. */
struct panel {
    const struct panel_plan *plan;
    size_t begin, end, g; /* tokens */
    size_t rows;          /* up to whole blocks of TILE_ROWS */
    int32_t floor_min, floor_max;
    int32_t *depth_floor;      /* [tokens]: what is deeper lies in the window */
    int32_t *row_token;        /* [rows], from 0; past the last row the last token */
    int32_t *mask;             /* [tokens,KEYS] of the tile at hand: -1 where seen, else 0 */
    struct panel_range *range; /* [tokens] of the tile at hand */
    bool masked;               /* not all of the tile at hand is seen by all: look at the masks */
};

/* Pieces of one block, each on a line of the cache. Without a block they are only counted. */
struct panel_space {
    float *start;
    size_t used;
};

static inline void *panel_take(struct panel_space *space, size_t count)
{
    float *piece = space->start ? space->start + space->used : NULL;

    space->used += (count + LANES - 1) / LANES * LANES;
    return piece;
}

struct panel_plan panel_plan(const struct attention *shape, const struct tree *tree);
void panel_place(struct panel *panel, const struct panel_plan *plan, struct panel_space *space);

void panel_find_bounds(struct panel_plan *plan);
/* Fills what is to be packed of k [N,G,C] and v [N,G,V]. */
void panel_pack(struct cpu *cpu, struct panel_plan *plan, const float *k, const float *v);

void panel_start(struct panel *panel, size_t index, size_t g);
/* rows [rows,width] = scale times the panel's part of heads [N,H,size]; zeroes fill up. */
void panel_gather(float *rows, size_t width, const struct panel *panel, const float *heads,
                  size_t size, float scale);
/* False if nothing of the tile is seen; else the panel's fields of the tile at hand are set. */
bool panel_look(struct panel *panel, size_t tile);
/* What TILE_ROWS rows from `row` on see of the tile at hand. */
struct panel_range panel_rows_see(const struct panel *panel, size_t row);

static inline const int32_t *panel_row_mask(const struct panel *panel, size_t row)
{
    return &panel->mask[(size_t)panel->row_token[row] * PANEL_KEYS];
}

/* exp of x <= 0 or little more, cut at -87: never 0, within 2 ulp and what rounding x log2(e) makes
 * of x; NaN stays NaN. 2^n has its whole part n in the low bits of t, and 2^f is a polynomial. */
static inline tile_vector panel_exp(tile_vector x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23, see vector_exp */
    tile_vector c = tile_max((tile_vector){0} - 87.0f, x);
    tile_vector t = c * 1.44269504088896341f + shift;
    tile_vector n = t - shift;
    tile_vector f = c * 1.44269504088896341f - n;
    tile_vector p = f * 1.5594677550e-4f + 1.3406643905e-3f;
    p = p * f + 9.6176929749e-3f;
    p = p * f + 5.5503105510e-2f;
    p = p * f + 2.4022652783e-1f;
    p = p * f + 6.9314721497e-1f;
    p = p * f + 1.0f;
    return p * (tile_vector)(((tile_bits)t << 23) + 0x3f800000u);
}

#endif

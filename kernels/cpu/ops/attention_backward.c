/*
 * attention, backward: five products of a panel of queries and a tile of keys, see attention.c for
 * the cut and kernels/ref/attention.c for the formula.
 *
 *   S = Q K^T   P = exp(S - lse)   dP = dO V^T   dS = P (dP - row)   dQ += dS K
 *                                                dV += P^T dO        dK += dS^T Q
 *
 * Q carries the scale, so dK has it; dQ gets it at the end. P and dS of one panel and tile are
 * kept whole, for the last two products run over rows.
 *
 * Who owns a sum: panels are taken in slabs; a slab's dQ is its own, its dK and dV go to partial
 * sums of the tiles that it may see, added up over the slabs, ascending, at the end. The slabs
 * depend on sizes and tree alone.
 *
 *                 tiles   0    1    2    3    4
 *               slab 0    x    x                    each x: partial sums of a tile's dK and dV;
 *               slab 1    x         x    x          dK of tile 0 = that of slab 0 + that of slab 1;
 *               slab 2                   x    x     tile 1 is another branch than slab 1
 *
 * Numerics  f32; a product sums over ascending rows or keys in one chain, onto what was there.
 * Source    Dao et al. 2022, arXiv:2205.14135.
 */
#include "kernels/cpu/ops/panel.h"
#include "kernels/cpu/ops/tree.h"

#include <string.h>

#define SLABS_WANTED 64 /* times groups: shares for many threads, partial sums of bounded size */
#define SLAB_TOKENS 64  /* at least */

struct slab {
    size_t begin, end;           /* panels */
    size_t tile_begin, tile_end; /* those between may be seen */
};

struct backward_call {
    struct panel_plan plan;
    float *dq, *dk, *dv;
    const float *q, *dout, *o, *lse;
    size_t slab_panels, slab_count;
    struct slab *slabs;
    int32_t *places;                /* [slabs,tiles]: which of the partial sums, or -1 */
    size_t place_count;             /* 0 until they are known */
    float *k_partials, *v_partials; /* [places,G] of [KEYS,c_width], [KEYS,v_width] */
    float *parts;                   /* [parts, part_size] */
    size_t part_size;
};

struct backward_part {
    struct panel panel;
    float *q, *dout, *dq;      /* [rows,c_width], [rows,v_width], [rows,c_width] */
    float *lse, *row;          /* [rows]; row = sum_v dout o */
    float *p, *ds;             /* [rows,KEYS] of the tile at hand */
    struct panel_range *range; /* [rows / TILE_ROWS] of the tile at hand */
};

/* ---- one panel and one tile --------------------------------------------------------------------
 */

/* p, given as S, becomes exp(S - lse); ds, given as dP, becomes p (dP - row). Both are 0
 * where a mask is given and hides them. */
static inline void weigh(float *p, float *ds, const int32_t *mask, float lse, float row,
                         size_t chunks)
{
    for (size_t k = 0; k < chunks * TILE_CHUNK; k += TILE_WIDTH) {
        tile_vector weight = panel_exp(tile_load(&p[k]) - lse);
        tile_vector change = weight * (tile_load(&ds[k]) - row);
        if (mask) {
            const tile_bits shown = tile_load_bits(&mask[k]);
            weight = tile_masked(weight, shown);
            change = tile_masked(change, shown);
        }
        tile_store(&p[k], weight);
        tile_store(&ds[k], change);
    }
}

/* What a block of rows does not see of the tile is 0. */
static void clear_unseen(float *rows, struct panel_range see)
{
    const size_t begin = see.begin * (size_t)TILE_CHUNK, end = see.end * (size_t)TILE_CHUNK;

    for (size_t m = 0; m < TILE_ROWS; m++) {
        memset(&rows[m * PANEL_KEYS], 0, begin * sizeof *rows);
        memset(&rows[m * PANEL_KEYS + end], 0, (PANEL_KEYS - end) * sizeof *rows);
    }
}

static size_t chunk_keys(struct panel_range see)
{
    return (size_t)(see.end - see.begin) * TILE_CHUNK;
}

/* target [rows,KEYS] = rows [rows,size] (of `width`) times columns [size,KEYS], where seen. */
static void rows_times_columns(const struct backward_part *part, float *target, const float *rows,
                               size_t width, const float *columns, size_t size)
{
    for (size_t row = 0; row < part->panel.rows; row += TILE_ROWS) {
        const struct panel_range see = part->range[row / TILE_ROWS];
        const size_t first = see.begin * (size_t)TILE_CHUNK;
        const struct tile_product product = {.a = &rows[row * width],
                                             .b = &columns[first],
                                             .a_row = width,
                                             .a_k = 1,
                                             .b_row = PANEL_KEYS,
                                             .c_row = PANEL_KEYS,
                                             .K = size};

        clear_unseen(&target[row * PANEL_KEYS], see);
        tile_product(&target[row * PANEL_KEYS + first], &product, chunk_keys(see));
    }
}

static_assert(TILE_ROWS <= 8, "there is a 1 for each row");
static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

static void add_to_dq(const struct backward_part *part, const float *k_rows, size_t width)
{
    for (size_t row = 0; row < part->panel.rows; row += TILE_ROWS) {
        const struct panel_range see = part->range[row / TILE_ROWS];
        const size_t first = see.begin * (size_t)TILE_CHUNK;
        const struct tile_product product = {.a = &part->ds[row * PANEL_KEYS + first],
                                             .b = &k_rows[first * width],
                                             .a_row = PANEL_KEYS,
                                             .a_k = 1,
                                             .b_row = width,
                                             .c_row = width,
                                             .K = chunk_keys(see),
                                             .keep = ones};

        if (product.K)
            tile_product(&part->dq[row * width], &product, width);
    }
}

/* Rows [begin, end) hold all that see something of the chunk. */
static void rows_of_chunk(const struct backward_part *part, size_t chunk, size_t *ret_begin,
                          size_t *ret_end)
{
    size_t begin = part->panel.rows, end = 0;

    for (size_t row = 0; row < part->panel.rows; row += TILE_ROWS) {
        const struct panel_range see = part->range[row / TILE_ROWS];
        if (chunk < see.begin || chunk >= see.end)
            continue;
        begin = row < begin ? row : begin;
        end = row + TILE_ROWS;
    }
    *ret_begin = begin;
    *ret_end = end;
}

/* target [KEYS,width] += pairs^T [KEYS,rows] times rows [rows,width]. */
static void add_to_keys(const struct backward_part *part, float *target, const float *pairs,
                        const float *rows, size_t width)
{
    for (size_t chunk = 0; chunk < PANEL_CHUNKS; chunk++) {
        size_t begin, end;

        rows_of_chunk(part, chunk, &begin, &end);
        if (begin >= end)
            continue;
        for (size_t key = chunk * TILE_CHUNK; key < (chunk + 1) * TILE_CHUNK; key += TILE_ROWS) {
            const struct tile_product product = {.a = &pairs[begin * PANEL_KEYS + key],
                                                 .b = &rows[begin * width],
                                                 .a_row = 1,
                                                 .a_k = PANEL_KEYS,
                                                 .b_row = width,
                                                 .c_row = width,
                                                 .K = end - begin,
                                                 .keep = ones};
            tile_product(&target[key * width], &product, width);
        }
    }
}

static void tile_backward(struct backward_part *part, size_t tile, float *dk, float *dv)
{
    const struct panel *panel = &part->panel;
    const struct panel_plan *plan = panel->plan;
    const size_t C = plan->shape->qk_size, V = plan->shape->v_size;
    const size_t first = (tile * plan->shape->kv_head_count + panel->g) * PANEL_KEYS;

    for (size_t row = 0; row < panel->rows; row += TILE_ROWS)
        part->range[row / TILE_ROWS] = panel_rows_see(panel, row);
    rows_times_columns(part, part->p, part->q, plan->c_width, &plan->k_columns[first * C], C);
    rows_times_columns(part, part->ds, part->dout, plan->v_width, &plan->v_columns[first * V], V);
    for (size_t row = 0; row < panel->rows; row++) {
        const struct panel_range see = part->range[row / TILE_ROWS];
        const size_t at = row * PANEL_KEYS + see.begin * (size_t)TILE_CHUNK;
        const size_t chunks = (size_t)(see.end - see.begin);
        const int32_t *mask = panel_row_mask(panel, row) + see.begin * (size_t)TILE_CHUNK;
        float *p = &part->p[at], *ds = &part->ds[at];

        if (see.whole)
            weigh(p, ds, NULL, part->lse[row], part->row[row], chunks);
        else
            weigh(p, ds, mask, part->lse[row], part->row[row], chunks);
    }
    add_to_dq(part, &plan->k_rows[first * plan->c_width], plan->c_width);
    add_to_keys(part, dv, part->p, part->dout, plan->v_width);
    add_to_keys(part, dk, part->ds, part->q, plan->c_width);
}

/* ---- panels and slabs --------------------------------------------------------------------------
 */

/* lse and the row terms; rows past the last have 0, as have their q and dout. */
static void gather_rows(const struct backward_call *call, struct backward_part *part)
{
    const struct panel *panel = &part->panel;
    const size_t H = call->plan.shape->head_count, V = call->plan.shape->v_size;
    size_t row = 0;

    for (size_t n = panel->begin; n < panel->end; n++)
        for (size_t h = 0; h < call->plan.share; h++, row++) {
            const size_t at = n * H + panel->g * call->plan.share + h;
            part->lse[row] = call->lse[at];
            part->row[row] = vector_dot(&call->dout[at * V], &call->o[at * V], V);
        }
    for (; row < panel->rows; row++)
        part->lse[row] = part->row[row] = 0;
}

static void write_dq(const struct backward_call *call, const struct backward_part *part)
{
    const struct panel *panel = &part->panel;
    const struct attention *shape = call->plan.shape;
    const size_t H = shape->head_count, C = shape->qk_size, share = call->plan.share;

    for (size_t n = panel->begin, row = 0; n < panel->end; n++)
        for (size_t h = panel->g * share; h < (panel->g + 1) * share; h++, row++)
            for (size_t c = 0; c < C; c++)
                call->dq[(n * H + h) * C + c] =
                    shape->scale * part->dq[row * call->plan.c_width + c];
}

static size_t place_part(struct backward_part *part, const struct panel_plan *plan, float *start)
{
    struct panel_space space = {.start = start};
    const size_t rows = plan->row_count;

    panel_place(&part->panel, plan, &space);
    part->q = panel_take(&space, rows * plan->c_width);
    part->dout = panel_take(&space, rows * plan->v_width);
    part->dq = panel_take(&space, rows * plan->c_width);
    part->lse = panel_take(&space, rows);
    part->row = panel_take(&space, rows);
    part->p = panel_take(&space, rows * PANEL_KEYS);
    part->ds = panel_take(&space, rows * PANEL_KEYS);
    part->range = panel_take(&space, rows * sizeof *part->range / sizeof(float) + 1);
    return space.used;
}

/* Where the partial sums of a slab, a tile and a group stand, counted in tiles; -1: nowhere. */
static ptrdiff_t place_of(const struct backward_call *call, size_t slab, size_t tile, size_t g)
{
    const int32_t place = call->places[slab * call->plan.tile_count + tile];
    return place < 0 ? -1 : (ptrdiff_t)((size_t)place * call->plan.shape->kv_head_count + g);
}

static void panel_backward(const struct backward_call *call, struct backward_part *part, size_t s)
{
    const struct panel_plan *plan = &call->plan;
    const struct slab *slab = &call->slabs[s];
    struct panel *panel = &part->panel;

    panel_gather(part->q, plan->c_width, panel, call->q, plan->shape->qk_size, plan->shape->scale);
    panel_gather(part->dout, plan->v_width, panel, call->dout, plan->shape->v_size, 1);
    gather_rows(call, part);
    memset(part->dq, 0, panel->rows * plan->c_width * sizeof *part->dq);
    for (size_t tile = slab->tile_begin; tile < slab->tile_end; tile++) {
        const ptrdiff_t place = place_of(call, s, tile, panel->g);
        if (place < 0 || !panel_look(panel, tile))
            continue;
        tile_backward(part, tile, &call->k_partials[(size_t)place * PANEL_KEYS * plan->c_width],
                      &call->v_partials[(size_t)place * PANEL_KEYS * plan->v_width]);
    }
    write_dq(call, part);
}

/* Indices count slabs from the last, which in a long line has most to do, to the first. */
static void backward_slabs(void *context, size_t begin, size_t end, size_t part_index)
{
    const struct backward_call *call = context;
    const struct panel_plan *plan = &call->plan;
    const size_t G = plan->shape->kv_head_count, c_tile = PANEL_KEYS * plan->c_width;
    const size_t v_tile = PANEL_KEYS * plan->v_width;
    struct backward_part part;

    (void)place_part(&part, plan, &call->parts[part_index * call->part_size]);
    for (size_t index = begin; index < end; index++) {
        const size_t s = call->slab_count - 1 - index / G, g = index % G;
        const struct slab *slab = &call->slabs[s];

        for (size_t tile = slab->tile_begin; tile < slab->tile_end; tile++) {
            const ptrdiff_t place = place_of(call, s, tile, g);
            if (place < 0)
                continue;
            memset(&call->k_partials[(size_t)place * c_tile], 0, c_tile * sizeof(float));
            memset(&call->v_partials[(size_t)place * v_tile], 0, v_tile * sizeof(float));
        }
        for (size_t p = slab->begin; p < slab->end; p++) {
            panel_start(&part.panel, p, g);
            panel_backward(call, &part, s);
        }
    }
}

/* ---- partial sums ------------------------------------------------------------------------------
 */

/* target [N,G,size]: the keys of one tile, of group g, from the slabs that saw them. */
static void add_slabs(const struct backward_call *call, float *target, const float *partials,
                      size_t size, size_t width, size_t tile, size_t g)
{
    const size_t G = call->plan.shape->kv_head_count, N = call->plan.tree->token_count;
    bool first = true;

    for (size_t s = 0; s < call->slab_count; s++) {
        if (tile < call->slabs[s].tile_begin || tile >= call->slabs[s].tile_end)
            continue;
        const ptrdiff_t place = place_of(call, s, tile, g);
        if (place < 0)
            continue;
        const float *from = &partials[(size_t)place * PANEL_KEYS * width];
        for (size_t n = tile * PANEL_KEYS; n < N && n < (tile + 1) * PANEL_KEYS; n++) {
            float *to = &target[(n * G + g) * size];
            for (size_t c = 0; c < size; c++)
                to[c] = first ? from[c] : to[c] + from[c];
            from += width;
        }
        first = false;
    }
}

static void finish_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct backward_call *call = context;
    const struct panel_plan *plan = &call->plan;

    (void)part;
    for (size_t tile = begin; tile < end; tile++)
        for (size_t g = 0; g < plan->shape->kv_head_count; g++) {
            add_slabs(call, call->dk, call->k_partials, plan->shape->qk_size, plan->c_width, tile,
                      g);
            add_slabs(call, call->dv, call->v_partials, plan->shape->v_size, plan->v_width, tile,
                      g);
        }
}

/* The first token that one of [begin, end) sees: on a chain of neighbours it only moves on. */
static size_t first_seen(const struct panel_plan *plan, size_t begin, size_t end)
{
    const struct tree *tree = plan->tree;
    const size_t window = plan->shape->window;
    size_t least = begin;

    for (size_t n = begin; n < end; n++) {
        if (n != begin && (size_t)tree->run[n] != n)
            continue;
        size_t steps = (size_t)tree->depth[n];
        if (window && window - 1 < steps)
            steps = window - 1;
        const size_t seen = (size_t)tree_ancestor(tree, n, steps);
        least = seen < least ? seen : least;
    }
    return least;
}

/* The slabs and the places of their partial sums. */
static void set_slabs(struct backward_call *call)
{
    const struct panel_plan *plan = &call->plan;
    const size_t N = plan->tree->token_count;
    size_t places = 0;

    for (size_t s = 0; s < call->slab_count; s++) {
        struct slab *slab = &call->slabs[s];
        slab->begin = s * call->slab_panels;
        slab->end = slab->begin + call->slab_panels;
        slab->end = slab->end < plan->panel_count ? slab->end : plan->panel_count;
        const size_t begin = slab->begin * plan->token_count, past = slab->end * plan->token_count;
        const size_t end = past < N ? past : N;
        slab->tile_begin = first_seen(plan, begin, end) / PANEL_KEYS;
        slab->tile_end = (end + PANEL_KEYS - 1) / PANEL_KEYS;
        for (size_t tile = slab->tile_begin; tile < slab->tile_end; tile++) {
            const bool seen = plan->bounds[tile].end_max > (int32_t)begin;
            call->places[s * plan->tile_count + tile] = seen ? (int32_t)places++ : -1;
        }
    }
    call->place_count = places;
}

/* Everything shared, at `start`, or nowhere to learn how much that is. */
static size_t place_call(struct backward_call *call, float *start, size_t part_count)
{
    struct panel_space space = {.start = start};
    struct panel_plan *plan = &call->plan;
    const size_t G = plan->shape->kv_head_count, keys = plan->tile_count * G * PANEL_KEYS;
    const size_t partials = call->place_count * G * PANEL_KEYS;
    struct backward_part part;

    plan->bounds = panel_take(&space, plan->tile_count * sizeof *plan->bounds / sizeof(float));
    call->slabs = panel_take(&space, call->slab_count * sizeof *call->slabs / sizeof(float));
    call->places = panel_take(&space, call->slab_count * plan->tile_count);
    plan->k_columns = panel_take(&space, keys * plan->shape->qk_size);
    plan->k_rows = panel_take(&space, keys * plan->c_width);
    plan->v_columns = panel_take(&space, keys * plan->shape->v_size);
    call->part_size = place_part(&part, plan, NULL);
    call->parts = panel_take(&space, call->part_size * part_count);
    call->k_partials = panel_take(&space, partials * plan->c_width);
    call->v_partials = panel_take(&space, partials * plan->v_width);
    return space.used;
}

void cpu_attention_backward(struct cpu *cpu, float *dq, float *dk, float *dv, const float *dout,
                            const float *o, const float *lse, const float *q, const float *k,
                            const float *v, const struct attention *shape, const struct tree *tree)
{
    struct backward_call call = {.plan = panel_plan(shape, tree), .dq = dq, .dk = dk, .dv = dv};
    const size_t N = tree->token_count, G = shape->kv_head_count;
    const size_t parts = team_thread_count(cpu->team);
    size_t slab_tokens = N * G / SLABS_WANTED;

    call.q = q;
    call.dout = dout;
    call.o = o;
    call.lse = lse;
    slab_tokens = slab_tokens < SLAB_TOKENS ? SLAB_TOKENS : slab_tokens;
    call.slab_panels = (slab_tokens + call.plan.token_count - 1) / call.plan.token_count;
    call.slab_count = (call.plan.panel_count + call.slab_panels - 1) / call.slab_panels;
    for (int known = 0; known < 2; known++) { /* how many partial sums there are, then all */
        float *scratch = cpu_scratch(cpu, place_call(&call, NULL, parts));
        if (!scratch)
            return;
        (void)place_call(&call, scratch, parts);
        panel_find_bounds(&call.plan);
        set_slabs(&call);
    }
    panel_pack(cpu, &call.plan, k, v);
    team_deal(cpu->team, call.slab_count * G, backward_slabs, &call);
    team_deal(cpu->team, call.plan.tile_count, finish_tiles, &call);
}

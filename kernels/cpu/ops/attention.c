/*
 * attention: softmax attention of each token over itself and its ancestors, see
 * kernels/ref/attention.c; this is forward, attention_backward.c the way back.
 *
 * Queries are cut into panels, some tokens times all heads of a group, a row each; keys into tiles
 * of PANEL_KEYS tokens. A panel goes through its tiles: S = Q K^T, the softmax kept up to date as
 * its maximum grows, O = O exp(old - new maximum) + P V, TILE_ROWS rows at a time, so that S and P
 * never leave the first cache.
 *
 *                   tiles of keys
 *                 0     64    128   192   256
 *               +-----+-----+-----+-----+-----+    Tokens stand in preorder: i sees j when j <= i
 *     queries 0 | \   |     |     |     |     |    and i < end[j] and the window reaches that far.
 *               |     |     |     |     |     |
 *            64 |#####| \   |     |     |     |    #####  all is seen: no mask is made
 *               |     |     |     |     |     |    \      some is: masked pair by pair, and cut to
 *    branch 128 |#####|#####| \   |     |     |           whole chunks of keys and blocks of rows
 *               |     |     |     |     |     |    blank  nothing is: passed over, for no end in
 *    branch 192 |#####|#####|     | \   |     |           the tile reaches the panel (or no key is
 *               |     |     |     |     |     |           deep enough for the window)
 *      root 256 |     |     |     |     | \   |
 *               +-----+-----+-----+-----+-----+
 *
 * Numerics  f32; a product sums over ascending c or j in one chain, a tile is added at a time; the
 *           softmax's denominator is summed in LANES lanes. What is not visible adds an exact 0.
 * Source    Dao et al. 2022, arXiv:2205.14135.
 */
#include "kernels/cpu/ops/panel.h"

#include <assert.h>
#include <float.h>

static_assert(TILE_ROWS <= TILE_WIDTH, "the rows of a block have a factor each in one vector");

struct forward_call {
    struct panel_plan plan;
    float *o, *lse;
    const float *q;
    float *parts; /* [parts, part_size] */
    size_t part_size;
};

struct forward_part {
    struct panel panel;
    float *q, *o; /* [rows,C], [rows,v_width] */
    float *top;   /* [rows / TILE_ROWS,TILE_WIDTH] largest score so far, a vector a block */
    float *sum;   /* [rows,LANES] sums of exp(score - top) */
};

static size_t place_part(struct forward_part *part, const struct panel_plan *plan, float *start)
{
    struct panel_space space = {.start = start};

    panel_place(&part->panel, plan, &space);
    part->q = panel_take(&space, plan->row_count * plan->shape->qk_size);
    part->o = panel_take(&space, plan->row_count * plan->v_width);
    part->top = panel_take(&space, plan->row_count / TILE_ROWS * TILE_WIDTH);
    part->sum = panel_take(&space, plan->row_count * LANES);
    return space.used;
}

static float *top_of(const struct forward_part *part, size_t row)
{
    return &part->top[row / TILE_ROWS * TILE_WIDTH + row % TILE_ROWS];
}

/* The largest, lane by lane, of a row's scores that the mask shows (NULL: of all). */
static inline tile_vector largest(const float *s, const int32_t *mask, size_t chunks)
{
    const tile_bits least = (tile_bits)((tile_vector){0} - FLT_MAX);
    tile_vector so_far = (tile_vector)least;

    for (size_t k = 0; k < chunks * TILE_CHUNK; k += TILE_WIDTH) {
        tile_vector x = tile_load(&s[k]);
        if (mask) {
            const tile_bits shown = tile_load_bits(&mask[k]);
            x = (tile_vector)(((tile_bits)x & shown) | (least & ~shown));
        }
        so_far = tile_max(x, so_far);
    }
    return so_far;
}

/* s becomes exp(s - top), 0 where a mask is given and hides it; sum [LANES] is multiplied by shrink
 * and gets its lanes. */
static inline void soften(float *s, float *sum, const int32_t *mask, float top, float shrink,
                          size_t chunks)
{
    tile_vector lane[LANES / TILE_WIDTH];

    for (size_t j = 0; j < LANES / TILE_WIDTH; j++)
        lane[j] = tile_load(&sum[j * TILE_WIDTH]) * shrink;
    for (size_t k = 0; k < chunks * TILE_CHUNK; k += TILE_CHUNK)
        for (size_t j = 0; j < LANES / TILE_WIDTH; j++) {
            const size_t at = k + j * TILE_WIDTH;
            tile_vector p = panel_exp(tile_load(&s[at]) - top);
            if (mask)
                p = tile_masked(p, tile_load_bits(&mask[at]));
            tile_store(&s[at], p);
            lane[j] += p;
        }
    for (size_t j = 0; j < LANES / TILE_WIDTH; j++)
        tile_store(&sum[j * TILE_WIDTH], lane[j]);
}

/* TILE_ROWS rows of scores become weights; shrink is for what was summed before. */
static void rows_soften(struct forward_part *part, float *s, float shrink[TILE_WIDTH], size_t row,
                        struct panel_range see)
{
    const size_t chunks = (size_t)(see.end - see.begin), first = see.begin * (size_t)TILE_CHUNK;
    float *top = top_of(part, row), *sum = &part->sum[row * LANES];
    const int32_t *mask[TILE_ROWS];

    tile_vector lanes[TILE_ROWS];

    for (size_t m = 0; m < TILE_ROWS; m++) {
        const float *score = &s[m * PANEL_KEYS];
        mask[m] = panel_row_mask(&part->panel, row + m) + first;
        lanes[m] = see.whole ? largest(score, NULL, chunks) : largest(score, mask[m], chunks);
    }
    const tile_vector before = tile_load(top), after = tile_max(tile_tops(lanes), before);
    tile_store(shrink, panel_exp(before - after));
    tile_store(top, after);
    for (size_t m = 0; m < TILE_ROWS; m++)
        if (see.whole)
            soften(&s[m * PANEL_KEYS], &sum[m * LANES], NULL, top[m], shrink[m], chunks);
        else
            soften(&s[m * PANEL_KEYS], &sum[m * LANES], mask[m], top[m], shrink[m], chunks);
}

/* TILE_ROWS rows from `row` on and one tile. */
static void rows_forward(struct forward_part *part, size_t row, size_t tile)
{
    const struct panel *panel = &part->panel;
    const struct panel_plan *plan = panel->plan;
    const size_t C = plan->shape->qk_size, at = tile * plan->shape->kv_head_count + panel->g;
    const struct panel_range see = panel_rows_see(panel, row);
    const size_t chunks = (size_t)(see.end - see.begin), first = see.begin * (size_t)TILE_CHUNK;
    float s[TILE_ROWS * PANEL_KEYS] __attribute__((aligned(64)));
    float shrink[TILE_WIDTH] = {0};

    if (chunks == 0)
        return;
    tile_product(s,
                 &(struct tile_product){.a = &part->q[row * C],
                                        .b = &plan->k_columns[at * PANEL_KEYS * C + first],
                                        .a_row = C,
                                        .a_k = 1,
                                        .b_row = PANEL_KEYS,
                                        .c_row = PANEL_KEYS,
                                        .K = C},
                 chunks * TILE_CHUNK);
    rows_soften(part, s, shrink, row, see);
    tile_product(
        &part->o[row * plan->v_width],
        &(struct tile_product){.a = s,
                               .b = &plan->v_rows[(at * PANEL_KEYS + first) * plan->v_width],
                               .a_row = PANEL_KEYS,
                               .a_k = 1,
                               .b_row = plan->v_width,
                               .c_row = plan->v_width,
                               .K = chunks * TILE_CHUNK,
                               .keep = shrink},
        plan->v_width);
}

static void write_panel(const struct forward_call *call, const struct forward_part *part)
{
    const struct panel *panel = &part->panel;
    const struct panel_plan *plan = panel->plan;
    const size_t H = plan->shape->head_count, V = plan->shape->v_size;

    for (size_t n = panel->begin, row = 0; n < panel->end; n++)
        for (size_t h = panel->g * plan->share; h < (panel->g + 1) * plan->share; h++, row++) {
            const float total = vector_fold(&part->sum[row * LANES]), over = 1.0f / total;
            assert(total != 0); /* the largest score adds 1; NaN goes on */
            for (size_t c = 0; c < V; c++)
                call->o[(n * H + h) * V + c] = part->o[row * plan->v_width + c] * over;
            call->lse[n * H + h] = *top_of(part, row) + vector_log(total);
        }
}

/* Indices count panels from the last, which in a long line has most to do, to the first. */
static void forward_panels(void *context, size_t begin, size_t end, size_t part_index)
{
    const struct forward_call *call = context;
    const struct panel_plan *plan = &call->plan;
    const size_t G = plan->shape->kv_head_count;
    struct forward_part part;

    (void)place_part(&part, plan, &call->parts[part_index * call->part_size]);
    for (size_t index = begin; index < end; index++) {
        panel_start(&part.panel, plan->panel_count - 1 - index / G, index % G);
        const size_t rows = part.panel.rows;
        panel_gather(part.q, plan->shape->qk_size, &part.panel, call->q, plan->shape->qk_size,
                     plan->shape->scale);
        memset(part.o, 0, rows * plan->v_width * sizeof *part.o);
        memset(part.sum, 0, rows * LANES * sizeof *part.sum);
        for (size_t m = 0; m < rows / TILE_ROWS * TILE_WIDTH; m++)
            part.top[m] = -FLT_MAX;
        for (size_t tile = 0; tile * PANEL_KEYS < part.panel.end; tile++)
            if (panel_look(&part.panel, tile))
                for (size_t row = 0; row < rows; row += TILE_ROWS)
                    rows_forward(&part, row, tile);
        write_panel(call, &part);
    }
}

static size_t place_plan(struct panel_plan *plan, float *start)
{
    struct panel_space space = {.start = start};
    const size_t keys = plan->tile_count * plan->shape->kv_head_count * PANEL_KEYS;

    plan->bounds = panel_take(&space, plan->tile_count * sizeof *plan->bounds / sizeof(float));
    plan->k_columns = panel_take(&space, keys * plan->shape->qk_size);
    plan->v_rows = panel_take(&space, keys * plan->v_width);
    return space.used;
}

void cpu_attention_forward(struct cpu *cpu, float *o, float *lse, const float *q, const float *k,
                           const float *v, const struct attention *shape, const struct tree *tree)
{
    struct forward_call call = {.plan = panel_plan(shape, tree), .o = o, .lse = lse, .q = q};
    struct forward_part part;
    const size_t packed = place_plan(&call.plan, NULL);

    call.part_size = place_part(&part, &call.plan, NULL);
    float *scratch = cpu_scratch(cpu, packed + call.part_size * team_thread_count(cpu->team));
    if (!scratch)
        return;
    (void)place_plan(&call.plan, scratch);
    call.parts = scratch + packed;
    panel_find_bounds(&call.plan);
    panel_pack(cpu, &call.plan, k, v);
    team_deal(cpu->team, call.plan.panel_count * shape->kv_head_count, forward_panels, &call);
}

/*
 * attention: softmax attention of each token over itself and its ancestors, see
 * kernels/ref/attention.c; this is forward, attention_backward.c the way back.
 *
 * Queries are cut into panels, some tokens times all heads of a group, a row each; keys into tiles
 * of PANEL_KEYS tokens. A panel goes through its tiles: S = Q K^T, the softmax kept up to date as
 * its maximum grows, O = O exp(old - new maximum) + P V, TILE_ROWS rows at a time, so that S and P
 * never leave the first cache.
 *
 *                  tiles of keys (tokens)           Tokens stand in preorder: i sees j when j <= i
 *                 0    64   128   192   256          and i < end[j] (and the window reaches there).
 *               +----+----+----+----+----+           Two lines share a trunk, a third is alone:
 *     panels  0 | \  |    |    |    |    |
 *     of     40 |####\    |    |    |    |           #  all visible: no mask is looked at
 *     queries   |####|\   |    |    |    |           \  some: masked pair by pair, in 16 keys and
 *           120 |####|###\|    |    |    |              TILE_ROWS rows cut to what is seen at all
 *   branch  150 |####|#   | \  |    |    |              none: skipped by the tile's largest end
 *           200 |####|#   |  ##|\   |    |              and depth
 *   root    230 |    |    |    |   \|\   |
 *               +----+----+----+----+----+
 *
 * Numerics  f32; a product sums over ascending c or j in one chain, a tile is added at a time; the
 *           softmax's denominator is summed in LANES lanes. What is not visible adds an exact 0.
 * Source    Dao et al. 2022, arXiv:2205.14135.
 */
#include "kernels/cpu/ops/panel.h"

#include <assert.h>
#include <float.h>

struct forward_call {
    struct panel_plan plan;
    float *o, *lse;
    const float *q;
    float *parts; /* [parts, part_size] */
    size_t part_size;
};

struct forward_part {
    struct panel panel;
    float *q, *o;     /* [rows,C], [rows,v_width] */
    float *top, *sum; /* [rows] largest score so far; [rows,LANES] sums of exp(score - top) */
};

static size_t place_part(struct forward_part *part, const struct panel_plan *plan, float *start)
{
    struct panel_space space = {.start = start};

    panel_place(&part->panel, plan, &space);
    part->q = panel_take(&space, plan->row_count * plan->shape->qk_size);
    part->o = panel_take(&space, plan->row_count * plan->v_width);
    part->top = panel_take(&space, plan->row_count);
    part->sum = panel_take(&space, plan->row_count * LANES);
    return space.used;
}

/* Scores where the mask is 0 become the least number, which is no maximum. */
static void hide(float *restrict s, const int32_t *restrict mask, size_t chunks)
{
    for (size_t k = 0; k < chunks * TILE_CHUNK; k++)
        s[k] = mask[k] ? s[k] : -FLT_MAX;
}

/* Largest of each of the TILE_ROWS rows and of top. */
static void raise_tops(float *top, const float *s, size_t chunks)
{
    float lane[TILE_ROWS][LANES];

    for (size_t m = 0; m < TILE_ROWS; m++) {
        for (size_t k = 0; k < LANES; k++)
            lane[m][k] = s[m * PANEL_KEYS + k];
        for (size_t chunk = 1; chunk < chunks; chunk++)
            for (size_t k = 0; k < LANES; k++) {
                float x = s[m * PANEL_KEYS + chunk * TILE_CHUNK + k];
                lane[m][k] = x > lane[m][k] ? x : lane[m][k];
            }
    }
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t m = 0; m < TILE_ROWS; m++)
            for (size_t k = 0; k < half; k++)
                lane[m][k] = lane[m][k + half] > lane[m][k] ? lane[m][k + half] : lane[m][k];
    for (size_t m = 0; m < TILE_ROWS; m++)
        top[m] = lane[m][0] > top[m] ? lane[m][0] : top[m];
}

/* s becomes exp(s - top); sum [LANES] = shrink sum + its lanes. */
static void soften(float *restrict s, float *restrict sum, float top, float shrink, size_t chunks)
{
    float lane[LANES];

    for (size_t k = 0; k < LANES; k++)
        lane[k] = shrink * sum[k];
    for (size_t chunk = 0; chunk < chunks; chunk++)
        for (size_t k = 0; k < LANES; k++) {
            float p = panel_exp(s[chunk * TILE_CHUNK + k] - top);
            s[chunk * TILE_CHUNK + k] = p;
            lane[k] += p;
        }
    for (size_t k = 0; k < LANES; k++)
        sum[k] = lane[k];
}

/* The same where only what the mask shows counts; the rest becomes 0, even if it is no number. */
static void soften_masked(float *restrict s, float *restrict sum, const int32_t *restrict mask,
                          float top, float shrink, size_t chunks)
{
    float lane[LANES];

    for (size_t k = 0; k < LANES; k++)
        lane[k] = shrink * sum[k];
    for (size_t chunk = 0; chunk < chunks; chunk++)
        for (size_t k = 0; k < LANES; k++) {
            size_t at = chunk * TILE_CHUNK + k;
            uint32_t p = vector_bits(panel_exp(s[at] - top)) & (uint32_t)mask[at];
            s[at] = vector_from_bits(p);
            lane[k] += s[at];
        }
    for (size_t k = 0; k < LANES; k++)
        sum[k] = lane[k];
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
    float shrink[TILE_ROWS], *top = &part->top[row];

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
    for (size_t m = 0; m < TILE_ROWS && !see.whole; m++)
        hide(&s[m * PANEL_KEYS], panel_row_mask(panel, row + m) + first, chunks);
    memcpy(shrink, top, sizeof shrink);
    raise_tops(top, s, chunks);
    for (size_t m = 0; m < TILE_ROWS; m++)
        shrink[m] = panel_exp(shrink[m] - top[m]);
    for (size_t m = 0; m < TILE_ROWS; m++) {
        float *sum = &part->sum[(row + m) * LANES];
        if (see.whole)
            soften(&s[m * PANEL_KEYS], sum, top[m], shrink[m], chunks);
        else
            soften_masked(&s[m * PANEL_KEYS], sum, panel_row_mask(panel, row + m) + first, top[m],
                          shrink[m], chunks);
    }
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
            call->lse[n * H + h] = part->top[row] + logf(total);
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
        for (size_t row = 0; row < rows; row++)
            part.top[row] = -FLT_MAX;
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

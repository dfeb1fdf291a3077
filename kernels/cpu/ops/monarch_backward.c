/*
 * monarch_backward: the way back through the Monarch layer; see kernels/ref/monarch.c for the
 * formula and monarch.h for the layout.
 *
 * Each tile is computed again from x, for the gradient of the input no further than c: z1, e and
 * the slope of silu are all that is needed of it. Gradients of the weights need the rest, too; they
 * add up per block of rows, the blocks in order.
 */
#include "kernels/cpu/ops/monarch.h"
#include "kernels/cpu/ops/vector.h"

#include <string.h>

struct backward_call {
    float *dx;
    const float *dy, *x;
    size_t N;
    struct monarch_plan plan;
    float *scratch; /* [parts, part_count] */
    size_t part_count;
    float *partial; /* [blocks, partial_count]; or NULL */
    size_t partial_count;
    struct cpu_blocks blocks;
};

/* dk = d4 dy; dd4. */
static void load_dy(const struct monarch_tile *tile, const struct monarch_gradients *g,
                    const float *dy)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;
    struct monarch_turn turn = {.T = tile->T, .D = w->D, .shift = plan->shift};

    turn.past = (g ? w->a : plan->blocks) * w->b;
    if (g) {
        monarch_rows_load(tile->dk, dy, &turn);
        monarch_rows_dots(g->d4, tile->z3, tile->dk, w->D, plan->shift);
    }
    turn.scale = w->d4;
    monarch_rows_load(tile->dk, dy, &turn);
}

/* From dk at z3 to dk at K2: [p2] = d3 dz; dd3. */
static void third_to_second(const struct monarch_tile *tile, const struct monarch_gradients *g)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;
    struct monarch_factor by_a = {.in = tile->dz, .w = w->w3a, .back = true};

    monarch_by_b(plan, &(struct monarch_factor){.out = tile->dz,
                                                .in = tile->dk,
                                                .w = w->w3b,
                                                .back = true,
                                                .from = plan->blocks,
                                                .to = plan->blocks});
    by_a.from = plan->blocks;
    by_a.to = w->a;
    if (g) {
        by_a.out = tile->left;
        monarch_by_a(plan, &by_a);
        monarch_rows_dots(g->d3, tile->z2, tile->left, w->P, plan->shift);
    }
    by_a.out = tile->dk;
    by_a.place = plan->place2;
    by_a.scale = w->d3;
    monarch_by_a(plan, &by_a);
}

/* From dk at K2 to dz at in2, which takes dk's place. */
static void through_second(const struct monarch_tile *tile)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;

    monarch_by_a(
        plan,
        &(struct monarch_factor){
            .out = tile->dz, .in = tile->dk, .w = w->w2a, .back = true, .from = w->a, .to = w->a});
    monarch_by_b(
        plan,
        &(struct monarch_factor){
            .out = tile->dk, .in = tile->dz, .w = w->w2b, .back = true, .from = w->a, .to = w->a});
}

/* Of dz at in2, which is in dk: dd2 and db2, with dc = slope dz. Uses left. */
static void activation_weights(const struct monarch_tile *tile, const struct monarch_gradients *g)
{
    const struct monarch_plan *plan = tile->plan;
    const size_t P = plan->w->P;

    monarch_rows_dots(g->b2, tile->slope, tile->dk, P, plan->shift);
    for (size_t i = 0; i < P; i++) {
        const size_t at = monarch_rows_place(i, plan->shift);
        for (size_t t = 0; t < ROW; t++)
            tile->left[at + t] = tile->e[at + t] * tile->slope[at + t] * tile->dk[at + t];
    }
    monarch_rows_dots(g->d2, tile->z1, tile->left, P, plan->shift);
}

/* From ds in dk to dz at K1, [p1] = d2 e dc, and de = d2 z1 dc, which takes z1's place. */
static void second_to_first(const struct monarch_tile *tile)
{
    const struct monarch_plan *plan = tile->plan;

    for (size_t i = 0; i < plan->w->P; i++) {
        const size_t at = monarch_rows_place(i, plan->shift);
        const float d2 = plan->w->d2[i];
        float *target = tile->dz + plan->place1[i];
        for (size_t t = 0; t < ROW; t += VECTOR_FLOATS) {
            const vector_f slope = vector_at(tile->slope + at + t);
            const vector_f dc = d2 * (slope * vector_at(tile->dk + at + t));
            vector_put(target + t, dc * vector_at(tile->e + at + t));
            vector_put(tile->z1 + at + t, dc * vector_at(tile->z1 + at + t));
        }
    }
}

/* From dz at K1 to dz at in1, in its own place. */
static void through_first(const struct monarch_tile *tile)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;

    monarch_by_a(plan, &(struct monarch_factor){.out = tile->dk,
                                                .in = tile->dz,
                                                .w = w->w1a,
                                                .back = true,
                                                .from = w->a,
                                                .to = plan->blocks});
    monarch_by_b(plan, &(struct monarch_factor){.out = tile->dz,
                                                .in = tile->dk,
                                                .w = w->w1b,
                                                .back = true,
                                                .from = plan->blocks,
                                                .to = plan->blocks});
}

/* dm from de, then da in its place: da[r] = m[r] (dm[r] - sum_t m[t] dm[t]). */
static void condition_backward(const struct monarch_tile *tile)
{
    const struct monarch *w = tile->plan->w;
    float mean[ROW] = {0};

    monarch_to_rank(tile->plan, tile->dm, tile->z1, w->cond_u, 1, w->P, w->P);
    for (size_t r = 0; r < w->rank; r++)
        for (size_t t = 0; t < ROW; t++)
            mean[t] += tile->m[r * ROW + t] * tile->dm[r * ROW + t];
    for (size_t r = 0; r < w->rank; r++)
        for (size_t t = 0; t < ROW; t++)
            tile->dm[r * ROW + t] = tile->m[r * ROW + t] * (tile->dm[r * ROW + t] - mean[t]);
}

/* dz = d1 dz + cond_v da, the gradient of x. */
static void join_dx(const struct monarch_tile *tile)
{
    const struct monarch *w = tile->plan->w;

    for (size_t d = 0; d < w->D; d++) {
        float *row = tile->dz + monarch_rows_place(d, tile->plan->shift);
        const float *v = &w->cond_v[d * w->rank];
        for (size_t t = 0; t < ROW; t += VECTOR_FLOATS) {
            vector_f sum = w->d1[d] * vector_at(row + t);
            for (size_t r = 0; r < w->rank; r++)
                sum += v[r] * vector_at(&tile->dm[r * ROW + t]);
            vector_put(row + t, sum);
        }
    }
}

static void tile_backward(struct monarch_tile *tile, const struct monarch_gradients *g, float *dx,
                          const float *dy, const float *x, size_t T)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;

    monarch_tile_start(tile, x, T);
    if (g)
        monarch_tile_finish(tile);
    load_dy(tile, g, dy);
    if (g)
        monarch_weights_factors(
            tile, &(struct monarch_pair){g->w3a, g->w3b, tile->in3, tile->dk, w->w3a, w->w3b});
    third_to_second(tile, g);
    if (g)
        monarch_weights_factors(
            tile, &(struct monarch_pair){g->w2a, g->w2b, tile->in2, tile->dk, w->w2a, w->w2b});
    through_second(tile);
    if (g)
        activation_weights(tile, g);
    second_to_first(tile);
    if (g)
        monarch_weights_factors(
            tile, &(struct monarch_pair){g->w1a, g->w1b, tile->in1, tile->dz, w->w1a, w->w1b});
    through_first(tile);
    condition_backward(tile);
    if (g) {
        monarch_rows_dots(g->d1, tile->x, tile->dz, w->D, plan->shift);
        monarch_weights_condition(plan, g->cond_u, 1, w->P, tile->z1, tile->m, w->P);
        monarch_weights_condition(plan, g->cond_v, w->rank, 1, tile->x, tile->dm, w->D);
    }
    join_dx(tile);
    monarch_rows_store(dx, NULL, tile->dz,
                       &(struct monarch_turn){.T = T, .D = w->D, .shift = plan->shift});
}

/* The tiles of rows [begin, end). */
static void backward_range(const struct backward_call *call, struct monarch_tile *tile,
                           const struct monarch_gradients *g, size_t begin, size_t end)
{
    const size_t D = call->plan.w->D;

    for (size_t n = begin; n < end; n += ROW)
        tile_backward(tile, g, &call->dx[n * D], &call->dy[n * D], &call->x[n * D],
                      end - n < ROW ? end - n : ROW);
}

static void backward_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct backward_call *call = context;
    struct monarch_tile tile = monarch_tile(&call->plan, &call->scratch[part * call->part_count]);
    const size_t past = end * ROW;

    backward_range(call, &tile, NULL, begin * ROW, past < call->N ? past : call->N);
}

static void backward_blocks(void *context, size_t begin, size_t end, size_t part)
{
    const struct backward_call *call = context;
    struct monarch_tile tile = monarch_tile(&call->plan, &call->scratch[part * call->part_count]);

    for (size_t b = begin; b < end; b++) {
        float *memory = &call->partial[b * call->partial_count];
        const struct monarch_gradients g = monarch_weights_at(memory, call->plan.w);

        memset(memory, 0, call->partial_count * sizeof *memory);
        backward_range(call, &tile, &g, b * call->blocks.size, cpu_block_end(&call->blocks, b));
    }
}

void cpu_monarch_backward(struct cpu *cpu, float *dx, const struct monarch_gradients *gradients,
                          const float *dy, const float *x, const struct monarch *weights, size_t N)
{
    struct backward_call call = {.dx = dx, .dy = dy, .x = x, .N = N};
    const bool wanted = gradients && gradients->w1a;
    const enum monarch_use use = wanted ? MONARCH_WEIGHTS : MONARCH_BACKWARD;
    const size_t tables = monarch_plan_floats(weights);

    call.blocks = cpu_blocks(N);
    call.part_count = monarch_tile_floats(weights, use);
    call.partial_count = monarch_weights_floats(weights);
    const size_t parts = tables + call.part_count * team_thread_count(cpu->team);
    float *scratch =
        cpu_scratch(cpu, parts + (wanted ? call.blocks.count * call.partial_count : 0));
    if (!scratch)
        return;
    call.plan = monarch_plan(weights, use, scratch);
    call.scratch = scratch + tables;
    call.partial = wanted ? scratch + parts : NULL;
    if (!wanted) {
        team_deal(cpu->team, (N + ROW - 1) / ROW, backward_tiles, &call);
        return;
    }
    team_deal(cpu->team, call.blocks.count, backward_blocks, &call);
    monarch_weights_add(cpu, gradients, weights, call.partial, call.blocks.count);
}

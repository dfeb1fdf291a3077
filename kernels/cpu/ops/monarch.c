/*
 * monarch: forward, and the walk from x to z3 that backward takes again; see kernels/ref/monarch.c
 * for the formula and monarch.h for the layout.
 */
#include "kernels/cpu/ops/monarch.h"

#include "kernels/cpu/ops/vector.h"

#include <assert.h>

/* ---- plan and tile ----------------------------------------------------------------------------*/

static const size_t array_counts[] = {
    [MONARCH_FORWARD] = 2, [MONARCH_BACKWARD] = 5, [MONARCH_WEIGHTS] = 12};

static size_t array_floats(const struct monarch *weights)
{
    return (weights->P + weights->a) * ROW; /* a row of padding a block */
}

static size_t whole_rows(size_t count)
{
    return (count + ROW - 1) / ROW * ROW;
}

size_t monarch_plan_floats(const struct monarch *weights)
{
    return 5 * whole_rows(weights->P);
}

size_t monarch_tile_floats(const struct monarch *weights, enum monarch_use use)
{
    return array_counts[use] * array_floats(weights) + 2 * weights->rank * ROW;
}

static void fill_places(uint32_t *place, uint32_t *inverse, const int32_t *permutation,
                        const struct monarch *w, size_t shift)
{
    for (size_t i = 0; i < w->P; i++) {
        const size_t q = (size_t)permutation[i];
        assert(q < w->P);
        place[i] = (uint32_t)monarch_rows_place(q, shift);
        inverse[q] = (uint32_t)monarch_rows_place(i, shift);
    }
}

struct monarch_plan monarch_plan(const struct monarch *weights, enum monarch_use use,
                                 float *scratch)
{
    struct monarch_plan plan = {.w = weights, .use = use};
    const size_t b = weights->b, count = whole_rows(weights->P);
    uint32_t *places = (uint32_t *)(void *)scratch;
    float *inverse_d3 = scratch + 4 * count;

    assert(weights->P == weights->a * b);
    assert((b & (b - 1)) == 0);
    assert(array_floats(weights) <= UINT32_MAX);
    plan.shift = (size_t)__builtin_ctzl(b);
    plan.step = (b + 1) * ROW;
    plan.size = array_floats(weights);
    plan.blocks = ((weights->D + b - 1) / b + 3) / 4 * 4;
    if (plan.blocks > weights->a)
        plan.blocks = weights->a;
    fill_places(places, places + count, weights->p1, weights, plan.shift);
    fill_places(places + 2 * count, places + 3 * count, weights->p2, weights, plan.shift);
    for (size_t i = 0; i < weights->P; i++)
        inverse_d3[weights->p2[i]] = weights->d3[i];
    plan.place1 = places;
    plan.inverse1 = places + count;
    plan.place2 = places + 2 * count;
    plan.inverse2 = places + 3 * count;
    plan.inverse_d3 = inverse_d3;
    return plan;
}

struct monarch_tile monarch_tile(const struct monarch_plan *plan, float *scratch)
{
    const size_t size = plan->size, count = array_counts[plan->use];
    struct monarch_tile tile = {.plan = plan};
    float *array[12];

    static_assert(MONARCH_WEIGHTS == 2, "a use has a line in array_counts");
    assert(count <= sizeof array / sizeof *array);
    for (size_t i = 0; i < sizeof array / sizeof *array; i++)
        array[i] = scratch + (i < count ? i : i % 2) * size;
    tile.x = array[0], tile.in1 = array[1];
    tile.left = tile.dk = array[0];
    tile.z1 = tile.in2 = tile.z2 = tile.in3 = tile.z3 = tile.dz = array[1];
    if (plan->use != MONARCH_FORWARD)
        tile.z1 = array[2], tile.e = array[3], tile.slope = array[4];
    if (plan->use == MONARCH_BACKWARD)
        tile.in2 = NULL;
    if (plan->use == MONARCH_WEIGHTS) {
        tile.left = array[5], tile.dk = array[6], tile.dz = array[7];
        tile.in2 = array[8], tile.z2 = array[9], tile.in3 = array[10], tile.z3 = array[11];
    }
    tile.m = scratch + count * size;
    tile.dm = tile.m + plan->w->rank * ROW;
    return tile;
}

/* ---- factors ----------------------------------------------------------------------------------*/

void monarch_by_b(const struct monarch_plan *plan, const struct monarch_factor *factor)
{
    const size_t b = plan->w->b;

    assert(factor->from == factor->to);
    monarch_rows_product(&(struct monarch_product){.out = factor->out,
                                                   .in = factor->in,
                                                   .w = factor->w,
                                                   .M = b,
                                                   .V = factor->to,
                                                   .K = b,
                                                   .w_k = factor->back ? 1 : b,
                                                   .w_m = factor->back ? b : 1,
                                                   .in_k = ROW,
                                                   .in_v = plan->step,
                                                   .out_m = ROW,
                                                   .out_v = plan->step,
                                                   .place = factor->place,
                                                   .place_m = 1,
                                                   .place_v = b,
                                                   .scale = factor->scale});
}

void monarch_by_a(const struct monarch_plan *plan, const struct monarch_factor *factor)
{
    const size_t a = plan->w->a, b = plan->w->b;

    monarch_rows_product(&(struct monarch_product){.out = factor->out,
                                                   .in = factor->in,
                                                   .w = factor->w,
                                                   .M = factor->to,
                                                   .V = b,
                                                   .K = factor->from,
                                                   .w_k = factor->back ? 1 : a,
                                                   .w_m = factor->back ? a : 1,
                                                   .in_k = plan->step,
                                                   .in_v = ROW,
                                                   .out_m = plan->step,
                                                   .out_v = ROW,
                                                   .place = factor->place,
                                                   .place_m = b,
                                                   .place_v = 1,
                                                   .scale = factor->scale});
}

void monarch_to_rank(const struct monarch_plan *plan, float *out, const float *in, const float *w,
                     size_t channel_step, size_t rank_step, size_t channels)
{
    const size_t b = plan->w->b;

    for (size_t first = 0; first < channels; first += b)
        monarch_rows_product(
            &(struct monarch_product){.out = out,
                                      .in = in + monarch_rows_place(first, plan->shift),
                                      .w = w + first * channel_step,
                                      .M = plan->w->rank,
                                      .V = 1,
                                      .K = channels - first < b ? channels - first : b,
                                      .w_k = channel_step,
                                      .w_m = rank_step,
                                      .in_k = ROW,
                                      .out_m = ROW,
                                      .add = first > 0});
}

/* ---- from x to z3 -----------------------------------------------------------------------------*/

/* m = softmax(x cond_v), tokens in lanes. */
static void condition(struct monarch_tile *tile)
{
    const struct monarch *w = tile->plan->w;
    float largest[ROW], total[ROW] = {0};

    monarch_to_rank(tile->plan, tile->m, tile->x, w->cond_v, w->rank, 1, w->D);
    for (size_t t = 0; t < ROW; t++)
        largest[t] = tile->m[t];
    for (size_t r = 1; r < w->rank; r++)
        for (size_t t = 0; t < ROW; t++)
            largest[t] = tile->m[r * ROW + t] > largest[t] ? tile->m[r * ROW + t] : largest[t];
    for (size_t r = 0; r < w->rank; r++) {
        float *m = &tile->m[r * ROW];
        for (size_t t = 0; t < ROW; t++) {
            m[t] = vector_exp(m[t] - largest[t]);
            total[t] += m[t];
        }
    }
    for (size_t t = 0; t < ROW; t++)
        total[t] = 1.0f / total[t];
    for (size_t r = 0; r < w->rank; r++)
        for (size_t t = 0; t < ROW; t++)
            tile->m[r * ROW + t] *= total[t];
}

/* out(i) = scale[i] in(i) for the first `channels` rows. */
static void scale_rows(const struct monarch_plan *plan, float *out, const float *in,
                       const float *scale, size_t channels)
{
    for (size_t i = 0; i < channels; i++) {
        const size_t at = monarch_rows_place(i, plan->shift);
        for (size_t t = 0; t < ROW; t += VECTOR_FLOATS)
            vector_put(out + at + t, scale[i] * vector_at(in + at + t));
    }
}

/* in2 may be z1. */
static void silu_forward_row(float *in2, const float *z1, const float *e, float d2, float b2)
{
    float c[ROW];

    for (size_t t = 0; t < ROW; t++)
        c[t] = d2 * e[t] * z1[t] + b2;
    for (size_t t = 0; t < ROW; t++)
        in2[t] = c[t] * vector_sigmoid(c[t]);
}

static void silu_slope_row(float *restrict slope, const float *restrict z1, const float *restrict e,
                           float d2, float b2)
{
    for (size_t t = 0; t < ROW; t++) {
        const float c = d2 * e[t] * z1[t] + b2, s = vector_sigmoid(c);
        slope[t] = s + c * s * (1.0f - s);
    }
}

#define E_ROWS 4 /* made at a time: m is read once for all */

/* e = 1 + m cond_u for `count` rows from channel i. */
static inline __attribute__((always_inline)) void
condition_rows(float *e, const struct monarch_tile *tile, size_t i, const size_t count)
{
    const struct monarch *w = tile->plan->w;

    for (size_t t = 0; t < ROW; t += VECTOR_FLOATS) {
        vector_f sum[E_ROWS];
#pragma GCC unroll 8
        for (size_t k = 0; k < count; k++)
            sum[k] = (vector_f){0} + 1.0f;
        for (size_t r = 0; r < w->rank; r++) {
            const vector_f m = vector_at(&tile->m[r * ROW + t]);
            const float *u = &w->cond_u[r * w->P + i];
#pragma GCC unroll 8
            for (size_t k = 0; k < count; k++)
                sum[k] += u[k] * m;
        }
#pragma GCC unroll 8
        for (size_t k = 0; k < count; k++)
            vector_put(&e[k * ROW + t], sum[k]);
    }
}

/* From z1 to in2, e and slope, those that are wanted. */
static void activate(struct monarch_tile *tile)
{
    const struct monarch *w = tile->plan->w;
    const size_t group = w->b < E_ROWS ? 1 : E_ROWS;
    _Alignas(64) float local[E_ROWS * ROW];

    for (size_t i = 0; i < w->P; i += group) {
        const size_t at = monarch_rows_place(i, tile->plan->shift);
        float *e = tile->e ? tile->e + at : local;
        if (group == E_ROWS)
            condition_rows(e, tile, i, E_ROWS);
        else
            condition_rows(e, tile, i, 1);
        for (size_t k = 0; k < group; k++) {
            const float *z1 = tile->z1 + at + k * ROW;
            if (tile->slope)
                silu_slope_row(tile->slope + at + k * ROW, z1, e + k * ROW, w->d2[i + k],
                               w->b2[i + k]);
            if (tile->in2)
                silu_forward_row(tile->in2 + at + k * ROW, z1, e + k * ROW, w->d2[i + k],
                                 w->b2[i + k]);
        }
    }
}

void monarch_tile_start(struct monarch_tile *tile, const float *x, size_t T)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;
    const size_t blocks = plan->use == MONARCH_WEIGHTS ? w->a : plan->blocks;

    assert(T <= ROW);
    tile->T = T;
    monarch_rows_load(
        tile->x, x,
        &(struct monarch_turn){.T = T, .D = w->D, .past = blocks * w->b, .shift = plan->shift});
    condition(tile);
    scale_rows(plan, tile->in1, tile->x, w->d1, blocks * w->b);
    monarch_by_b(plan, &(struct monarch_factor){.out = tile->left,
                                                .in = tile->in1,
                                                .w = w->w1b,
                                                .from = plan->blocks,
                                                .to = plan->blocks});
    monarch_by_a(plan, &(struct monarch_factor){.out = tile->z1,
                                                .in = tile->left,
                                                .w = w->w1a,
                                                .from = plan->blocks,
                                                .to = w->a,
                                                .place = plan->inverse1});
    activate(tile);
}

void monarch_tile_finish(struct monarch_tile *tile)
{
    const struct monarch_plan *plan = tile->plan;
    const struct monarch *w = plan->w;
    const bool keep = plan->use == MONARCH_WEIGHTS;

    monarch_by_a(plan,
                 &(struct monarch_factor){
                     .out = tile->left, .in = tile->in2, .w = w->w2a, .from = w->a, .to = w->a});
    monarch_by_b(plan, &(struct monarch_factor){.out = keep ? tile->z2 : tile->in3,
                                                .in = tile->left,
                                                .w = w->w2b,
                                                .from = w->a,
                                                .to = w->a,
                                                .place = plan->inverse2,
                                                .scale = keep ? NULL : plan->inverse_d3});
    if (keep)
        scale_rows(plan, tile->in3, tile->z2, w->d3, w->P);
    monarch_by_a(
        plan,
        &(struct monarch_factor){
            .out = tile->left, .in = tile->in3, .w = w->w3a, .from = w->a, .to = plan->blocks});
    monarch_by_b(plan, &(struct monarch_factor){.out = tile->z3,
                                                .in = tile->left,
                                                .w = w->w3b,
                                                .from = plan->blocks,
                                                .to = plan->blocks});
}

/* ---- the op -----------------------------------------------------------------------------------*/

struct forward_call {
    float *y;
    const float *skip, *x;
    size_t N;
    struct monarch_plan plan;
    float *scratch;
    size_t part_count;
};

static void forward_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct forward_call *call = context;
    const struct monarch *w = call->plan.w;
    struct monarch_tile tile = monarch_tile(&call->plan, &call->scratch[part * call->part_count]);

    for (size_t number = begin; number < end; number++) {
        const size_t first = number * ROW, left = call->N - first, T = left < ROW ? left : ROW;
        monarch_tile_start(&tile, &call->x[first * w->D], T);
        monarch_tile_finish(&tile);
        monarch_rows_store(
            &call->y[first * w->D], &call->skip[first * w->D], tile.z3,
            &(struct monarch_turn){.T = T, .D = w->D, .shift = call->plan.shift, .scale = w->d4});
    }
}

void cpu_monarch_forward(struct cpu *cpu, float *y, const float *skip, const float *x,
                         const struct monarch *weights, size_t N)
{
    struct forward_call call = {.y = y, .skip = skip, .x = x, .N = N};
    const size_t tables = monarch_plan_floats(weights);

    call.part_count = monarch_tile_floats(weights, MONARCH_FORWARD);
    float *scratch = cpu_scratch(cpu, tables + call.part_count * team_thread_count(cpu->team));
    if (!scratch)
        return;
    call.plan = monarch_plan(weights, MONARCH_FORWARD, scratch);
    call.scratch = scratch + tables;
    team_deal(cpu->team, (N + ROW - 1) / ROW, forward_tiles, &call);
}

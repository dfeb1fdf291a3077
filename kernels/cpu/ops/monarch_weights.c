/*
 * monarch_weights: gradients of the Monarch layer's weights, for full fine-tuning.
 *
 * Each is a sum over tokens: over the lanes of two rows' product, then over tiles in order, then
 * over blocks of rows in order. Lanes past the last token hold zeros in dk, and so add nothing.
 */
#include "kernels/cpu/ops/monarch.h"

#include <string.h>

#define GRADIENT_ARRAYS 13

/* Every array of the gradients, with its size. */
static void list_gradients(float **ret_arrays[GRADIENT_ARRAYS], size_t ret_sizes[GRADIENT_ARRAYS],
                           struct monarch_gradients *g, const struct monarch *w)
{
    float **const arrays[GRADIENT_ARRAYS] = {&g->w1a, &g->w1b,    &g->w2a,   &g->w2b, &g->w3a,
                                             &g->w3b, &g->d1,     &g->d2,    &g->b2,  &g->d3,
                                             &g->d4,  &g->cond_v, &g->cond_u};
    const size_t aa = w->a * w->a, bb = w->b * w->b, P = w->P;
    const size_t sizes[GRADIENT_ARRAYS] = {
        aa, bb, aa, bb, aa, bb, P, P, P, P, P, w->D * w->rank, w->rank * P};

    memcpy(ret_arrays, arrays, sizeof arrays);
    memcpy(ret_sizes, sizes, sizeof sizes);
}

size_t monarch_weights_floats(const struct monarch *weights)
{
    struct monarch_gradients g;
    float **arrays[GRADIENT_ARRAYS];
    size_t sizes[GRADIENT_ARRAYS], total = 0;

    list_gradients(arrays, sizes, &g, weights);
    for (size_t i = 0; i < GRADIENT_ARRAYS; i++)
        total += sizes[i];
    return total;
}

struct monarch_gradients monarch_weights_at(float *memory, const struct monarch *weights)
{
    struct monarch_gradients g;
    float **arrays[GRADIENT_ARRAYS];
    size_t sizes[GRADIENT_ARRAYS];

    list_gradients(arrays, sizes, &g, weights);
    for (size_t i = 0; i < GRADIENT_ARRAYS; i++) {
        *arrays[i] = memory;
        memory += sizes[i];
    }
    return g;
}

void monarch_weights_add(struct cpu *cpu, const struct monarch_gradients *gradients,
                         const struct monarch *weights, const float *memory, size_t count)
{
    struct monarch_gradients total = *gradients;
    float **arrays[GRADIENT_ARRAYS];
    size_t sizes[GRADIENT_ARRAYS], at = 0, stride = monarch_weights_floats(weights);

    list_gradients(arrays, sizes, &total, weights);
    for (size_t i = 0; i < GRADIENT_ARRAYS; i++) {
        cpu_add_partials(cpu, *arrays[i], &memory[at], count, stride, sizes[i]);
        at += sizes[i];
    }
}

/* dwa += right dk^T, dwb += left^T dk, with right = in wb and left = wa^T in. */
void monarch_weights_factors(const struct monarch_tile *tile, const struct monarch_pair *pair)
{
    const struct monarch_plan *plan = tile->plan;
    const size_t a = plan->w->a, b = plan->w->b;

    monarch_by_b(plan, &(struct monarch_factor){
                           .out = tile->left, .in = pair->in, .w = pair->wb, .from = a, .to = a});
    monarch_rows_pairs(&(struct monarch_pairs){.out = pair->dwa,
                                               .left = tile->left,
                                               .right = pair->dk,
                                               .M = a,
                                               .N = a,
                                               .K = b,
                                               .out_m = a,
                                               .out_n = 1,
                                               .left_m = plan->step,
                                               .left_k = ROW,
                                               .right_n = plan->step,
                                               .right_k = ROW});
    monarch_by_a(plan, &(struct monarch_factor){
                           .out = tile->left, .in = pair->in, .w = pair->wa, .from = a, .to = a});
    monarch_rows_pairs(&(struct monarch_pairs){.out = pair->dwb,
                                               .left = tile->left,
                                               .right = pair->dk,
                                               .M = b,
                                               .N = b,
                                               .K = a,
                                               .out_m = b,
                                               .out_n = 1,
                                               .left_m = ROW,
                                               .left_k = plan->step,
                                               .right_n = ROW,
                                               .right_k = plan->step});
}

void monarch_weights_condition(const struct monarch_plan *plan, float *out, size_t channel_step,
                               size_t rank_step, const float *rows, const float *of_rank,
                               size_t channels)
{
    const size_t b = plan->w->b;

    for (size_t first = 0; first < channels; first += b)
        monarch_rows_pairs(
            &(struct monarch_pairs){.out = out + first * channel_step,
                                    .left = rows + monarch_rows_place(first, plan->shift),
                                    .right = of_rank,
                                    .M = channels - first < b ? channels - first : b,
                                    .N = plan->w->rank,
                                    .K = 1,
                                    .out_m = channel_step,
                                    .out_n = rank_step,
                                    .left_m = ROW,
                                    .right_n = ROW});
}

/*
 * monarch_backward: the way back through the Monarch layer, see kernels/ref/monarch.c.
 *
 * Each tile is computed again from x. Gradients of the weights add up per block of rows, the blocks
 * in order.
 */
#include "kernels/cpu/ops/monarch.h"
#include "kernels/cpu/ops/vector.h"

#include <string.h>

struct backward_call {
    float *dx;
    const float *dy, *x;
    const struct monarch *weights;
    float *scratch; /* [parts, part_count] */
    size_t part_count;
    float *partial; /* [blocks, partial_count]; or NULL */
    size_t partial_count;
    struct cpu_blocks blocks;
};

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

static struct monarch_gradients gradients_at(float *memory, const struct monarch *w)
{
    struct monarch_gradients g;
    float **arrays[GRADIENT_ARRAYS];
    size_t sizes[GRADIENT_ARRAYS];

    list_gradients(arrays, sizes, &g, w);
    for (size_t i = 0; i < GRADIENT_ARRAYS; i++) {
        *arrays[i] = memory;
        memory += sizes[i];
    }
    return g;
}

/* dwa += right dk^T, dwb += left^T dk, with right = in wb and left = wa^T in. Uses dz and left. */
static void kron_weights(const struct monarch_tile *tile, float *dwa, float *dwb, const float *in,
                         const float *dk, const float *wa, const float *wb)
{
    const size_t a = tile->w->a, b = tile->w->b, T = tile->T;
    struct matmul product = {.M = a * T, .N = b, .K = b, .lda = b, .ldb = b, .ldc = b, .alpha = 1};

    cpu_product(tile->dz, in, wb, &product); /* right */
    product = (struct matmul){.M = a, .N = a, .K = T * b, .transpose_b = true, .alpha = 1};
    product.beta = 1;
    product.lda = product.ldb = T * b;
    product.ldc = a;
    cpu_product(dwa, tile->dz, dk, &product);

    product = (struct matmul){.M = a, .N = T * b, .K = a, .transpose_a = true, .alpha = 1};
    product.lda = a;
    product.ldb = product.ldc = T * b;
    cpu_product(tile->left, wa, in, &product);
    product = (struct matmul){.M = b, .N = b, .K = a * T, .transpose_a = true, .alpha = 1};
    product.beta = 1;
    product.lda = product.ldb = product.ldc = b;
    cpu_product(dwb, tile->left, dk, &product);
}

/* dk = d4 dy, padded; dd4. */
static void load_dy(const struct monarch_tile *tile, const struct monarch_gradients *g,
                    const float *dy)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, T = tile->T;

    for (size_t i = 0; i < w->a; i++) {
        size_t first = i * b, used = first >= w->D ? 0 : w->D - first < b ? w->D - first : b;
        for (size_t t = 0; t < T; t++) {
            const float *row = &dy[t * w->D], *z3 = &tile->z3[(i * T + t) * b];
            float *dk = &tile->dk[(i * T + t) * b];
            for (size_t j = 0; j < used; j++)
                dk[j] = w->d4[first + j] * row[first + j];
            for (size_t j = used; j < b; j++)
                dk[j] = 0;
            for (size_t j = 0; g && j < used; j++)
                g->d4[first + j] += z3[j] * row[first + j];
        }
    }
}

/* dk[p2] = d3 dz; dd3. */
static void third_to_second(const struct monarch_tile *tile, const struct monarch_gradients *g)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, T = tile->T;

    for (size_t i = 0; i < w->a; i++) {
        for (size_t t = 0; t < T; t++) {
            size_t at = (i * T + t) * b;
            for (size_t j = 0; j < b; j++) {
                size_t q = i * b + j;
                tile->dk[monarch_place(tile, (size_t)w->p2[q]) + t * b] =
                    w->d3[q] * tile->dz[at + j];
            }
            for (size_t j = 0; g && j < b; j++)
                g->d3[i * b + j] += tile->z2[at + j] * tile->dz[at + j];
        }
    }
}

/* dz at in2 becomes dc; z2's place takes de = d2 z1 dc. One token's [b]. */
static void silu_backward_row(float *restrict dz, float *restrict de, const float *restrict c,
                              const float *restrict z1, const float *restrict d2, size_t b)
{
    for (size_t j = 0; j < b; j++) {
        float s = vector_sigmoid(c[j]);
        dz[j] *= s + c[j] * s * (1.0f - s);
        de[j] = d2[j] * z1[j] * dz[j];
    }
}

/* From dz at in2 to dk[p1] = d2 e dc; dd2, db2. */
static void second_to_first(const struct monarch_tile *tile, const struct monarch_gradients *g)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, T = tile->T;

    for (size_t i = 0; i < w->a; i++) {
        const float *d2 = &w->d2[i * b];
        for (size_t t = 0; t < T; t++) {
            size_t at = (i * T + t) * b;
            const float *dc = &tile->dz[at], *e = &tile->e[at], *z1 = &tile->z1[at];
            silu_backward_row(&tile->dz[at], &tile->z2[at], &tile->c[at], z1, d2, b);
            for (size_t j = 0; g && j < b; j++) {
                g->d2[i * b + j] += e[j] * z1[j] * dc[j];
                g->b2[i * b + j] += dc[j];
            }
            for (size_t j = 0; j < b; j++)
                tile->dk[monarch_place(tile, (size_t)w->p1[i * b + j]) + t * b] =
                    d2[j] * e[j] * dc[j];
        }
    }
}

/* dx = d1 dz; dd1. */
static void store_dx(const struct monarch_tile *tile, const struct monarch_gradients *g, float *dx,
                     const float *x)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, D = w->D, T = tile->T;

    for (size_t i = 0; i * b < D; i++) {
        size_t past = (i + 1) * b < D ? (i + 1) * b : D;
        for (size_t t = 0; t < T; t++) {
            const float *dz = &tile->dz[(i * T + t) * b];
            for (size_t d = i * b; d < past; d++)
                dx[t * D + d] = w->d1[d] * dz[d - i * b];
            for (size_t d = i * b; g && d < past; d++)
                g->d1[d] += x[t * D + d] * dz[d - i * b];
        }
    }
}

/* dx += cond_v da, by way of de (in z2) and dm; dcond_u, dcond_v. */
static void condition_backward(const struct monarch_tile *tile, const struct monarch_gradients *g,
                               float *dx, const float *x)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, T = tile->T, rank = w->rank, P = w->P;

    memset(tile->dm, 0, T * rank * sizeof(float));
    for (size_t i = 0; i < w->a; i++) {
        for (size_t t = 0; t < T; t++) {
            const float *de = &tile->z2[(i * T + t) * b];
            for (size_t r = 0; r < rank; r++)
                tile->dm[t * rank + r] += vector_dot(&w->cond_u[r * P + i * b], de, b);
            for (size_t r = 0; g && r < rank; r++)
                vector_add_scaled(&g->cond_u[r * P + i * b], de, tile->m[t * rank + r], b);
        }
    }
    for (size_t t = 0; t < T; t++) {
        float *dm = &tile->dm[t * rank], mean = vector_dot(&tile->m[t * rank], dm, rank);
        for (size_t r = 0; r < rank; r++)
            dm[r] = tile->m[t * rank + r] * (dm[r] - mean);
    }
    struct matmul to_dx = {.M = T, .N = w->D, .K = rank, .transpose_b = true, .beta = 1};
    to_dx.alpha = 1;
    to_dx.lda = to_dx.ldb = rank;
    to_dx.ldc = w->D;
    cpu_product(dx, tile->dm, w->cond_v, &to_dx);
    if (g) {
        struct matmul to_v = {.M = w->D, .N = rank, .K = T, .transpose_a = true, .beta = 1};
        to_v.alpha = 1;
        to_v.lda = w->D;
        to_v.ldb = to_v.ldc = rank;
        cpu_product(g->cond_v, x, tile->dm, &to_v);
    }
}

static void tile_backward(struct monarch_tile *tile, const struct monarch_gradients *g, float *dx,
                          const float *dy, const float *x, size_t T)
{
    const struct monarch *w = tile->w;

    monarch_tile_forward(tile, x, T);
    load_dy(tile, g, dy);
    if (g)
        kron_weights(tile, g->w3a, g->w3b, tile->in3, tile->dk, w->w3a, w->w3b);
    monarch_kron(tile, tile->dz, tile->dk, w->w3a, w->w3b, true);
    third_to_second(tile, g);
    if (g)
        kron_weights(tile, g->w2a, g->w2b, tile->in2, tile->dk, w->w2a, w->w2b);
    monarch_kron(tile, tile->dz, tile->dk, w->w2a, w->w2b, true);
    second_to_first(tile, g);
    if (g)
        kron_weights(tile, g->w1a, g->w1b, tile->in1, tile->dk, w->w1a, w->w1b);
    monarch_kron(tile, tile->dz, tile->dk, w->w1a, w->w1b, true);
    store_dx(tile, g, dx, x);
    condition_backward(tile, g, dx, x);
}

static void backward_blocks(void *context, size_t begin, size_t end, size_t part)
{
    const struct backward_call *call = context;
    const size_t D = call->weights->D, tokens = monarch_tile_tokens(call->weights);
    struct monarch_tile tile = monarch_tile(call->weights, &call->scratch[part * call->part_count]);

    for (size_t b = begin; b < end; b++) {
        struct monarch_gradients g = {0};
        size_t past = cpu_block_end(&call->blocks, b);

        if (call->partial) {
            float *memory = &call->partial[b * call->partial_count];
            memset(memory, 0, call->partial_count * sizeof *memory);
            g = gradients_at(memory, call->weights);
        }
        for (size_t n = b * call->blocks.size; n < past; n += tokens)
            tile_backward(&tile, call->partial ? &g : NULL, &call->dx[n * D], &call->dy[n * D],
                          &call->x[n * D], past - n < tokens ? past - n : tokens);
    }
}

static void add_gradients(struct cpu *cpu, const struct monarch_gradients *gradients,
                          const struct backward_call *call)
{
    struct monarch_gradients total = *gradients;
    float **arrays[GRADIENT_ARRAYS];
    size_t sizes[GRADIENT_ARRAYS], at = 0;

    list_gradients(arrays, sizes, &total, call->weights);
    for (size_t i = 0; i < GRADIENT_ARRAYS; i++) {
        cpu_add_partials(cpu, *arrays[i], &call->partial[at], call->blocks.count,
                         call->partial_count, sizes[i]);
        at += sizes[i];
    }
}

void cpu_monarch_backward(struct cpu *cpu, float *dx, const struct monarch_gradients *gradients,
                          const float *dy, const float *x, const struct monarch *weights, size_t N)
{
    struct backward_call call = {.dx = dx, .dy = dy, .x = x, .weights = weights};
    const size_t aa = weights->a * weights->a, bb = weights->b * weights->b, P = weights->P;
    const bool wanted = gradients && gradients->w1a;

    call.blocks = cpu_blocks(N);
    call.part_count = monarch_tile_floats(weights);
    call.partial_count = 3 * (aa + bb) + 5 * P + weights->rank * (weights->D + P);
    size_t parts = call.part_count * team_thread_count(cpu->team);
    call.scratch = cpu_scratch(cpu, parts + (wanted ? call.blocks.count * call.partial_count : 0));
    if (!call.scratch)
        return;
    call.partial = wanted ? call.scratch + parts : NULL;
    team_run(cpu->team, call.blocks.count, 1, backward_blocks, &call);
    if (wanted)
        add_gradients(cpu, gradients, &call);
}

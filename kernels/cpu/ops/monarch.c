/*
 * monarch: Kronecker factors and permutations over tiles of tokens, forward; see
 * kernels/ref/monarch.c.
 */
#include "kernels/cpu/ops/monarch.h"

#include "kernels/cpu/ops/vector.h"

#include <assert.h>

#define TILE_FLOATS 16384 /* of one array of a tile: 64 KiB */
#define TILE_TOKENS_MAX 32
#define TILE_TOKENS_MIN 4
#define TILE_ARRAYS 11

size_t monarch_tile_tokens(const struct monarch *weights)
{
    size_t tokens = TILE_FLOATS / weights->P;

    if (tokens > TILE_TOKENS_MAX)
        return TILE_TOKENS_MAX;
    return tokens < TILE_TOKENS_MIN ? TILE_TOKENS_MIN : tokens;
}

size_t monarch_tile_floats(const struct monarch *weights)
{
    return monarch_tile_tokens(weights) * (TILE_ARRAYS * weights->P + 2 * weights->rank);
}

struct monarch_tile monarch_tile(const struct monarch *weights, float *scratch)
{
    const size_t tokens = monarch_tile_tokens(weights), size = tokens * weights->P;
    struct monarch_tile tile = {.w = weights};

    assert(weights->P == weights->a * weights->b);
    assert((weights->b & (weights->b - 1)) == 0);
    tile.b_shift = (size_t)__builtin_ctzl(weights->b);
    tile.in1 = scratch;
    tile.z1 = tile.in1 + size;
    tile.e = tile.z1 + size;
    tile.c = tile.e + size;
    tile.in2 = tile.c + size;
    tile.z2 = tile.in2 + size;
    tile.in3 = tile.z2 + size;
    tile.z3 = tile.in3 + size;
    tile.dk = tile.z3 + size;
    tile.dz = tile.dk + size;
    tile.left = tile.dz + size;
    tile.m = scratch + TILE_ARRAYS * size;
    tile.dm = tile.m + tokens * weights->rank;
    assert(tile.left + size == tile.m);
    return tile;
}

void monarch_kron(const struct monarch_tile *tile, float *out, const float *in, const float *wa,
                  const float *wb, bool back)
{
    const size_t a = tile->w->a, b = tile->w->b, T = tile->T;
    struct matmul by_a = {.M = a, .N = T * b, .K = a, .transpose_a = !back, .lda = a, .alpha = 1};
    struct matmul by_b = {.M = a * T, .N = b, .K = b, .transpose_b = back, .lda = b, .alpha = 1};

    by_a.ldb = by_a.ldc = T * b;
    by_b.ldb = by_b.ldc = b;
    cpu_product(tile->left, wa, in, &by_a);
    cpu_product(out, tile->left, wb, &by_b);
}

/* m = softmax(x cond_v), e = 1 + m cond_u. */
static void condition(struct monarch_tile *tile, const float *x)
{
    const struct monarch *w = tile->w;
    const size_t rank = w->rank, b = w->b, T = tile->T;
    struct matmul product = {.M = T, .N = rank, .K = w->D, .lda = w->D, .alpha = 1};

    product.ldb = product.ldc = rank;
    cpu_product(tile->m, x, w->cond_v, &product);
    for (size_t t = 0; t < T; t++) {
        float *m = &tile->m[t * rank], largest = vector_max(m, rank);
        for (size_t r = 0; r < rank; r++)
            m[r] = vector_exp(m[r] - largest);
        vector_scale(m, 1.0f / vector_sum(m, rank), rank);
    }
    for (size_t i = 0; i < w->a; i++) {
        for (size_t t = 0; t < T; t++) {
            float *e = &tile->e[(i * T + t) * b];
            for (size_t j = 0; j < b; j++)
                e[j] = 1.0f;
            for (size_t r = 0; r < rank; r++)
                vector_add_scaled(e, &w->cond_u[r * w->P + i * b], tile->m[t * rank + r], b);
        }
    }
}

static void load_input(struct monarch_tile *tile, const float *x)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, T = tile->T;

    for (size_t i = 0; i < w->a; i++) {
        size_t first = i * b, used = first >= w->D ? 0 : w->D - first < b ? w->D - first : b;
        for (size_t t = 0; t < T; t++) {
            float *in = &tile->in1[(i * T + t) * b];
            for (size_t j = 0; j < used; j++)
                in[j] = w->d1[first + j] * x[t * w->D + first + j];
            for (size_t j = used; j < b; j++)
                in[j] = 0;
        }
    }
}

/* out[channel] = in[permutation[channel]] for every token. */
static void permute(const struct monarch_tile *tile, float *out, const float *in,
                    const int32_t *permutation)
{
    const size_t b = tile->w->b, T = tile->T;

    for (size_t i = 0; i < tile->w->a; i++) {
        for (size_t j = 0; j < b; j++) {
            const float *source = &in[monarch_place(tile, (size_t)permutation[i * b + j])];
            float *target = &out[i * T * b + j];
            for (size_t t = 0; t < T; t++)
                target[t * b] = source[t * b];
        }
    }
}

/* c and in2 of one token's [b] from e and z1. */
static void silu_row(float *restrict c, float *restrict in2, const float *restrict e,
                     const float *restrict z1, const float *restrict d2, const float *restrict b2,
                     size_t b)
{
    for (size_t j = 0; j < b; j++) {
        c[j] = d2[j] * e[j] * z1[j] + b2[j];
        in2[j] = c[j] * vector_sigmoid(c[j]);
    }
}

static void silu_input(struct monarch_tile *tile)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b, T = tile->T;

    for (size_t i = 0; i < w->a; i++) {
        for (size_t t = 0; t < T; t++) {
            size_t at = (i * T + t) * b;
            silu_row(&tile->c[at], &tile->in2[at], &tile->e[at], &tile->z1[at], &w->d2[i * b],
                     &w->b2[i * b], b);
        }
    }
}

void monarch_tile_forward(struct monarch_tile *tile, const float *x, size_t T)
{
    const struct monarch *w = tile->w;
    const size_t b = w->b;

    tile->T = T;
    condition(tile, x);
    load_input(tile, x);
    monarch_kron(tile, tile->dk, tile->in1, w->w1a, w->w1b, false);
    permute(tile, tile->z1, tile->dk, w->p1);
    silu_input(tile);
    monarch_kron(tile, tile->dk, tile->in2, w->w2a, w->w2b, false);
    permute(tile, tile->z2, tile->dk, w->p2);
    for (size_t i = 0; i < w->a; i++)
        for (size_t t = 0; t < T; t++)
            for (size_t j = 0; j < b; j++)
                tile->in3[(i * T + t) * b + j] = w->d3[i * b + j] * tile->z2[(i * T + t) * b + j];
    monarch_kron(tile, tile->z3, tile->in3, w->w3a, w->w3b, false);
}

struct monarch_call {
    float *y;
    const float *skip, *x;
    const struct monarch *weights;
    size_t N, tokens;
    float *scratch;
    size_t part_count;
};

static void forward_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct monarch_call *call = context;
    const struct monarch *w = call->weights;
    const size_t D = w->D, b = w->b;
    struct monarch_tile tile = monarch_tile(w, &call->scratch[part * call->part_count]);

    for (size_t number = begin; number < end; number++) {
        size_t first = number * call->tokens, left = call->N - first;
        size_t T = left < call->tokens ? left : call->tokens;
        const float *skip = &call->skip[first * D];
        float *y = &call->y[first * D];

        monarch_tile_forward(&tile, &call->x[first * D], T);
        for (size_t i = 0; i * b < D; i++) {
            size_t past = (i + 1) * b < D ? (i + 1) * b : D;
            for (size_t t = 0; t < T; t++) {
                const float *z3 = tile.z3 + (i * T + t) * b;
                for (size_t d = i * b; d < past; d++)
                    y[t * D + d] = skip[t * D + d] + w->d4[d] * z3[d - i * b];
            }
        }
    }
}

void cpu_monarch_forward(struct cpu *cpu, float *y, const float *skip, const float *x,
                         const struct monarch *weights, size_t N)
{
    struct monarch_call call = {.y = y, .skip = skip, .x = x, .weights = weights, .N = N};

    call.tokens = monarch_tile_tokens(weights);
    call.part_count = monarch_tile_floats(weights);
    call.scratch = cpu_scratch(cpu, call.part_count * team_thread_count(cpu->team));
    if (call.scratch)
        team_run(cpu->team, (N + call.tokens - 1) / call.tokens, 1, forward_tiles, &call);
}

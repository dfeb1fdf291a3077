/*
 * hyper: hyper-connections with a doubly stochastic mix of the lanes, see kernels/ref/hyper.c.
 *
 * Read works on tiles of TILE tokens: their coefficients are one skinny product, the Sinkhorn
 * rounds take LANES tokens side by side. Gradients of the weights add up per block of rows.
 */
#include "kernels/cpu/ops/hyper_mix.h"
#include "kernels/cpu/ops/norm.h"
#include "kernels/cpu/ops/quant.h"
#include "kernels/cpu/ops/sinkhorn.h"

#include <string.h>

#define TILE 32

struct hyper_call {
    float *u, *h, *raw, *r, *dS;
    const float *S, *du, *dh, *kept_h, *kept_raw, *kept_r;
    const struct hyper *weights;
    size_t N, n, D, width, M; /* width = n D, M = 2 n + n n */
    float *scratch;           /* [parts, part_count] */
    size_t part_count;
    float *partial; /* [blocks, partial_count]: dphi, dbias, dscale; or NULL */
    size_t partial_count;
    struct cpu_blocks blocks;
};

static struct hyper_call hyper_call(const struct hyper *weights, size_t N)
{
    struct hyper_call a = {.weights = weights, .N = N, .n = weights->lanes, .D = weights->D};

    a.width = a.n * a.D;
    a.M = 2 * a.n + a.n * a.n;
    return a;
}

static size_t part_of(const struct hyper_call *a, size_t m)
{
    return m < a->n ? 0 : m < 2 * a->n ? 1 : 2;
}

/* nx = round(S r) of `count` tokens. */
static void normalise(float *nx, const struct hyper_call *a, size_t first, size_t count,
                      const float *r)
{
    for (size_t t = 0; t < count; t++) {
        const float *S = &a->S[(first + t) * a->width];
        float *row = &nx[t * a->width], inverse = r[first + t];
        for (size_t k = 0; k < a->width; k++)
            row[k] = S[k] * inverse;
        if (a->weights->rounding == ROUND_A8)
            quant_round_a8(row, row, a->width);
    }
}

/* The mix's logits of up to LANES tokens, side by side; unused lanes repeat the last token. */
static void load_mix(float *L, const struct hyper_call *a, const float *raw, size_t first,
                     size_t count)
{
    const float scale = a->weights->scale[2], *bias = &a->weights->bias[2 * a->n];

    for (size_t m = 0; m < a->n * a->n; m++)
        for (size_t l = 0; l < LANES; l++) {
            size_t token = first + (l < count ? l : count - 1);
            L[m * LANES + l] = scale * raw[token * a->M + 2 * a->n + m] + bias[m];
        }
}

static void coefficients(const struct hyper_call *a, float *L, size_t first, size_t count)
{
    const float *scale = a->weights->scale, *bias = a->weights->bias;
    const size_t n = a->n;

    load_mix(L, a, a->raw, first, count);
    sinkhorn_forward(L, NULL, n);
    for (size_t l = 0; l < count; l++) {
        const float *raw = &a->raw[(first + l) * a->M];
        float *h = &a->h[(first + l) * a->M];
        for (size_t i = 0; i < n; i++) {
            h[i] = vector_sigmoid(scale[0] * raw[i] + bias[i]);
            h[n + i] = 2.0f * vector_sigmoid(scale[1] * raw[n + i] + bias[n + i]);
        }
        for (size_t m = 0; m < n * n; m++)
            h[2 * n + m] = vector_exp(L[m * LANES + l]);
    }
}

static void read_tile(const struct hyper_call *a, size_t first, size_t count, float *scratch)
{
    float *L = scratch, *nx = scratch + a->n * a->n * LANES;
    struct matmul product = {.M = count, .N = a->M, .K = a->width, .alpha = 1};

    for (size_t n = first; n < first + count; n++)
        a->r[n] = (float)norm_inverse(&a->S[n * a->width], a->width);
    normalise(nx, a, first, count, a->r);
    product.lda = a->width;
    product.ldb = product.ldc = a->M;
    cpu_product(&a->raw[first * a->M], nx, a->weights->phi, &product);
    for (size_t t = 0; t < count; t += LANES)
        coefficients(a, L, first + t, count - t < LANES ? count - t : LANES);
    for (size_t n = first; n < first + count; n++) {
        const float *h = &a->h[n * a->M], *S = &a->S[n * a->width];
        hyper_mix_row(&a->u[n * a->D], S, h, a->n, a->D);
    }
}

static void read_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct hyper_call *a = context;

    for (size_t tile = begin; tile < end; tile++) {
        size_t first = tile * TILE, left = a->N - first;
        read_tile(a, first, left < TILE ? left : TILE, &a->scratch[part * a->part_count]);
    }
}

void cpu_hyper_read_forward(struct cpu *cpu, float *u, float *h, float *raw, float *r,
                            const float *S, const struct hyper *weights, size_t N)
{
    struct hyper_call a = hyper_call(weights, N);

    a.u = u;
    a.h = h;
    a.raw = raw;
    a.r = r;
    a.S = S;
    a.part_count = a.n * a.n * LANES + TILE * a.width;
    a.scratch = cpu_scratch(cpu, a.part_count * team_thread_count(cpu->team));
    if (a.scratch)
        team_run(cpu->team, (N + TILE - 1) / TILE, 1, read_tiles, &a);
}

/* ---- read backward --------------------------------------------------------------------------- */

struct read_scratch {
    float *L, *states, *dl, *draw, *nx, *dnx;
};

static size_t read_scratch_count(const struct hyper_call *a)
{
    return (1 + SINKHORN_HALF_ROUNDS) * a->n * a->n * LANES + 2 * TILE * (a->M + a->width);
}

static struct read_scratch read_scratch(float *memory, const struct hyper_call *a)
{
    struct read_scratch s = {.L = memory};

    s.states = s.L + a->n * a->n * LANES;
    s.dl = s.states + SINKHORN_HALF_ROUNDS * a->n * a->n * LANES;
    s.draw = s.dl + TILE * a->M;
    s.nx = s.draw + TILE * a->M;
    s.dnx = s.nx + TILE * a->width;
    return s;
}

/* dl of the mix of up to LANES tokens; dl is that of token `first`. */
static void mix_backward(const struct hyper_call *a, const struct read_scratch *s, float *dl,
                         size_t first, size_t count)
{
    const size_t n = a->n;

    load_mix(s->L, a, a->kept_raw, first, count);
    sinkhorn_forward(s->L, s->states, n);
    for (size_t m = 0; m < n * n; m++)
        for (size_t l = 0; l < LANES; l++) {
            size_t token = first + (l < count ? l : count - 1);
            float *L = &s->L[m * LANES + l];
            *L = a->dh[token * a->M + 2 * n + m] * vector_exp(*L);
        }
    sinkhorn_backward(s->L, s->states, n);
    for (size_t l = 0; l < count; l++)
        for (size_t m = 0; m < n * n; m++)
            dl[l * a->M + 2 * n + m] = s->L[m * LANES + l];
}

/* dl and draw of a tile. */
static void coefficients_backward(const struct hyper_call *a, const struct read_scratch *s,
                                  size_t first, size_t count)
{
    const size_t n = a->n, M = a->M;

    for (size_t t = 0; t < count; t++) {
        const float *h = &a->kept_h[(first + t) * M], *dh = &a->dh[(first + t) * M];
        const float *du = &a->du[(first + t) * a->D], *S = &a->S[(first + t) * a->width];
        float *dl = &s->dl[t * M];
        for (size_t i = 0; i < n; i++) {
            float post = h[n + i];
            dl[i] = vector_dot(du, &S[i * a->D], a->D) * h[i] * (1.0f - h[i]);
            dl[n + i] = dh[n + i] * post * (1.0f - 0.5f * post);
        }
    }
    for (size_t t = 0; t < count; t += LANES)
        mix_backward(a, s, &s->dl[t * M], first + t, count - t < LANES ? count - t : LANES);
    for (size_t t = 0; t < count; t++)
        for (size_t m = 0; m < M; m++)
            s->draw[t * M + m] = a->weights->scale[part_of(a, m)] * s->dl[t * M + m];
}

static void weights_backward(const struct hyper_call *a, const struct read_scratch *s, size_t first,
                             size_t count, float *partial)
{
    const size_t M = a->M;
    float *dbias = partial + a->width * M, *dscale = dbias + M;
    struct matmul product = {.M = a->width, .N = M, .K = count, .transpose_a = true, .beta = 1};

    normalise(s->nx, a, first, count, a->kept_r);
    product.alpha = 1;
    product.lda = a->width;
    product.ldb = product.ldc = M;
    cpu_product(partial, s->nx, s->draw, &product);
    for (size_t t = 0; t < count; t++)
        for (size_t m = 0; m < M; m++) {
            float dl = s->dl[t * M + m];
            dbias[m] += dl;
            dscale[part_of(a, m)] += dl * a->kept_raw[(first + t) * M + m];
        }
}

static void read_backward_tile(const struct hyper_call *a, const struct read_scratch *s,
                               size_t first, size_t count, float *partial)
{
    struct matmul product = {.M = count, .N = a->width, .K = a->M, .transpose_b = true};

    coefficients_backward(a, s, first, count);
    if (partial)
        weights_backward(a, s, first, count, partial);
    product.alpha = 1;
    product.lda = product.ldb = a->M;
    product.ldc = a->width;
    cpu_product(s->dnx, s->draw, a->weights->phi, &product);
    for (size_t t = 0; t < count; t++) {
        const size_t n = first + t;
        const float *S = &a->S[n * a->width], *dnx = &s->dnx[t * a->width];
        const float *du = &a->du[n * a->D], *h = &a->kept_h[n * a->M];
        float r = a->kept_r[n], mean = vector_dot(dnx, S, a->width) / (float)a->width;
        float pull = r * r * r * mean;
        for (size_t i = 0; i < a->n; i++) {
            float *dS = &a->dS[n * a->width + i * a->D];
            for (size_t d = 0; d < a->D; d++)
                dS[d] += h[i] * du[d] + (r * dnx[i * a->D + d] - pull * S[i * a->D + d]);
        }
    }
}

static void read_backward_blocks(void *context, size_t begin, size_t end, size_t part)
{
    const struct hyper_call *a = context;
    struct read_scratch s = read_scratch(&a->scratch[part * a->part_count], a);

    for (size_t b = begin; b < end; b++) {
        float *partial = a->partial ? &a->partial[b * a->partial_count] : NULL;
        size_t past = cpu_block_end(&a->blocks, b);
        if (partial)
            memset(partial, 0, a->partial_count * sizeof *partial);
        for (size_t n = b * a->blocks.size; n < past; n += TILE)
            read_backward_tile(a, &s, n, past - n < TILE ? past - n : TILE, partial);
    }
}

void cpu_hyper_read_backward(struct cpu *cpu, float *dS, const struct hyper_gradients *gradients,
                             const float *du, const float *dh, const float *S, const float *h,
                             const float *raw, const float *r, const struct hyper *weights,
                             size_t N)
{
    struct hyper_call a = hyper_call(weights, N);
    const bool wanted = gradients && gradients->phi;

    a.dS = dS;
    a.du = du;
    a.dh = dh;
    a.S = S;
    a.kept_h = h;
    a.kept_raw = raw;
    a.kept_r = r;
    a.blocks = cpu_blocks(N);
    a.partial_count = a.width * a.M + a.M + 3;
    a.part_count = read_scratch_count(&a);
    size_t parts = a.part_count * team_thread_count(cpu->team);
    a.scratch = cpu_scratch(cpu, parts + (wanted ? a.blocks.count * a.partial_count : 0));
    if (!a.scratch)
        return;
    a.partial = wanted ? a.scratch + parts : NULL;
    team_run(cpu->team, a.blocks.count, 1, read_backward_blocks, &a);
    if (!wanted)
        return;
    const float *sums = a.partial;
    cpu_add_partials(cpu, gradients->phi, sums, a.blocks.count, a.partial_count, a.width * a.M);
    sums += a.width * a.M;
    cpu_add_partials(cpu, gradients->bias, sums, a.blocks.count, a.partial_count, a.M);
    cpu_add_partials(cpu, gradients->scale, sums + a.M, a.blocks.count, a.partial_count, 3);
}

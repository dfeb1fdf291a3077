/*
 * hyper_backward: the way back from a block's input and the coefficients, see kernels/ref/hyper.c.
 *
 * Without gradients of the weights, tiles of HYPER_TILE tokens are dealt out. With them, blocks of
 * rows that depend on N alone, a partial sum each, added up in their order.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/hyper.h"
#include "kernels/cpu/ops/sinkhorn.h"
#include "kernels/cpu/ops/skinny.h"

struct backward_call {
    float *dS;
    const float *du, *dh, *S, *h, *raw, *r;
    const struct hyper *weights;
    struct hyper_sizes sizes;
    size_t N;
    const float *packed; /* phi for skinny_backward */
    float *scratch;      /* [threads, part_count] */
    size_t part_count;
    bool learns;    /* gradients of the weights are wanted */
    float *partial; /* [blocks, partial_count]: dphi, dbias, dscale */
    size_t partial_count;
    struct cpu_blocks blocks;
};

struct tile_scratch {
    float *logits, *dh, *sinkhorn; /* side by side; the gradient in place of the logits' columns */
    float *dl, *draw;              /* [HYPER_TILE,M] */
    float *dnx;                    /* [SKINNY_ROWS, skinny_stride] */
    float *nx;                     /* [HYPER_TILE, width], for the weights' gradients */
};

static size_t tile_scratch_count(const struct backward_call *a)
{
    const struct hyper_sizes *s = &a->sizes;

    return s->M * LANES + s->n * s->n * LANES + sinkhorn_scratch_count(s->n) +
           2 * HYPER_TILE * s->M + SKINNY_ROWS * skinny_stride(s->width) +
           (a->learns ? HYPER_TILE * s->width : 0) + 16;
}

static struct tile_scratch tile_scratch(float *memory, const struct hyper_sizes *s)
{
    struct tile_scratch t = {.logits = memory};

    t.dh = t.logits + s->M * LANES;
    t.sinkhorn = t.dh + s->n * s->n * LANES;
    t.dl = t.sinkhorn + sinkhorn_scratch_count(s->n);
    t.draw = t.dl + HYPER_TILE * s->M;
    t.dnx = t.draw + HYPER_TILE * s->M;
    t.nx = t.dnx + SKINNY_ROWS * skinny_stride(s->width);
    return t;
}

/* dpre[i] = sum_d du[d] S[i,d] */
static void pre_backward(float *dpre, const float *du, const float *S, size_t n, size_t D)
{
    wide sum[4] = {0};
    size_t d = 0;

    if (n != 4) {
        for (size_t i = 0; i < n; i++)
            dpre[i] = vector_dot(du, &S[i * D], D);
        return;
    }
    for (; d + WIDE <= D; d += WIDE) {
        const wide x = wide_load(&du[d]);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            sum[i] += x * wide_load(&S[i * D + d]);
    }
    for (size_t i = 0; i < 4; i++)
        sum[i] += wide_load_some(&du[d], D - d) * wide_load_some(&S[i * D + d], D - d);
    for (size_t i = 0; i < 4; i++)
        dpre[i] = wide_sum(sum[i]);
}

/* dl of the mix of a tile, from dh. */
static void mix_backward(const struct backward_call *a, const struct tile_scratch *s, size_t first,
                         size_t count)
{
    const size_t n = a->sizes.n, M = a->sizes.M;

    hyper_logits(s->logits, &a->raw[first * M], count, a->weights);
    for (size_t m = 0; m < n * n; m++)
        for (size_t l = 0; l < LANES; l++)
            s->dh[m * LANES + l] = a->dh[(first + (l < count ? l : count - 1)) * M + 2 * n + m];
    sinkhorn_backward(s->dh, s->dh, &s->logits[2 * n * LANES], n, s->sinkhorn);
    for (size_t t = 0; t < count; t++)
        for (size_t m = 0; m < n * n; m++)
            s->dl[t * M + 2 * n + m] = s->dh[m * LANES + t];
}

/* dl and draw of a tile. */
static void coefficients_backward(const struct backward_call *a, const struct tile_scratch *s,
                                  size_t first, size_t count)
{
    const size_t n = a->sizes.n, D = a->sizes.D, M = a->sizes.M;

    for (size_t t = 0; t < count; t++) {
        const float *h = &a->h[(first + t) * M], *dh = &a->dh[(first + t) * M];
        float *dl = &s->dl[t * M];
        pre_backward(dl, &a->du[(first + t) * D], &a->S[(first + t) * n * D], n, D);
        for (size_t i = 0; i < n; i++) {
            float post = h[n + i];
            dl[i] *= h[i] * (1.0f - h[i]);
            dl[n + i] = dh[n + i] * post * (1.0f - 0.5f * post);
        }
    }
    mix_backward(a, s, first, count);
    for (size_t t = 0; t < count; t++)
        for (size_t m = 0; m < M; m++)
            s->draw[t * M + m] = a->weights->scale[hyper_part_of(m, n)] * s->dl[t * M + m];
}

static void weights_backward(const struct backward_call *a, const struct tile_scratch *s,
                             size_t first, size_t count, float *partial)
{
    const size_t width = a->sizes.width, M = a->sizes.M;
    float *dbias = partial + width * M, *dscale = dbias + M;
    const struct matmul product = {.M = width,
                                   .N = M,
                                   .K = count,
                                   .transpose_a = true,
                                   .lda = width,
                                   .ldb = M,
                                   .ldc = M,
                                   .alpha = 1,
                                   .beta = 1};

    for (size_t t = 0; t < count; t++) {
        const float *S = &a->S[(first + t) * width];
        const struct hyper_measure measure = hyper_measure(S, width);
        hyper_normalise(&s->nx[t * width], S, a->r[first + t], &measure, a->weights->rounding,
                        width);
    }
    cpu_product(partial, s->nx, s->draw, &product);
    for (size_t t = 0; t < count; t++)
        for (size_t m = 0; m < M; m++) {
            float dl = s->dl[t * M + m];
            dbias[m] += dl;
            dscale[hyper_part_of(m, a->sizes.n)] += dl * a->raw[(first + t) * M + m];
        }
}

static float long_dot(const float *a, const float *b, size_t count)
{
    wide sum[4] = {0};
    size_t k = 0;

    for (; k + 4 * WIDE <= count; k += 4 * WIDE)
#pragma GCC unroll 4
        for (size_t s = 0; s < 4; s++)
            sum[s] += wide_load(&a[k + s * WIDE]) * wide_load(&b[k + s * WIDE]);
    return wide_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + vector_dot(&a[k], &b[k], count - k);
}

/* dS += of one token */
static void lanes_backward(const struct backward_call *a, size_t token, const float *dnx)
{
    const size_t n = a->sizes.n, D = a->sizes.D, width = a->sizes.width;
    const float *S = &a->S[token * width], *du = &a->du[token * D], *h = &a->h[token * a->sizes.M];
    const float r = a->r[token], mean = long_dot(dnx, S, width) / (float)width;
    const float pull = r * r * r * mean;

    for (size_t i = 0; i < n; i++) {
        float *restrict dS = &a->dS[token * width + i * D];
        for (size_t d = 0; d < D; d++)
            dS[d] += h[i] * du[d] + (r * dnx[i * D + d] - pull * S[i * D + d]);
    }
}

static void backward_tile(const struct backward_call *a, const struct tile_scratch *s, size_t first,
                          size_t count, float *partial)
{
    const size_t width = a->sizes.width, M = a->sizes.M, stride = skinny_stride(width);

    coefficients_backward(a, s, first, count);
    if (partial)
        weights_backward(a, s, first, count, partial);
    for (size_t t = 0; t < count; t += SKINNY_ROWS) {
        const size_t rows = count - t < SKINNY_ROWS ? count - t : SKINNY_ROWS;
        skinny_backward(s->dnx, &s->draw[t * M], a->packed, a->weights->phi, rows, width, M,
                        &a->dS[(first + t) * width]);
        for (size_t k = 0; k < rows; k++)
            lanes_backward(a, first + t + k, &s->dnx[k * stride]);
    }
}

static void backward_blocks(void *context, size_t begin, size_t end, size_t part)
{
    const struct backward_call *a = context;
    struct tile_scratch s = tile_scratch(&a->scratch[part * a->part_count], &a->sizes);

    for (size_t b = begin; b < end; b++) {
        float *partial = a->learns ? &a->partial[b * a->partial_count] : NULL;
        const size_t past = cpu_block_end(&a->blocks, b);
        if (partial)
            memset(partial, 0, a->partial_count * sizeof *partial);
        for (size_t n = b * a->blocks.size; n < past; n += HYPER_TILE)
            backward_tile(a, &s, n, past - n < HYPER_TILE ? past - n : HYPER_TILE, partial);
    }
}

static struct cpu_blocks tiles_of(size_t N)
{
    return (struct cpu_blocks){
        .rows = N, .size = HYPER_TILE, .count = (N + HYPER_TILE - 1) / HYPER_TILE};
}

struct pack_call {
    float *packed;
    const float *phi;
    size_t width, M;
};

static void pack_panels(void *context, size_t begin, size_t end, size_t part)
{
    const struct pack_call *a = context;

    (void)part;
    skinny_pack(a->packed, a->phi, a->width, a->M, begin, end);
}

void cpu_hyper_read_backward(struct cpu *cpu, float *dS, const struct hyper_gradients *gradients,
                             const float *du, const float *dh, const float *S, const float *h,
                             const float *raw, const float *r, const struct hyper *weights,
                             size_t N)
{
    struct backward_call a = {.dS = dS, .du = du, .dh = dh, .S = S, .h = h, .raw = raw, .r = r};
    const struct hyper_sizes sizes = hyper_sizes(weights);
    const size_t count = sizes.width * sizes.M;
    const bool learns = gradients && gradients->phi;

    a.weights = weights;
    a.sizes = sizes;
    a.learns = learns;
    a.blocks = learns ? cpu_blocks(N) : tiles_of(N);
    a.partial_count = learns ? count + sizes.M + 3 : 0;
    a.part_count = tile_scratch_count(&a);
    const size_t parts = a.part_count * team_thread_count(cpu->team);
    const size_t packed = skinny_packed_count(sizes.width, sizes.M);
    float *memory = cpu_scratch(cpu, packed + parts + a.blocks.count * a.partial_count);
    if (!memory)
        return;
    a.packed = memory;
    a.scratch = memory + packed;
    a.partial = a.scratch + parts;

    struct pack_call pack = {memory, weights->phi, sizes.width, sizes.M};
    team_run(cpu->team, skinny_panel_count(sizes.width, sizes.M), 16, pack_panels, &pack);
    team_deal(cpu->team, a.blocks.count, backward_blocks, &a);
    if (!learns)
        return;
    const float *sums = a.partial;
    cpu_add_partials(cpu, gradients->phi, sums, a.blocks.count, a.partial_count, count);
    sums += count;
    cpu_add_partials(cpu, gradients->bias, sums, a.blocks.count, a.partial_count, sizes.M);
    cpu_add_partials(cpu, gradients->scale, sums + sizes.M, a.blocks.count, a.partial_count, 3);
}

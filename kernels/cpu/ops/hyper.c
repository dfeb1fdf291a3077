/*
 * hyper: hyper-connections with a doubly stochastic mix of the lanes, see kernels/ref/hyper.c.
 *
 * Read works on tiles of HYPER_TILE tokens, SKINNY_ROWS of them at a time from the lanes in the
 * second cache: norm and largest value in one pass, normalised and rounded in another, then the
 * skinny product with phi. The coefficients of the tile are made side by side.
 *
 * Numerics  The sum under the norm in f64 over short sums in f32, the rest in f32. Rounded values have the oracle's bits:
 *           x + (q scale - x) is q scale there, exactly, unless scale is below the normal range or
 *           something is not finite, and those rows go through quant.h.
 */
#include "kernels/cpu/ops/hyper.h"

#include "kernels/cpu/ops/hyper_mix.h"
#include "kernels/cpu/ops/norm.h"
#include "kernels/cpu/ops/quant.h"
#include "kernels/cpu/ops/sinkhorn.h"
#include "kernels/cpu/ops/skinny.h"

#include <float.h>

#define STEPS 4      /* vectors taken together, each with its own sums */
#define STRETCH 1024 /* values summed in f32 before they join the sum in f64 */

typedef int32_t wide_bits __attribute__((vector_size(WIDE * sizeof(int32_t))));

/* Adds the squares of x [count], whole steps. */
static double measure_stretch(const float *x, size_t count, wide_bits largest[STEPS])
{
    wide squares[STEPS] = {0};
    double total = 0;

    for (size_t k = 0; k < count; k += STEPS * WIDE) {
#pragma GCC unroll 4
        for (size_t s = 0; s < STEPS; s++) {
            const wide value = wide_load(&x[k + s * WIDE]);
            squares[s] += value * value;
            wide_bits above = ((wide_bits)value & 0x7fffffff) - largest[s];
            largest[s] += above & (above > 0); /* the larger one: sizes are not negative */
        }
    }
    for (size_t l = 0; l < WIDE; l++)
        total += ((double)squares[0][l] + (double)squares[1][l]) +
                 ((double)squares[2][l] + (double)squares[3][l]);
    return total;
}

struct hyper_measure hyper_measure(const float *S, size_t width)
{
    const size_t whole = width / (STEPS * WIDE) * (STEPS * WIDE);
    wide_bits largest[STEPS] = {0};
    struct hyper_measure total = {0};
    int32_t most = 0;

    for (size_t k = 0; k < whole; k += STRETCH)
        total.squares += measure_stretch(&S[k], whole - k < STRETCH ? whole - k : STRETCH, largest);
    for (size_t l = 0; l < WIDE; l++)
        for (size_t s = 0; s < STEPS; s++)
            most = largest[s][l] > most ? largest[s][l] : most;
    for (size_t k = whole; k < width; k++) {
        const int32_t size = (int32_t)vector_bits(fabsf(S[k]));
        total.squares += (double)S[k] * (double)S[k];
        most = size > most ? size : most;
    }
    if (!isfinite(total.squares)) /* squares past f32, or S is not finite */
        total.squares = norm_dot(S, S, width);
    total.largest = vector_from_bits((uint32_t)most);
    return total;
}

/* Half to even. Where there is a fused multiply-add there is an instruction for this, too; adding
 * 1.5 * 2^23 to a product could be fused with it, which would round once instead of twice. */
static inline float round_even(float x)
{
#if defined(__SSE4_1__) || defined(__aarch64__)
    return rintf(x);
#else
    return (x + 12582912.0f) - 12582912.0f;
#endif
}

void hyper_normalise(float *nx, const float *S, float r, const struct hyper_measure *measure,
                     enum rounding rounding, size_t width)
{
    const float largest = measure->largest * r; /* max |S r|: rounding keeps the order */
    const float scale = largest > 0 ? largest * (1.0f / 127.0f) : 1.0f;
    const float inverse = 1.0f / scale;
    const bool plain = isfinite(measure->squares) && scale >= FLT_MIN;

    if (rounding == ROUND_A8 && plain) {
        for (size_t k = 0; k < width; k++)
            nx[k] = round_even(S[k] * r * inverse) * scale;
        return;
    }
    for (size_t k = 0; k < width; k++)
        nx[k] = S[k] * r;
    if (rounding == ROUND_A8)
        quant_round_a8(nx, nx, width);
}

void hyper_logits(float *logits, const float *raw, size_t count, const struct hyper *weights)
{
    const size_t n = weights->lanes, M = 2 * n + n * n;

    for (size_t m = 0; m < M; m++) {
        const float scale = weights->scale[hyper_part_of(m, n)], bias = weights->bias[m];
        for (size_t l = 0; l < LANES; l++)
            logits[m * LANES + l] = scale * raw[(l < count ? l : count - 1) * M + m] + bias;
    }
}

/* ---- read ------------------------------------------------------------------------------------ */

struct read_call {
    float *u, *h, *raw, *r;
    const float *S;
    const struct hyper *weights;
    struct hyper_sizes sizes;
    size_t N;
    float *scratch; /* [threads, part_count] */
    size_t part_count;
};

/* h [count,M] from raw. */
static void coefficients(float *h, const float *raw, size_t count, const struct hyper *weights,
                         float *scratch)
{
    const size_t n = weights->lanes, M = 2 * n + n * n;
    float *logits = scratch;

    hyper_logits(logits, raw, count, weights);
    for (size_t k = 0; k < n * LANES; k++)
        logits[k] = vector_sigmoid(logits[k]);
    for (size_t k = n * LANES; k < 2 * n * LANES; k++)
        logits[k] = 2.0f * vector_sigmoid(logits[k]);
    sinkhorn_forward(&logits[2 * n * LANES], &logits[2 * n * LANES], n, &logits[M * LANES]);
    for (size_t t = 0; t < count; t++)
        for (size_t m = 0; m < M; m++)
            h[t * M + m] = logits[m * LANES + t];
}

/* r and raw of at most SKINNY_ROWS tokens. */
static void read_rows(const struct read_call *a, size_t first, size_t count, float *nx)
{
    const size_t width = a->sizes.width, M = a->sizes.M, stride = skinny_stride(width);

    for (size_t t = 0; t < count; t++) {
        const float *S = &a->S[(first + t) * width];
        const struct hyper_measure measure = hyper_measure(S, width);
        const double mean = measure.squares / (double)width;
        const float r = (float)(1.0 / sqrt(mean + CPU_EPSILON));
        a->r[first + t] = r;
        hyper_normalise(&nx[t * stride], S, r, &measure, a->weights->rounding, width);
    }
    skinny_forward(&a->raw[first * M], nx, stride, a->weights->phi, count, width, M);
}

static void read_tile(void *context, size_t begin, size_t end, size_t part)
{
    const struct read_call *a = context;
    const size_t n = a->sizes.n, D = a->sizes.D, M = a->sizes.M;
    float *scratch = &a->scratch[part * a->part_count];
    const size_t past = end * HYPER_TILE < a->N ? end * HYPER_TILE : a->N;

    for (size_t first = begin * HYPER_TILE; first < past; first += HYPER_TILE) {
        const size_t count = past - first < HYPER_TILE ? past - first : HYPER_TILE;
        for (size_t t = 0; t < count; t += SKINNY_ROWS)
            read_rows(a, first + t, count - t < SKINNY_ROWS ? count - t : SKINNY_ROWS, scratch);
        coefficients(&a->h[first * M], &a->raw[first * M], count, a->weights, scratch);
        for (size_t t = first; t < first + count; t++)
            hyper_mix_row(&a->u[t * D], &a->S[t * n * D], &a->h[t * M], n, D);
    }
}

void cpu_hyper_read_forward(struct cpu *cpu, float *u, float *h, float *raw, float *r,
                            const float *S, const struct hyper *weights, size_t N)
{
    struct read_call a = {.u = u, .h = h, .raw = raw, .r = r, .S = S, .weights = weights, .N = N};

    a.sizes = hyper_sizes(weights);
    const size_t rows = SKINNY_ROWS * skinny_stride(a.sizes.width);
    const size_t side_by_side = a.sizes.M * LANES + sinkhorn_scratch_count(a.sizes.n);
    a.part_count = (rows > side_by_side ? rows : side_by_side) + 16;
    a.scratch = cpu_scratch(cpu, a.part_count * team_thread_count(cpu->team));
    if (a.scratch)
        team_deal(cpu->team, (N + HYPER_TILE - 1) / HYPER_TILE, read_tile, &a);
}

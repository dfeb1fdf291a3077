/*
 * cross_entropy: from hidden rows to losses and gradients over a list of targets, see
 * kernels/ref/cross_entropy.c.
 *
 * Works on tiles of up to TILE different rows. All threads share one tile: its logits are one
 * product cut along the vocabulary, the softmax goes row by row, dx is one product more, and
 * dtable another, cut along the vocabulary again, so that no gradient is added up twice.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"

#include <assert.h>
#include <string.h>

#define TILE 64

struct tile {
    float *x, *dx; /* [TILE, D]: the tile's hidden rows and their gradients */
    float *logits; /* [TILE, vocab]; then the gradient at the logits */
    size_t first_target[TILE + 1];
    size_t count;
    bool gradient;

    float *loss, *hit;
    const uint32_t *label;
    const float *weight;
    float scale;
    size_t vocab;
};

static size_t first_of_largest(const float *values, size_t count)
{
    float largest = vector_max(values, count);
    size_t i = 0;

    while (i + 1 < count && values[i] != largest) /* all NaN: the last */
        i++;
    return i;
}

/* Losses of one row's targets, then its logits become its gradient. */
static void softmax_row(const struct tile *tile, size_t r)
{
    float *logits = &tile->logits[r * tile->vocab];
    size_t first = tile->first_target[r], past = tile->first_target[r + 1];
    size_t best = first_of_largest(logits, tile->vocab);
    float largest = logits[best], weight_total = 0;

    for (size_t m = first; m < past; m++) {
        assert(tile->label[m] < tile->vocab);
        tile->loss[m] = largest - logits[tile->label[m]];
        tile->hit[m] = tile->label[m] == best ? 1.0f : 0.0f;
        weight_total += tile->weight[m];
    }
    for (size_t w = 0; w < tile->vocab; w++)
        logits[w] = vector_exp(logits[w] - largest);
    float total = vector_sum(logits, tile->vocab), log_total = logf(total);
    for (size_t m = first; m < past; m++)
        tile->loss[m] += log_total;
    if (!tile->gradient)
        return;
    vector_scale(logits, tile->scale * weight_total / total, tile->vocab);
    for (size_t m = first; m < past; m++)
        logits[tile->label[m]] -= tile->scale * tile->weight[m];
}

static void softmax_rows(void *context, size_t begin, size_t end, size_t part)
{
    (void)part;
    for (size_t r = begin; r < end; r++)
        softmax_row(context, r);
}

/* Takes the next rows from target m on; returns the first target not taken. */
static size_t fill_tile(struct tile *tile, const int32_t *row, size_t m, size_t targets)
{
    tile->count = 0;
    while (m < targets && tile->count < TILE) {
        tile->first_target[tile->count++] = m;
        for (m++; m < targets && row[m] == row[m - 1]; m++)
            ;
        assert(m == targets || row[m] > row[m - 1]);
    }
    tile->first_target[tile->count] = m;
    return m;
}

static void tile_backward(struct cpu *cpu, const struct tile *tile, float *dx, float *dtable,
                          const float *table, const int32_t *row, size_t D)
{
    if (dx) {
        struct matmul to_dx = {.M = tile->count, .N = D, .K = tile->vocab, .alpha = 1};
        to_dx.lda = tile->vocab;
        to_dx.ldb = to_dx.ldc = D;
        cpu_matmul(cpu, tile->dx, tile->logits, table, &to_dx);
        for (size_t r = 0; r < tile->count; r++)
            memcpy(&dx[(size_t)row[tile->first_target[r]] * D], &tile->dx[r * D], D * sizeof *dx);
    }
    if (dtable) {
        struct matmul to_table = {.M = tile->vocab, .N = D, .K = tile->count, .alpha = 1};
        to_table.transpose_a = true;
        to_table.beta = 1;
        to_table.lda = tile->vocab;
        to_table.ldb = to_table.ldc = D;
        cpu_matmul(cpu, dtable, tile->logits, tile->x, &to_table);
    }
}

void cpu_cross_entropy(struct cpu *cpu, float *loss, float *hit, float *dx, float *dtable,
                       const float *x, const float *table, const int32_t *row,
                       const uint32_t *label, const float *weight, float gradient_scale,
                       size_t targets, size_t N, size_t vocab, size_t D)
{
    struct tile tile = {.loss = loss, .hit = hit, .label = label, .weight = weight};

    if (dx)
        memset(dx, 0, N * D * sizeof *dx);
    if (targets == 0)
        return;
    tile.x = cpu_scratch(cpu, TILE * (2 * D + vocab));
    if (!tile.x)
        return;
    tile.dx = tile.x + TILE * D;
    tile.logits = tile.dx + TILE * D;
    tile.gradient = dx || dtable;
    tile.scale = gradient_scale;
    tile.vocab = vocab;
    for (size_t m = 0; m < targets;) {
        m = fill_tile(&tile, row, m, targets);
        for (size_t r = 0; r < tile.count; r++) {
            size_t n = (size_t)row[tile.first_target[r]];
            assert(n < N);
            memcpy(&tile.x[r * D], &x[n * D], D * sizeof *x);
        }
        struct matmul product = {.M = tile.count, .N = vocab, .K = D, .transpose_b = true};
        product.lda = product.ldb = D;
        product.ldc = vocab;
        product.alpha = 1;
        cpu_matmul(cpu, tile.logits, tile.x, table, &product);
        team_run(cpu->team, tile.count, 1, softmax_rows, &tile);
        if (tile.gradient)
            tile_backward(cpu, &tile, dx, dtable, table, row, D);
    }
}

/*
 * cross_entropy: from hidden rows to losses and gradients over a list of targets, see
 * kernels/ref/cross_entropy.c.
 *
 * Works on tiles of up to TILE_MAX different rows, whose logits are kept the other way round, [vocab,
 * step]: so the large table is read where it lies in every product, and the softmax of all rows is
 * one pass for the largest and one for the exponentials and their sums, in chunks of the vocabulary
 * that are dealt to the threads and folded in their order. What a row's gradient at its logits has in
 * common, weights / sum of exponentials, is a factor of the D values that come out of the product
 * instead of the vocabulary's that go into it. Weights are not negative.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/gemm.h"
#include "kernels/cpu/ops/vector.h"

#include <assert.h>
#include <string.h>

#define TILE_MAX 256 /* rows: 18 MB at 16384 pieces and 768 wide, products' own space included 22 */
#define CHUNK 64     /* of the vocabulary */

struct tile {
    float *x, *dx; /* [step,D]: the tile's hidden rows, 0 past the last; [size,D]: gradients */
    float *logits; /* [vocab,step]; then exponentials; then the gradient without its factor */
    float *chunk;  /* [chunks,step]: each chunk's largest logits, then its sums */
    float *largest, *total, *factor; /* [step] */
    float *space;                    /* of the products */
    size_t first_target[TILE_MAX + 1];
    size_t size, step, count; /* rows it has room for, rounded up to LANES; rows in it */
    bool gradient;

    float *loss, *hit;
    const uint32_t *label;
    const float *weight;
    float scale;
    size_t vocab, D;
};

/* ---- softmax --------------------------------------------------------------------------------- */

static size_t chunk_end(const struct tile *tile, size_t chunk)
{
    size_t end = (chunk + 1) * CHUNK;
    return end < tile->vocab ? end : tile->vocab;
}

static size_t chunk_count(const struct tile *tile)
{
    return (tile->vocab + CHUNK - 1) / CHUNK;
}

static void larger_of_each(float *restrict most, const float *restrict values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        most[i] = values[i] > most[i] ? values[i] : most[i];
}

static void find_largest(void *context, size_t begin, size_t end, size_t part)
{
    const struct tile *tile = context;
    const size_t step = tile->step;

    (void)part;
    for (size_t c = begin; c < end; c++) {
        float *most = &tile->chunk[c * step];
        memcpy(most, &tile->logits[c * CHUNK * step], step * sizeof *most);
        for (size_t w = c * CHUNK + 1; w < chunk_end(tile, c); w++)
            larger_of_each(most, &tile->logits[w * step], step);
    }
}

static void exp_and_add(float *restrict sum, float *restrict values, const float *restrict largest,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = vector_exp(values[i] - largest[i]);
        sum[i] += values[i];
    }
}

static void exponentials(void *context, size_t begin, size_t end, size_t part)
{
    const struct tile *tile = context;
    const size_t step = tile->step;

    (void)part;
    for (size_t c = begin; c < end; c++) {
        float *sum = &tile->chunk[c * step];
        memset(sum, 0, step * sizeof *sum);
        for (size_t w = c * CHUNK; w < chunk_end(tile, c); w++)
            exp_and_add(sum, &tile->logits[w * step], tile->largest, step);
    }
}

/* Whether the label has the largest logit of row r and none before it has. */
static bool is_first_of_largest(const struct tile *tile, size_t r, size_t label)
{
    const float largest = tile->largest[r];
    bool first = tile->logits[label * tile->step + r] == largest;

    for (size_t c = 0; first && c < label / CHUNK; c++)
        first = tile->chunk[c * tile->step + r] != largest;
    for (size_t w = label / CHUNK * CHUNK; first && w < label; w++)
        first = tile->logits[w * tile->step + r] != largest;
    return first;
}

/* What takes the logits themselves, before the exponentials take their place. */
static void start_losses(struct tile *tile)
{
    memcpy(tile->largest, tile->chunk, tile->step * sizeof *tile->largest);
    for (size_t c = 1; c < chunk_count(tile); c++)
        larger_of_each(tile->largest, &tile->chunk[c * tile->step], tile->step);
    for (size_t r = 0; r < tile->count; r++) {
        for (size_t m = tile->first_target[r]; m < tile->first_target[r + 1]; m++) {
            size_t label = tile->label[m];
            assert(label < tile->vocab);
            tile->loss[m] = tile->largest[r] - tile->logits[label * tile->step + r];
            tile->hit[m] = is_first_of_largest(tile, r, label) ? 1.0f : 0.0f;
        }
    }
}

static void finish_losses(struct tile *tile)
{
    memset(tile->total, 0, tile->step * sizeof *tile->total);
    for (size_t c = 0; c < chunk_count(tile); c++)
        vector_add_scaled(tile->total, &tile->chunk[c * tile->step], 1, tile->step);
    for (size_t r = 0; r < tile->count; r++) {
        float total = tile->total[r], log_total = logf(total), weights = 0;
        size_t first = tile->first_target[r], past = tile->first_target[r + 1];

        for (size_t m = first; m < past; m++) {
            tile->loss[m] += log_total;
            weights += tile->weight[m];
        }
        tile->factor[r] = tile->scale * weights / total;
        for (size_t m = first; tile->gradient && weights != 0 && m < past; m++)
            tile->logits[tile->label[m] * tile->step + r] -= total * (tile->weight[m] / weights);
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Takes the next rows from target m on; returns the first target not taken. */
static size_t fill_tile(struct tile *tile, const int32_t *row, size_t m, size_t targets)
{
    tile->count = 0;
    while (m < targets && tile->count < tile->size) {
        tile->first_target[tile->count++] = m;
        for (m++; m < targets && row[m] == row[m - 1]; m++)
            ;
        assert(m == targets || row[m] > row[m - 1]);
    }
    tile->first_target[tile->count] = m;
    return m;
}

static struct matmul product_logits(const struct tile *tile)
{
    struct matmul s = {.M = tile->vocab, .N = tile->step, .K = tile->D, .alpha = 1};
    s.transpose_b = true;
    s.lda = s.ldb = tile->D;
    s.ldc = tile->step;
    return s;
}

static struct matmul product_dx(const struct tile *tile)
{
    struct matmul s = {.M = tile->count, .N = tile->D, .K = tile->vocab, .alpha = 1};
    s.transpose_a = true;
    s.lda = tile->step;
    s.ldb = s.ldc = tile->D;
    return s;
}

static struct matmul product_dtable(const struct tile *tile)
{
    struct matmul s = {.M = tile->vocab, .N = tile->D, .K = tile->count, .alpha = 1, .beta = 1};
    s.lda = tile->step;
    s.ldb = s.ldc = tile->D;
    return s;
}

static void tile_forward(struct cpu *cpu, struct tile *tile, const float *x, const float *table,
                         const int32_t *row)
{
    const struct matmul logits = product_logits(tile);
    const size_t D = tile->D;

    for (size_t r = 0; r < tile->step; r++) {
        if (r < tile->count)
            memcpy(&tile->x[r * D], &x[(size_t)row[tile->first_target[r]] * D], D * sizeof *x);
        else
            memset(&tile->x[r * D], 0, D * sizeof *x);
    }
    gemm_run(cpu, tile->logits, table, tile->x, &logits, tile->space);
    team_deal(cpu->team, chunk_count(tile), find_largest, tile);
    start_losses(tile);
    team_deal(cpu->team, chunk_count(tile), exponentials, tile);
    finish_losses(tile);
}

static void tile_backward(struct cpu *cpu, const struct tile *tile, float *dx, float *dtable,
                          const float *table, const int32_t *row)
{
    const size_t D = tile->D;

    if (dx) {
        const struct matmul to_dx = product_dx(tile);
        gemm_run(cpu, tile->dx, tile->logits, table, &to_dx, tile->space);
        for (size_t r = 0; r < tile->count; r++) {
            float *to = &dx[(size_t)row[tile->first_target[r]] * D];
            for (size_t d = 0; d < D; d++)
                to[d] = tile->factor[r] * tile->dx[r * D + d];
        }
    }
    if (dtable) {
        const struct matmul to_dtable = product_dtable(tile);
        for (size_t r = 0; r < tile->count; r++)
            vector_scale(&tile->x[r * D], tile->factor[r], D);
        gemm_run(cpu, dtable, tile->logits, tile->x, &to_dtable, tile->space);
    }
}

struct layout {
    float *scratch; /* NULL: only counts */
    size_t used;
};

static float *take(struct layout *layout, size_t count)
{
    float *taken = layout->scratch ? layout->scratch + layout->used : NULL;
    layout->used += (count + LANES - 1) / LANES * LANES;
    return taken;
}

/* Lays the tile out in scratch (NULL: not yet); returns the floats it takes. */
static size_t tile_layout(struct tile *tile, float *scratch)
{
    const struct matmul products[] = {product_logits(tile), product_dx(tile), product_dtable(tile)};
    const size_t step = tile->step, D = tile->D;
    size_t most = 0;
    struct layout space = {scratch, 0};

    for (size_t i = 0; i < (tile->gradient ? 3 : 1); i++)
        most = gemm_space(&products[i]) > most ? gemm_space(&products[i]) : most;
    tile->x = take(&space, step * D);
    tile->dx = take(&space, step * D);
    tile->logits = take(&space, tile->vocab * step);
    tile->chunk = take(&space, chunk_count(tile) * step);
    tile->largest = take(&space, step);
    tile->total = take(&space, step);
    tile->factor = take(&space, step);
    tile->space = take(&space, most);
    return space.used;
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
    assert(row[0] >= 0 && (size_t)row[targets - 1] < N);
    /* Tiles of about one size: a short one reads as much of the table as a full one. */
    size_t tiles = (targets + TILE_MAX - 1) / TILE_MAX;
    tile.size = tile.count = (targets + tiles - 1) / tiles;
    tile.step = (tile.size + LANES - 1) / LANES * LANES;
    tile.gradient = dx || dtable;
    tile.scale = gradient_scale;
    tile.vocab = vocab;
    tile.D = D;
    float *scratch = cpu_scratch(cpu, tile_layout(&tile, NULL));
    if (!scratch)
        return;
    (void)tile_layout(&tile, scratch); /* as large as before */
    for (size_t m = 0; m < targets;) {
        m = fill_tile(&tile, row, m, targets);
        tile_forward(cpu, &tile, x, table, row);
        if (tile.gradient)
            tile_backward(cpu, &tile, dx, dtable, table, row);
    }
}

/*
 * merge: a frozen matrix with a low-rank update on its grid, see kernels/ref/merge.c.
 *
 * One pass over tiles small enough for the second-level cache: a row's elements are converted, the
 * update is added while they are there, then the tile is rounded where it stands. A tile is a
 * group's rows and some columns, or whole rows where the groups lie along them. Every element is
 * made in the same way whichever tile it is in.
 *
 * Numerics  f32; the sum over the rank ascends, as fused multiply-adds where the level has them.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/quant.h"
#include "kernels/cpu/ops/storage.h"

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX__)
#define WIDTH 8
#else
#define WIDTH 4
#endif

#define VECTORS 4 /* sums kept in registers at once */
#define TILE_ROWS 128
#define TILE_COLUMNS 64
#define ROW_TILE 16 /* rows of a tile where groups lie along the rows */

typedef float vector __attribute__((vector_size(WIDTH * sizeof(float))));

struct merge {
    float *y;
    const struct table *base;
    const float *A, *B;
    float scale;
    size_t rows, cols, rank;
    bool columns;
    size_t tile_rows, tile_cols, tiles_across;
};

/* y += scale A[row,:] B[:, first ...] over `count` columns. */
static void add_update(const struct merge *m, float *y, const float *A, size_t first, size_t count)
{
    const size_t rank = m->rank, cols = m->cols, block = VECTORS * WIDTH;
    const float *B = m->B + first;
    size_t c = 0;

    for (; c + block <= count; c += block) {
        vector sum[VECTORS] = {{0}}, value;

        for (size_t r = 0; r < rank; r++)
            for (size_t k = 0; k < VECTORS; k++) {
                memcpy(&value, &B[r * cols + c + k * WIDTH], sizeof value);
                sum[k] += value * A[r];
            }
        for (size_t k = 0; k < VECTORS; k++) {
            memcpy(&value, &y[c + k * WIDTH], sizeof value);
            value += sum[k] * m->scale;
            memcpy(&y[c + k * WIDTH], &value, sizeof value);
        }
    }
    for (; c < count; c++) {
        float sum = 0;

        for (size_t r = 0; r < rank; r++)
            sum += B[r * cols + c] * A[r];
        y[c] += sum * m->scale;
    }
}

/* While a tile is worked on, the one to its right is fetched: a row's few lines follow no pattern
 * that the processor sees. */
static void merge_tile(const struct merge *m, size_t row, size_t column)
{
    const size_t right = column + m->tile_cols;
    const size_t rows = m->rows - row < m->tile_rows ? m->rows - row : m->tile_rows;
    const size_t cols = m->cols - column < m->tile_cols ? m->cols - column : m->tile_cols;
    float *y = &m->y[row * m->cols + column];

    for (size_t i = 0; i < rows; i++) {
        if (right < m->cols)
            storage_prefetch(m->base, (row + i) * m->cols + right,
                             m->cols - right < m->tile_cols ? m->cols - right : m->tile_cols);
        storage_read(&y[i * m->cols], m->base, (row + i) * m->cols + column, cols);
        if (m->rank > 0)
            add_update(m, &y[i * m->cols], &m->A[(row + i) * m->rank], column, cols);
    }
    if (!m->base->codebook)
        return;
    if (m->columns)
        quant_round_code_columns(y, rows, cols, m->cols, m->base->codebook);
    else
        quant_round_code_rows(y, y, rows, cols, m->base->codebook);
}

static void merge_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct merge *m = context;

    (void)part;
    for (size_t t = begin; t < end; t++)
        merge_tile(m, t / m->tiles_across * m->tile_rows, t % m->tiles_across * m->tile_cols);
}

void cpu_merge(struct cpu *cpu, float *y, const struct table *base, const float *A, const float *B,
               float scale, size_t rows, size_t cols, size_t rank, bool columns)
{
    struct merge m = {y, base, A, B, scale, rows, cols, rank, columns, 0, 0, 0};

    m.tile_rows = !columns ? ROW_TILE : base->codebook ? base->codebook->group : TILE_ROWS;
    m.tile_cols = columns ? TILE_COLUMNS : cols;
    m.tiles_across = (cols + m.tile_cols - 1) / m.tile_cols;
    team_run(cpu->team, (rows + m.tile_rows - 1) / m.tile_rows * m.tiles_across, 2, merge_tiles,
             &m);
}

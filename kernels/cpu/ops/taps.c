/*
 * taps: a causal convolution along ancestors, see kernels/ref/taps.c.
 *
 * Forward is shared out by rows. Backward scatters to ancestors and so is shared out by columns,
 * tile by tile: dx adds in the order of n, dtaps in blocks of rows.
 */
#include "kernels/cpu/ops/taps.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/tree.h"

#include <string.h>

#define TILE 64       /* columns worked on together */
#define BLOCK_ROWS 64 /* rows of one partial sum of dtaps */

struct taps {
    float *y, *dtaps; /* y or dx */
    const float *x, *dy, *taps;
    const struct tree *tree;
    size_t C, tap_count, dilation;
};

void taps_row(float *y, const float *x, const float *taps, const struct tree *tree, size_t n,
              size_t C, size_t tap_count, size_t dilation)
{
    const float *restrict here = &x[n * C];
    float *restrict out = y;

    for (size_t c = 0; c < C; c++)
        out[c] = taps[c] * here[c];
    for (size_t j = 1; j < tap_count; j++) {
        int32_t m = tree_ancestor(tree, n, j * dilation);
        if (m < 0)
            break;
        const float *restrict above = &x[(size_t)m * C], *restrict tap = &taps[j * C];
        for (size_t c = 0; c < C; c++)
            out[c] += tap[c] * above[c];
    }
}

static void taps_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct taps *a = context;

    (void)part;
    for (size_t n = begin; n < end; n++)
        taps_row(&a->y[n * a->C], a->x, a->taps, a->tree, n, a->C, a->tap_count, a->dilation);
}

void cpu_taps_forward(struct cpu *cpu, float *y, const float *x, const float *taps,
                      const struct tree *tree, size_t C, size_t tap_count, size_t dilation)
{
    struct taps a = {.y = y, .x = x, .taps = taps, .tree = tree};

    a.C = C;
    a.tap_count = tap_count;
    a.dilation = dilation;
    if (tap_count == 0) {
        memset(y, 0, tree->token_count * C * sizeof *y);
        return;
    }
    cpu_run_rows(cpu, tree->token_count, C * tap_count, taps_rows, &a);
}

/* dx of columns [begin, end). */
static void scatter_columns(const struct taps *a, size_t begin, size_t end)
{
    size_t C = a->C, N = a->tree->token_count;

    for (size_t n = 0; n < N; n++)
        memset(&a->y[n * C + begin], 0, (end - begin) * sizeof *a->y);
    for (size_t n = 0; n < N; n++) {
        const float *restrict dy = &a->dy[n * C];
        for (size_t j = 0; j < a->tap_count; j++) {
            int32_t m = tree_ancestor(a->tree, n, j * a->dilation);
            if (m < 0)
                break;
            float *restrict dx = &a->y[(size_t)m * C];
            const float *restrict tap = &a->taps[j * C];
            for (size_t c = begin; c < end; c++)
                dx[c] += tap[c] * dy[c];
        }
    }
}

/* dtaps of tap j, columns [begin, end), at most TILE. */
static void sum_tap(const struct taps *a, size_t j, size_t begin, size_t end)
{
    size_t C = a->C, N = a->tree->token_count, width = end - begin;
    float total[TILE] = {0};

    for (size_t first = 0; first < N; first += BLOCK_ROWS) {
        size_t past = first + BLOCK_ROWS < N ? first + BLOCK_ROWS : N;
        float sum[TILE] = {0};
        for (size_t n = first; n < past; n++) {
            int32_t m = tree_ancestor(a->tree, n, j * a->dilation);
            if (m < 0)
                continue;
            const float *dy = &a->dy[n * C + begin], *x = &a->x[(size_t)m * C + begin];
            for (size_t c = 0; c < width; c++)
                sum[c] += dy[c] * x[c];
        }
        for (size_t c = 0; c < width; c++)
            total[c] += sum[c];
    }
    for (size_t c = 0; c < width; c++)
        a->dtaps[j * C + begin + c] += total[c];
}

static void taps_columns(void *context, size_t begin, size_t end, size_t part)
{
    const struct taps *a = context;

    (void)part;
    for (size_t first = begin; first < end; first += TILE) {
        size_t past = first + TILE < end ? first + TILE : end;
        scatter_columns(a, first, past);
        for (size_t j = 0; a->dtaps && j < a->tap_count; j++)
            sum_tap(a, j, first, past);
    }
}

void cpu_taps_backward(struct cpu *cpu, float *dx, float *dtaps, const float *dy, const float *x,
                       const float *taps, const struct tree *tree, size_t C, size_t tap_count,
                       size_t dilation)
{
    struct taps a = {dx, dtaps, x, dy, taps, tree, C, tap_count, dilation};
    team_run(cpu->team, C, 16, taps_columns, &a);
}

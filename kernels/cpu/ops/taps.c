/*
 * taps: a causal convolution along ancestors, see kernels/ref/taps.c.
 *
 * Rows, forward and backward: a row of dx is a sum over the descendants that the taps reach, which
 * in a chain are the rows that follow. dtaps is shared out by columns and adds in blocks of rows.
 */
#include "kernels/cpu/ops/taps.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/tree.h"
#include "kernels/cpu/ops/wide.h"

#include <assert.h>
#include <string.h>

#define TILE 64       /* columns worked on together */
#define BLOCK_ROWS 64 /* rows of one partial sum of dtaps */
#define TOGETHER 4    /* taps added up in registers */

struct taps {
    float *y, *dtaps; /* y or dx */
    const float *x, *dy, *taps;
    const struct tree *tree;
    size_t C, tap_count, dilation;
};

/* y = sum_j taps[j] x[j], or that on top of y; `count` is a constant where this is called. */
WIDE_INLINE void add_rows(float *y, const float *const *x, const float *taps, size_t C,
                          size_t count, bool add)
{
    size_t c = 0;

    for (; c + WIDE <= C; c += WIDE) {
        wide sum = {0};
        if (add)
            sum = wide_load(&y[c]);
        for (size_t j = 0; j < count; j++)
            sum += wide_load(&taps[j * C + c]) * wide_load(&x[j][c]);
        wide_store(&y[c], sum);
    }
    for (; c < C; c++) {
        float sum = add ? y[c] : 0.0f;
        for (size_t j = 0; j < count; j++)
            sum += taps[j * C + c] * x[j][c];
        y[c] = sum;
    }
}

static void weigh(float *y, const float *const *x, const float *taps, size_t C, size_t count,
                  bool add)
{
    static_assert(TOGETHER == 4, "a case for each count");
    if (count == 1)
        add_rows(y, x, taps, C, 1, add);
    else if (count == 2)
        add_rows(y, x, taps, C, 2, add);
    else if (count == 3)
        add_rows(y, x, taps, C, 3, add);
    else if (count == 4)
        add_rows(y, x, taps, C, 4, add);
}

void taps_row(float *y, const float *x, const float *taps, const struct tree *tree, size_t n,
              size_t C, size_t tap_count, size_t dilation)
{
    const float *row[TOGETHER];
    int32_t m = (int32_t)n;

    for (size_t j = 0, count = 0; j < tap_count && m >= 0; j += count, count = 0) {
        for (; count < TOGETHER && j + count < tap_count; count++) {
            m = tree_ancestor(tree, n, (j + count) * dilation);
            if (m < 0)
                break;
            row[count] = &x[(size_t)m * C];
        }
        weigh(y, row, &taps[j * C], C, count, j > 0);
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

/* dx of m from all descendants up to `reach` below it, ascending. */
static void gather_branches(float *dx, const struct taps *a, size_t m, size_t reach)
{
    const struct tree *tree = a->tree;
    const size_t end = (size_t)tree->end[m];

    memset(dx, 0, a->C * sizeof *dx);
    for (size_t n = m; n < end;) {
        const size_t below = (size_t)(tree->depth[n] - tree->depth[m]);
        const float *dy = &a->dy[n * a->C];

        if (below > reach) { /* nor does m reach anything below n */
            n = (size_t)tree->end[n];
            continue;
        }
        if (below % a->dilation == 0)
            weigh(dx, &dy, &a->taps[below / a->dilation * a->C], a->C, 1, true);
        n++;
    }
}

static void gather_row(const struct taps *a, size_t m)
{
    const struct tree *tree = a->tree;
    const size_t C = a->C, below = (size_t)tree->end[m] - m - 1;
    const size_t most = (a->tap_count - 1) * a->dilation, reach = most < below ? most : below;
    float *dx = &a->y[m * C];
    const float *row[TOGETHER];

    /* Down to the last token in reach all are children of the one before, and only children. */
    if (tree->run[m + reach] > (int32_t)m || tree->end[m + reach] != tree->end[m]) {
        gather_branches(dx, a, m, most);
        return;
    }
    for (size_t j = 0, count = 0; j < a->tap_count && j * a->dilation <= reach; j += count) {
        for (count = 0; count < TOGETHER && j + count < a->tap_count; count++) {
            if ((j + count) * a->dilation > reach)
                break;
            row[count] = &a->dy[(m + (j + count) * a->dilation) * C];
        }
        weigh(dx, row, &a->taps[j * C], C, count, j > 0);
    }
}

static void gather_rows(void *context, size_t begin, size_t end, size_t part)
{
    (void)part;
    for (size_t m = begin; m < end; m++)
        gather_row(context, m);
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
        for (size_t j = 0; j < a->tap_count; j++)
            sum_tap(a, j, first, past);
    }
}

void cpu_taps_backward(struct cpu *cpu, float *dx, float *dtaps, const float *dy, const float *x,
                       const float *taps, const struct tree *tree, size_t C, size_t tap_count,
                       size_t dilation)
{
    struct taps a = {dx, dtaps, x, dy, taps, tree, C, tap_count, dilation};

    cpu_run_rows(cpu, tree->token_count, C * tap_count, gather_rows, &a);
    if (dtaps)
        team_run(cpu->team, C, 16, taps_columns, &a);
}

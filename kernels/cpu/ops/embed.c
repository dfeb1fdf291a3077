/*
 * embed: rows of tables by token, see kernels/ref/embed.c and kernels/ref/gather.c.
 *
 * Rows of frozen tables are converted and put on their grid here, some tokens at a time: codes are
 * found for several rows side by side.
 *
 * Forward is shared out by rows. Backward is shared out by columns, since two rows may hold the
 * same token: each column adds in the order of n.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/quant.h"
#include "kernels/cpu/ops/storage.h"

#include <string.h>

#define COLUMN_GRAIN 16 /* columns of a share: one cache line */
#define GATHERED 32     /* rows of tables that are put on their grid at once, or one token's */

struct embed {
    float *target;
    const float *source;
    const uint32_t *tokens;
    float scale;
    size_t N, D;
};

static void embed_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct embed *a = context;

    (void)part;
    for (size_t n = begin; n < end; n++) {
        const float *source = &a->source[(size_t)a->tokens[n] * a->D];
        float *target = &a->target[n * a->D];
        for (size_t d = 0; d < a->D; d++)
            target[d] = a->scale * source[d];
    }
}

void cpu_embed_forward(struct cpu *cpu, float *x, const float *table, const uint32_t *tokens,
                       float scale, size_t N, size_t D)
{
    struct embed a = {x, table, tokens, scale, N, D};
    cpu_run_rows(cpu, N, D, embed_rows, &a);
}

static void embed_columns(void *context, size_t begin, size_t end, size_t part)
{
    const struct embed *a = context;

    (void)part;
    for (size_t n = 0; n < a->N; n++) {
        float *target = &a->target[(size_t)a->tokens[n] * a->D];
        const float *source = &a->source[n * a->D];
        for (size_t d = begin; d < end; d++)
            target[d] += a->scale * source[d];
    }
}

void cpu_embed_backward(struct cpu *cpu, float *dtable, const float *dx, const uint32_t *tokens,
                        float scale, size_t N, size_t D)
{
    struct embed a = {dtable, dx, tokens, scale, N, D};
    if (dtable)
        team_run(cpu->team, D, COLUMN_GRAIN, embed_columns, &a);
}

struct gather {
    float *target;
    const struct table *table; /* forward */
    const float *source;       /* backward */
    const int32_t *index;
    size_t N, tables, slots, sub;
    enum rounding rounding;
};

/* One token's rows, side by side. */
static void gather_token(const struct gather *a, size_t n)
{
    const size_t sub = a->sub;

    for (size_t t = 0; t < a->tables; t++) {
        const int32_t slot = a->index[n * a->tables + t];
        float *row = &a->target[(n * a->tables + t) * sub];

        if (slot < 0)
            memset(row, 0, sub * sizeof *row);
        else
            storage_read(row, a->table, (t * a->slots + (size_t)slot) * sub, sub);
    }
}

static void gather_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct gather *a = context;
    const size_t width = a->tables * a->sub, step = GATHERED / a->tables + 1;

    (void)part;
    for (size_t first = begin; first < end; first += step) {
        const size_t past = end - first < step ? end : first + step;
        float *rows = &a->target[first * width];

        for (size_t n = first; n < past; n++)
            gather_token(a, n);
        if (a->table->codebook)
            quant_round_code_rows(rows, rows, (past - first) * a->tables, a->sub,
                                  a->table->codebook);
        for (size_t n = first; n < past && a->rounding == ROUND_A8; n++)
            quant_round_a8(&a->target[n * width], &a->target[n * width], width);
    }
}

void cpu_gather_forward(struct cpu *cpu, float *y, const struct table *table, const int32_t *index,
                        size_t N, size_t tables, size_t slots, size_t sub, enum rounding rounding)
{
    struct gather a = {y, table, NULL, index, N, tables, slots, sub, rounding};
    cpu_run_rows(cpu, N, tables * sub, gather_rows, &a);
}

/* Columns [begin, end) of the side-by-side rows. */
static void gather_columns(void *context, size_t begin, size_t end, size_t part)
{
    const struct gather *a = context;
    size_t sub = a->sub;

    (void)part;
    for (size_t t = begin / sub; t * sub < end; t++) {
        size_t first = t * sub > begin ? 0 : begin - t * sub;
        size_t past = (t + 1) * sub < end ? sub : end - t * sub;
        for (size_t n = 0; n < a->N; n++) {
            int32_t slot = a->index[n * a->tables + t];
            if (slot < 0)
                continue;
            float *target = &a->target[(t * a->slots + (size_t)slot) * sub];
            const float *source = &a->source[(n * a->tables + t) * sub];
            for (size_t s = first; s < past; s++)
                target[s] += source[s];
        }
    }
}

void cpu_gather_backward(struct cpu *cpu, float *dtable, const float *dy, const int32_t *index,
                         size_t N, size_t tables, size_t slots, size_t sub)
{
    struct gather a = {dtable, NULL, dy, index, N, tables, slots, sub, ROUND_NONE};
    if (dtable)
        team_run(cpu->team, tables * sub, COLUMN_GRAIN, gather_columns, &a);
}

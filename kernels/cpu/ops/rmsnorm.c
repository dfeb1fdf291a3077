/*
 * rmsnorm: see kernels/ref/rmsnorm.c and kernels/ref/residual_norm.c.
 *
 * Rows are shared out in blocks; each block keeps its own sums of dgain (and dgate), added up in
 * the order of the blocks.
 */
#include "kernels/cpu/ops/norm.h"
#include "kernels/cpu/ops/quant.h"

#include <string.h>

struct norm {
    float *y, *r; /* dx for y in backward */
    const float *skip, *x, *dy, *gain, *kept_r;
    float *partial; /* [blocks, C + 1]: dgain, then dgate without s (1 - s); or NULL */
    size_t C;
    float s; /* of the gate, 1 without */
    enum rounding rounding;
    struct cpu_blocks blocks;
};

/* y = skip + (1 + gain) x scale, or without skip; returns the largest |y|. y may be x or skip. */
static float apply_norm(float *y, const float *skip, const float *x, const float *gain, float scale,
                        size_t C)
{
    wide most = {0};
    size_t i = 0;

    for (; i + WIDE <= C; i += WIDE) {
        wide value = (wide_load(&gain[i]) + 1.0f) * (wide_load(&x[i]) * scale);
        if (skip)
            value += wide_load(&skip[i]);
        wide_store(&y[i], value);
        most = wide_max(wide_abs(value), most);
    }
    float largest = wide_largest(most);
    for (; i < C; i++) {
        y[i] = (skip ? skip[i] : 0.0f) + (1.0f + gain[i]) * (x[i] * scale);
        largest = fabsf(y[i]) > largest ? fabsf(y[i]) : largest;
    }
    return largest;
}

static void norm_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct norm *a = context;
    size_t C = a->C;

    (void)part;
    for (size_t n = begin; n < end; n++) {
        const float *x = &a->x[n * C], *skip = a->skip ? &a->skip[n * C] : NULL;
        const float r = norm_inverse(x, C);
        float *y = &a->y[n * C];
        a->r[n] = r;
        const float largest = apply_norm(y, skip, x, a->gain, a->s * r, C);
        if (a->rounding == ROUND_A8)
            quant_round_a8_within(y, y, largest, C);
    }
}

static void add_row_to_partial(float *restrict dgain, float *dgate, const float *dy, const float *x,
                               const float *gain, float r, size_t C)
{
    for (size_t c = 0; c < C; c++)
        dgain[c] += dy[c] * x[c] * r;
    *dgate += r * norm_dot_gain(gain, dy, x, C);
}

static void norm_backward_blocks(void *context, size_t begin, size_t end, size_t part)
{
    const struct norm *a = context;
    size_t C = a->C;

    (void)part;
    for (size_t b = begin; b < end; b++) {
        float *partial = a->partial ? &a->partial[b * (C + 1)] : NULL;
        if (partial)
            memset(partial, 0, (C + 1) * sizeof *partial);
        for (size_t n = b * a->blocks.size; n < cpu_block_end(&a->blocks, b); n++) {
            const float *x = &a->x[n * C], *dy = &a->dy[n * C];
            if (partial)
                add_row_to_partial(partial, &partial[C], dy, x, a->gain, a->kept_r[n], C);
            norm_backward_row(&a->y[n * C], dy, x, a->gain, a->kept_r[n], a->s, C);
        }
    }
}

/* Adds s times the blocks' sums to dgain and s (1 - s) times the last column to dgate. */
static void add_norm_partials(const struct norm *a, float *dgain, float *dgate)
{
    size_t C = a->C;
    float *total = a->partial; /* block 0 takes the sum of all */

    for (size_t b = 1; b < a->blocks.count; b++)
        for (size_t c = 0; c <= C; c++)
            total[c] += a->partial[b * (C + 1) + c];
    for (size_t c = 0; dgain && c < C; c++)
        dgain[c] += a->s * total[c];
    if (dgate)
        dgate[0] += a->s * (1.0f - a->s) * total[C];
}

static void norm_backward(struct cpu *cpu, struct norm *a, float *dgain, float *dgate, size_t N)
{
    a->blocks = cpu_blocks(N);
    if (N == 0)
        return;
    if (dgain || dgate) {
        a->partial = cpu_scratch(cpu, a->blocks.count * (a->C + 1));
        if (!a->partial)
            return;
    }
    team_run(cpu->team, a->blocks.count, 1, norm_backward_blocks, a);
    if (a->partial)
        add_norm_partials(a, dgain, dgate);
}

void cpu_rmsnorm_forward(struct cpu *cpu, float *y, float *r, const float *x, const float *gain,
                         size_t N, size_t C, enum rounding rounding)
{
    struct norm a = {.y = y, .r = r, .x = x, .gain = gain, .C = C, .rounding = rounding};
    a.s = 1;
    cpu_run_rows(cpu, N, C, norm_rows, &a);
}

void cpu_rmsnorm_backward(struct cpu *cpu, float *dx, float *dgain, const float *dy, const float *x,
                          const float *gain, const float *r, size_t N, size_t C)
{
    struct norm a = {.y = dx, .x = x, .dy = dy, .gain = gain, .kept_r = r, .C = C, .s = 1};
    norm_backward(cpu, &a, dgain, NULL, N);
}

void cpu_residual_norm_forward(struct cpu *cpu, float *y, float *r, const float *skip,
                               const float *x, const float *gain, const float *gate, size_t N,
                               size_t C)
{
    struct norm a = {.y = y, .r = r, .skip = skip, .x = x, .gain = gain, .C = C};
    a.s = vector_sigmoid(gate[0]);
    cpu_run_rows(cpu, N, C, norm_rows, &a);
}

void cpu_residual_norm_backward(struct cpu *cpu, float *dx, float *dgain, float *dgate,
                                const float *dy, const float *x, const float *gain,
                                const float *gate, const float *r, size_t N, size_t C)
{
    struct norm a = {.y = dx, .x = x, .dy = dy, .gain = gain, .kept_r = r, .C = C};
    a.s = vector_sigmoid(gate[0]);
    norm_backward(cpu, &a, dgain, dgate, N);
}

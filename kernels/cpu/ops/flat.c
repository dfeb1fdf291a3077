/*
 * flat: ops on flat arrays, see kernels/ref/vector.c and kernels/ref/adamw.c.
 *
 * sum_squares adds blocks of fixed size in f32 and the blocks' sums in f64, in order.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"

#define SUM_BLOCK 4096

struct add_scaled {
    float *y;
    const float *x;
    float scale;
};

static void add_scaled_share(void *context, size_t begin, size_t end, size_t part)
{
    const struct add_scaled *a = context;

    (void)part;
    for (size_t i = begin; i < end; i++)
        a->y[i] += a->scale * a->x[i];
}

void cpu_add_scaled(struct cpu *cpu, float *y, const float *x, float scale, size_t count)
{
    struct add_scaled a = {y, x, scale};
    cpu_run_rows(cpu, count, 1, add_scaled_share, &a);
}

struct sum_squares {
    float *sums;
    const float *x;
    size_t count;
};

static void sum_squares_share(void *context, size_t begin, size_t end, size_t part)
{
    const struct sum_squares *a = context;

    (void)part;
    for (size_t b = begin; b < end; b++) {
        size_t first = b * SUM_BLOCK, left = a->count - first;
        a->sums[b] = vector_dot(&a->x[first], &a->x[first], left < SUM_BLOCK ? left : SUM_BLOCK);
    }
}

void cpu_sum_squares(struct cpu *cpu, float *sum, const float *x, size_t count)
{
    size_t blocks = (count + SUM_BLOCK - 1) / SUM_BLOCK;
    struct sum_squares a = {cpu_scratch(cpu, blocks + 1), x, count};
    double total = 0;

    if (!a.sums)
        return;
    cpu_run_rows(cpu, blocks, SUM_BLOCK, sum_squares_share, &a);
    for (size_t b = 0; b < blocks; b++)
        total += (double)a.sums[b];
    sum[0] = (float)total;
}

struct adamw_arrays {
    float *p, *m, *v;
    const float *g;
    const struct adamw *step;
};

static void adamw_share(void *context, size_t begin, size_t end, size_t part)
{
    const struct adamw_arrays *a = context;
    const struct adamw step = *a->step;
    const float keep1 = (float)step.beta1, take1 = (float)(1.0 - step.beta1);
    const float keep2 = (float)step.beta2, take2 = (float)(1.0 - step.beta2);
    float *restrict p = a->p, *restrict m = a->m, *restrict v = a->v;
    const float *restrict g = a->g;

    (void)part;
    for (size_t i = begin; i < end; i++) {
        float h = g[i] / step.gradient_divisor;
        m[i] = take1 * h + keep1 * m[i];
        v[i] = take2 * (h * h) + keep2 * v[i];
        float size = sqrtf(v[i] / step.correction2) + step.epsilon;
        float direction = m[i] / step.correction1 / size;
        p[i] -= step.learning_rate * (direction + step.weight_decay * p[i]);
    }
}

void cpu_adamw(struct cpu *cpu, float *p, float *m, float *v, const float *g,
               const struct adamw *step, size_t count)
{
    struct adamw_arrays a = {p, m, v, g, step};
    cpu_run_rows(cpu, count, 4, adamw_share, &a);
}

/*
 * lanes: a stream copied into n lanes, averaged at the end, see kernels/ref/lanes.c.
 */
#include "kernels/cpu/cpu.h"

struct lanes {
    float *target;
    const float *source;
    float divisor;
    size_t lanes, D;
};

/* lanes[i] = stream / divisor */
static void spread_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct lanes *a = context;
    size_t D = a->D;

    (void)part;
    for (size_t n = begin; n < end; n++)
        for (size_t i = 0; i < a->lanes; i++)
            for (size_t d = 0; d < D; d++)
                a->target[(n * a->lanes + i) * D + d] = a->source[n * D + d] / a->divisor;
}

/* stream = sum of lanes / divisor */
static void sum_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct lanes *a = context;
    size_t D = a->D;

    (void)part;
    for (size_t n = begin; n < end; n++) {
        const float *S = &a->source[n * a->lanes * D];
        float *restrict x = &a->target[n * D];
        for (size_t d = 0; d < D; d++)
            x[d] = S[d];
        for (size_t i = 1; i < a->lanes; i++)
            for (size_t d = 0; d < D; d++)
                x[d] += S[i * D + d];
        for (size_t d = 0; d < D; d++)
            x[d] /= a->divisor;
    }
}

void cpu_lanes_spread_forward(struct cpu *cpu, float *S, const float *x, size_t N, size_t lanes,
                              size_t D)
{
    struct lanes a = {S, x, 1, lanes, D};
    cpu_run_rows(cpu, N, lanes * D, spread_rows, &a);
}

void cpu_lanes_spread_backward(struct cpu *cpu, float *dx, const float *dS, size_t N, size_t lanes,
                               size_t D)
{
    struct lanes a = {dx, dS, 1, lanes, D};
    cpu_run_rows(cpu, N, lanes * D, sum_rows, &a);
}

void cpu_lanes_mean_forward(struct cpu *cpu, float *x, const float *S, size_t N, size_t lanes,
                            size_t D)
{
    struct lanes a = {x, S, (float)lanes, lanes, D};
    cpu_run_rows(cpu, N, lanes * D, sum_rows, &a);
}

void cpu_lanes_mean_backward(struct cpu *cpu, float *dS, const float *dx, size_t N, size_t lanes,
                             size_t D)
{
    struct lanes a = {dS, dx, (float)lanes, lanes, D};
    cpu_run_rows(cpu, N, lanes * D, spread_rows, &a);
}

/*
 * hyper_mix: the input of a block from kept coefficients, see kernels/ref/hyper.c.
 */
#include "kernels/cpu/ops/hyper_mix.h"

#include "kernels/cpu/cpu.h"

struct mix_call {
    float *u;
    const float *S, *h;
    size_t lanes, D;
};

static void mix_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct mix_call *a = context;
    const size_t n = a->lanes, D = a->D, M = 2 * n + n * n;

    (void)part;
    for (size_t token = begin; token < end; token++)
        hyper_mix_row(&a->u[token * D], &a->S[token * n * D], &a->h[token * M], n, D);
}

void cpu_hyper_mix(struct cpu *cpu, float *u, const float *S, const float *h, size_t N,
                   size_t lanes, size_t D)
{
    struct mix_call a = {.u = u, .S = S, .h = h, .lanes = lanes, .D = D};

    cpu_run_rows(cpu, N, lanes * D, mix_rows, &a);
}

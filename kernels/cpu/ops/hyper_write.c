/*
 * hyper_write: the lanes mixed and the block's output spread over them, see kernels/ref/hyper.c.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"

struct write_call {
    float *T, *dS, *dy, *dh;
    const float *dT, *S, *h, *y, *u;
    size_t lanes, D;
};

static void write_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct write_call *a = context;
    const size_t n = a->lanes, D = a->D, M = 2 * n + n * n;

    (void)part;
    for (size_t token = begin; token < end; token++) {
        const float *h = &a->h[token * M], *y = &a->y[token * D], *u = &a->u[token * D];
        const float *S = &a->S[token * n * D];
        for (size_t i = 0; i < n; i++) {
            float *restrict T = &a->T[(token * n + i) * D];
            for (size_t d = 0; d < D; d++)
                T[d] = h[n + i] * (y[d] - u[d]);
            for (size_t j = 0; j < n; j++)
                vector_add_scaled(T, &S[j * D], h[2 * n + i * n + j], D);
        }
    }
}

void cpu_hyper_write_forward(struct cpu *cpu, float *T, const float *S, const float *h,
                             const float *y, const float *u, size_t N, size_t lanes, size_t D)
{
    struct write_call a = {.T = T, .S = S, .h = h, .y = y, .u = u, .lanes = lanes, .D = D};
    cpu_run_rows(cpu, N, lanes * lanes * D, write_rows, &a);
}

static void write_backward_row(const struct write_call *a, size_t token)
{
    const size_t n = a->lanes, D = a->D, M = 2 * n + n * n;
    const float *dT = &a->dT[token * n * D], *S = &a->S[token * n * D], *h = &a->h[token * M];
    const float *y = &a->y[token * D], *u = &a->u[token * D];
    float *dy = &a->dy[token * D], *dh = &a->dh[token * M];

    for (size_t d = 0; d < D; d++)
        dy[d] = y[d] - u[d]; /* for a moment: the block's share */
    for (size_t i = 0; i < n; i++) {
        dh[i] = 0;
        dh[n + i] = vector_dot(&dT[i * D], dy, D);
        for (size_t j = 0; j < n; j++)
            dh[2 * n + i * n + j] = vector_dot(&dT[i * D], &S[j * D], D);
    }
    for (size_t d = 0; d < D; d++)
        dy[d] = h[n] * dT[d];
    for (size_t i = 1; i < n; i++)
        vector_add_scaled(dy, &dT[i * D], h[n + i], D);
    for (size_t j = 0; j < n; j++) {
        float *restrict dS = &a->dS[(token * n + j) * D];
        for (size_t d = 0; d < D; d++)
            dS[d] = h[2 * n + j] * dT[d];
        for (size_t i = 1; i < n; i++)
            vector_add_scaled(dS, &dT[i * D], h[2 * n + i * n + j], D);
    }
}

static void write_backward_rows(void *context, size_t begin, size_t end, size_t part)
{
    (void)part;
    for (size_t token = begin; token < end; token++)
        write_backward_row(context, token);
}

void cpu_hyper_write_backward(struct cpu *cpu, float *dS, float *dy, float *dh, const float *dT,
                              const float *S, const float *h, const float *y, const float *u,
                              size_t N, size_t lanes, size_t D)
{
    struct write_call a = {.dS = dS, .dy = dy, .dh = dh, .dT = dT, .S = S, .h = h, .y = y};

    a.u = u;
    a.lanes = lanes;
    a.D = D;
    cpu_run_rows(cpu, N, lanes * lanes * D * 2, write_backward_rows, &a);
}

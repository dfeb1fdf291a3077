/*
 * gate: a branch times the sigmoid of another, see kernels/ref/gate.c.
 *
 * The sigmoids of a few values at a time stand apart, so that outputs may be inputs without
 * keeping the compiler from SIMD.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/quant.h"
#include "kernels/cpu/ops/vector.h"

#define STRIP 64

struct gate {
    float *y, *dx, *dgate;
    const float *dy, *x, *gate;
    size_t C;
    enum rounding rounding;
};

static void sigmoids(float *restrict s, const float *restrict gate, size_t count)
{
    for (size_t i = 0; i < count; i++)
        s[i] = vector_sigmoid(gate[i]);
}

static void gate_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct gate *a = context;
    const size_t C = a->C, past = end * C;
    const float *x = a->x;
    float *y = a->y, s[STRIP];

    (void)part;
    for (size_t i = begin * C; i < past; i += STRIP) {
        size_t count = past - i < STRIP ? past - i : STRIP;
        sigmoids(s, &a->gate[i], count);
        for (size_t k = 0; k < count; k++)
            y[i + k] = x[i + k] * s[k];
    }
    for (size_t n = begin; a->rounding == ROUND_A8 && n < end; n++)
        quant_round_a8(&y[n * C], &y[n * C], C);
}

void cpu_gate_forward(struct cpu *cpu, float *y, const float *x, const float *gate, size_t N,
                      size_t C, enum rounding rounding)
{
    struct gate a = {.y = y, .x = x, .gate = gate, .C = C, .rounding = rounding};
    cpu_run_rows(cpu, N, C * 8, gate_rows, &a);
}

static void gate_backward_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct gate *a = context;
    const size_t past = end * a->C;
    const float *x = a->x, *dy = a->dy;
    float *dx = a->dx, *dgate = a->dgate, s[STRIP];

    (void)part;
    for (size_t i = begin * a->C; i < past; i += STRIP) {
        size_t count = past - i < STRIP ? past - i : STRIP;
        sigmoids(s, &a->gate[i], count);
        for (size_t k = 0; k < count; k++) {
            float d = dy[i + k] * s[k];
            dgate[i + k] = d * x[i + k] * (1.0f - s[k]);
            dx[i + k] = d;
        }
    }
}

void cpu_gate_backward(struct cpu *cpu, float *dx, float *dgate, const float *dy, const float *x,
                       const float *gate, size_t N, size_t C)
{
    struct gate a = {.dx = dx, .dgate = dgate, .dy = dy, .x = x, .gate = gate, .C = C};
    cpu_run_rows(cpu, N, C * 8, gate_backward_rows, &a);
}

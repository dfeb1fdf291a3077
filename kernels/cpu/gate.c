/*
 * gate: a branch times the sigmoid of another, see kernels/ref/gate.c.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/vector.h"

struct gate {
    float *y, *dx, *dgate;
    const float *dy, *x, *gate;
    size_t C;
    enum rounding rounding;
};

static void gate_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct gate *a = context;
    size_t C = a->C;

    (void)part;
    for (size_t i = begin * C; i < end * C; i++)
        a->y[i] = a->x[i] * vector_sigmoid(a->gate[i]);
    for (size_t n = begin; a->rounding == ROUND_A8 && n < end; n++)
        quant_round_a8(&a->y[n * C], &a->y[n * C], C);
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
    size_t C = a->C;

    (void)part;
    for (size_t i = begin * C; i < end * C; i++) {
        float s = vector_sigmoid(a->gate[i]), d = a->dy[i] * s;
        a->dgate[i] = d * a->x[i] * (1.0f - s);
        a->dx[i] = d;
    }
}

void cpu_gate_backward(struct cpu *cpu, float *dx, float *dgate, const float *dy, const float *x,
                       const float *gate, size_t N, size_t C)
{
    struct gate a = {.dx = dx, .dgate = dgate, .dy = dy, .x = x, .gate = gate, .C = C};
    cpu_run_rows(cpu, N, C * 8, gate_backward_rows, &a);
}

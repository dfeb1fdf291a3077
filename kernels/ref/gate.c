/*
 * gate: a branch times the sigmoid of another.
 *
 *   y[n,c]     = round(x[n,c] s[n,c]),   s = sigmoid(gate)
 *   dx[n,c]    = dy[n,c] s[n,c]
 *   dgate[n,c] = dy[n,c] x[n,c] s[n,c] (1 - s[n,c])
 *
 * Shapes    All [N,C]; a row is rounded with one scale.
 * Writes    y, dx, dgate are set. Any output may be any input of its shape but dx not x or gate.
 * Numerics  f32 in and out; the sigmoid f64 in ref; the gradient passes the rounding.
 * Source    Needle architecture.py, MultiHeadAttention (gate_proj).
 */
#include "kernels/ref/ref.h"

void ref_gate_forward(float *y, const float *x, const float *gate, size_t N, size_t C,
                      enum rounding rounding)
{
    for (size_t n = 0; n < N; n++) {
        for (size_t c = 0; c < C; c++)
            y[n * C + c] = (float)(x[n * C + c] * ref_sigmoid(gate[n * C + c]));
        if (rounding == ROUND_A8)
            ref_round_a8_row(&y[n * C], &y[n * C], C);
    }
}

void ref_gate_backward(float *dx, float *dgate, const float *dy, const float *x, const float *gate,
                       size_t N, size_t C)
{
    for (size_t i = 0; i < N * C; i++) {
        const double s = ref_sigmoid(gate[i]), d = dy[i];

        dgate[i] = (float)(d * x[i] * s * (1.0 - s));
        dx[i] = (float)(d * s);
    }
}

/*
 * sinkhorn: see kernels/ref/hyper.c.
 *
 *   half-round:  L = L - logsumexp of its line        line: a row, then a column
 *   backward:    dL = dL - exp(L) (sum of dL over the line), L after the half-round
 *
 * Shapes    [n,n,LANES], the tokens side by side.
 * Numerics  f32; the largest of a line is taken out before exp.
 * Source    Sinkhorn and Knopp 1967.
 */
#include "kernels/cpu/ops/sinkhorn.h"

/* One line: n rows of LANES values, `step` rows apart. */
static void normalise_line(float *L, size_t n, size_t step)
{
    float largest[LANES], total[LANES] = {0};

    memcpy(largest, L, sizeof largest);
    for (size_t j = 1; j < n; j++) {
        const float *row = &L[j * step * LANES];
        for (size_t l = 0; l < LANES; l++)
            largest[l] = row[l] > largest[l] ? row[l] : largest[l];
    }
    for (size_t j = 0; j < n; j++) {
        const float *row = &L[j * step * LANES];
        for (size_t l = 0; l < LANES; l++)
            total[l] += vector_exp(row[l] - largest[l]);
    }
    for (size_t l = 0; l < LANES; l++)
        largest[l] += vector_log(total[l]);
    for (size_t j = 0; j < n; j++) {
        float *row = &L[j * step * LANES];
        for (size_t l = 0; l < LANES; l++)
            row[l] -= largest[l];
    }
}

void sinkhorn_forward(float *L, float *states, size_t n)
{
    for (size_t half = 0; half < SINKHORN_HALF_ROUNDS; half++) {
        for (size_t i = 0; i < n; i++) {
            if (half % 2 == 0)
                normalise_line(&L[i * n * LANES], n, 1);
            else
                normalise_line(&L[i * LANES], n, n);
        }
        if (states)
            memcpy(&states[half * n * n * LANES], L, n * n * LANES * sizeof *L);
    }
}

static void line_backward(float *dL, const float *L, size_t n, size_t step)
{
    float total[LANES] = {0};

    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < LANES; l++)
            total[l] += dL[j * step * LANES + l];
    for (size_t j = 0; j < n; j++) {
        size_t at = j * step * LANES;
        for (size_t l = 0; l < LANES; l++)
            dL[at + l] -= vector_exp(L[at + l]) * total[l];
    }
}

void sinkhorn_backward(float *dL, const float *states, size_t n)
{
    for (size_t half = SINKHORN_HALF_ROUNDS; half-- > 0;) {
        const float *L = &states[half * n * n * LANES];
        for (size_t i = 0; i < n; i++) {
            if (half % 2 == 0)
                line_backward(&dL[i * n * LANES], &L[i * n * LANES], n, 1);
            else
                line_backward(&dL[i * LANES], &L[i * LANES], n, n);
        }
    }
}

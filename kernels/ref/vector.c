/*
 * vector: sums over flat arrays.
 *
 *   add_scaled:   y[i] += scale x[i]
 *   sum_squares:  sum[0] = sum_i x[i]^2
 *
 * Shapes    x y [count]; sum [1].
 * Writes    y accumulates; sum is set.
 * Numerics  add_scaled one f32 multiplication and addition; the sum f64, in the order of i.
 * Source    Plain.
 */
#include "kernels/ref/ref.h"

void ref_add_scaled(float *y, const float *x, float scale, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] += scale * x[i];
}

void ref_sum_squares(float *sum, const float *x, size_t count)
{
    double total = 0;

    for (size_t i = 0; i < count; i++)
        total += (double)x[i] * x[i];
    sum[0] = (float)total;
}

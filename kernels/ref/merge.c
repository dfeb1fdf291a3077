/*
 * merge: a frozen matrix with a low-rank update, put on its grid.
 *
 *   y[i,j] = round(base[i,j] + scale sum_r A[i,r] B[r,j])
 *
 * Shapes    base y [rows,cols]; A [rows,rank]; B [rank,cols]; groups of the grid along the last axis,
 *           or (columns) the first: a kernel's inputs. Without a codebook nothing is rounded.
 * Writes    y is set; it is not the base.
 * Numerics  base converted to f32 exactly; the sum in f64; then round_code of the f32 value, bit for
 *           bit. rank 0 gives the base itself.
 * Source    LoRA: Hu et al. 2021, arXiv:2106.09685; the grid: kernels/ref/quant.c.
 */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Exact for every float16: 5 bits of exponent, 10 of fraction. */
static float widen(uint16_t half)
{
    const int exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    float size;

    if (exponent == 0x1F)
        size = fraction ? NAN : INFINITY;
    else if (exponent)
        size = ldexpf((float)(fraction + 0x400), exponent - 25);
    else
        size = ldexpf((float)fraction, -24);
    return half & 0x8000 ? -size : size;
}

float ref_table_value(const struct table *table, size_t index)
{
    const unsigned char *bytes = table->values;
    uint16_t half;
    float value;

    if (table->storage == STORAGE_F32) {
        memcpy(&value, bytes + index * sizeof(value), sizeof(value));
        return value;
    }
    memcpy(&half, bytes + index * sizeof(half), sizeof(half));
    return table->storage == STORAGE_F16 ? widen(half) : float_of((uint32_t)half << 16);
}

void ref_merge(float *y, const struct table *base, const float *A, const float *B, float scale,
               size_t rows, size_t cols, size_t rank, bool columns)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = 0;

            for (size_t r = 0; r < rank; r++)
                sum += (double)A[i * rank + r] * B[r * cols + j];
            y[i * cols + j] = (float)(sum * scale + (double)ref_table_value(base, i * cols + j));
        }
    }
    if (base->codebook)
        ref_round_code(y, NULL, NULL, y, base->codebook, rows, cols, columns);
}

/*
 * dots: products of columns, summed over blocks of rows; gpu_add_columns adds the blocks up.
 *
 *   partials[b,c] = sum_{n of block b} x[n,c] y[n,c]     y NULL: sum_{n of block b} x[n,c]
 *
 * Shapes    x [N,x_stride], y [N,y_stride], C columns of each; partials [B,C].
 * Writes    partials is set.
 * Numerics  f32, n ascending.
 * Source    Plain.
 */
#include "kernels/gpu/blocks.h"

KERNEL gpu_column_dots(GLOBAL float *partials, GLOBAL const float *x, int x_stride,
                       GLOBAL const float *y, int y_stride, int N, int C)
{
    const int c = GROUP * GROUP_SIZE + THREAD;
    const int begin = GROUP_Y * GPU_PARTIAL_ROWS;
    const int end = begin + GPU_PARTIAL_ROWS < N ? begin + GPU_PARTIAL_ROWS : N;
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int n = begin; n < end; n++) {
        const float other = y ? y[(gpu_size)n * (gpu_size)y_stride + (gpu_size)c] : 1.0f;

        sum += x[(gpu_size)n * (gpu_size)x_stride + (gpu_size)c] * other;
    }
    partials[(gpu_size)GROUP_Y * (gpu_size)C + (gpu_size)c] = sum;
}

/*
 * quant: rounding to the grids the model is shipped on; straight-through, so it has no backward.
 *
 *   round_a8, a row of C values: as a8_scale and a8_round (round.h)
 *   round_code, a group of values along the axis: as code_round (code.h)
 *
 * Shapes    x y [N,C]; w y [rows,cols], groups along the last axis or (columns) the first;
 *           index [groups, g] and norm [groups], outputs first, then groups along the axis.
 * Writes    Everything is set; index, norm may be NULL. y may be x (w): a group writes what only it
 *           reads, after reading it.
 * Numerics  f32; round_a8 gives ref's bits. The products with H add in the order of butterflies.
 * Source    As kernels/ref/quant.c.
 */
#include "kernels/gpu/code.h"
#include "kernels/gpu/round.h"
#include "kernels/gpu/rows.h"

KERNEL gpu_round_a8(GLOBAL float *y, GLOBAL const float *x, int C)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    float largest = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        largest = fmaxf(largest, fabsf(x[row + c]));

    const float scale = a8_scale(group_max(largest, scratch));
    for (int c = THREAD; c < C; c += GROUP_SIZE)
        y[row + c] = a8_round(x[row + c], scale, 1.0f / scale);
}

KERNEL gpu_round_code(GLOBAL float *y, GLOBAL gpu_u8 *index, GLOBAL float *norm,
                      GLOBAL const float *w, GLOBAL const float *code_values, int code_count,
                      int code_group, int rows, int cols, int columns)
{
    SHARED float tile[CODE_TILE];
    SHARED float sums[GROUP_SIZE];
    SHARED float book[CODE_BOOK];
    const int outputs = columns ? cols : rows, inputs = columns ? rows : cols;
    const gpu_size output_stride = columns ? 1 : (gpu_size)cols;
    const gpu_size stride = columns ? (gpu_size)cols : 1;
    const int first_output = GROUP * GPU_CODE_OUTPUTS, first = GROUP_Y * GPU_CODE_INPUTS;
    const gpu_size origin = (gpu_size)first_output * output_stride + (gpu_size)first * stride;

    code_load_book(book, code_values, code_count);
    for (int number = THREAD; number < CODE_VALUES; number += GROUP_SIZE) {
        const int output = code_output(number, columns), input = code_input(number, columns);
        const gpu_size at = origin + (gpu_size)output * output_stride + (gpu_size)input * stride;

        tile[code_place(output, input)] =
            first_output + output < outputs && first + input < inputs ? w[at] : 0.0f;
    }
    SYNC();

    /* Of the thread's row: its groups, the last one padded, and how many values of them are here. */
    const int row = first_output + THREAD / CODE_RUNS;
    const gpu_size groups = ((gpu_size)inputs + (gpu_size)code_group - 1) / (gpu_size)code_group;
    const gpu_size start = (gpu_size)row * groups * (gpu_size)code_group + (gpu_size)first;
    const int left = (int)(groups * (gpu_size)code_group) - first;
    code_round(tile, sums, book, code_count, code_group, index ? &index[start] : 0,
               norm ? &norm[start / (gpu_size)code_group] : 0, row < outputs ? left : 0);
    SYNC();
    for (int number = THREAD; number < CODE_VALUES; number += GROUP_SIZE) {
        const int output = code_output(number, columns), input = code_input(number, columns);
        const gpu_size at = origin + (gpu_size)output * output_stride + (gpu_size)input * stride;

        if (first_output + output < outputs && first + input < inputs)
            y[at] = tile[code_place(output, input)];
    }
}

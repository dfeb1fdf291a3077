/*
 * gather: one row from each of several tables, side by side; its gradient is in scatter.cu.
 *
 *   y[n, t sub + s] = grid(table[t, index[n,t], :])[s], 0 where index[n,t] is -1
 *
 * The rounding of the whole row to 8 bits is a launch of gpu_round_a8 over y.
 *
 * Shapes    y [N, tables sub]; table [tables, slots, sub] as its file stores it; index [N, tables].
 * Writes    y is set.
 * Numerics  The table is converted to f32 exactly; the grid is that of code.h.
 * Source    As kernels/ref/gather.c.
 */
#include "kernels/gpu/code.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/storage.h"

KERNEL gpu_gather_forward(GLOBAL float *y, GLOBAL const gpu_u8 *values, GLOBAL const int *index,
                          int storage, int aligned, int tables, int slots, int sub)
{
    const int t = GROUP_Y;
    const gpu_size place = (gpu_size)GROUP * (gpu_size)tables + (gpu_size)t;
    const int slot = index[place];
    const gpu_size source = ((gpu_size)t * (gpu_size)slots + (gpu_size)slot) * (gpu_size)sub;
    const gpu_size target = place * (gpu_size)sub;

    for (int s = THREAD; s < sub; s += GROUP_SIZE)
        y[target + s] = slot < 0 ? 0.0f : load_stored(values, storage, aligned, source + s);
}

KERNEL gpu_gather_code(GLOBAL float *y, GLOBAL const gpu_u8 *values, GLOBAL const int *index,
                       GLOBAL const float *code_values, int code_count, int code_group, int storage,
                       int aligned, int N, int tables, int slots, int sub)
{
    SHARED float tile[CODE_TILE];
    SHARED float sums[GROUP_SIZE];
    SHARED float book[CODE_BOOK];
    const gpu_size rows = (gpu_size)N * (gpu_size)tables;
    const gpu_size first_row = (gpu_size)GROUP * GPU_CODE_OUTPUTS;
    const int first = GROUP_Y * GPU_CODE_INPUTS;

    code_load_book(book, code_values, code_count);
    for (int number = THREAD; number < CODE_VALUES; number += GROUP_SIZE) {
        const int output = code_output(number, 0), input = code_input(number, 0);
        const gpu_size row = first_row + (gpu_size)output;
        const int slot = row < rows ? index[row] : -1;
        const gpu_size t = row % (gpu_size)tables;
        float value = 0;

        if (slot >= 0 && first + input < sub)
            value = load_stored(values, storage, aligned,
                                (t * (gpu_size)slots + (gpu_size)slot) * (gpu_size)sub +
                                    (gpu_size)(first + input));
        tile[code_place(output, input)] = value;
    }
    SYNC();
    code_round(tile, sums, book, code_count, code_group, 0, 0, 0);
    SYNC();
    for (int number = THREAD; number < CODE_VALUES; number += GROUP_SIZE) {
        const int output = code_output(number, 0), input = code_input(number, 0);
        const gpu_size row = first_row + (gpu_size)output;

        if (row < rows && first + input < sub)
            y[row * (gpu_size)sub + (gpu_size)(first + input)] = tile[code_place(output, input)];
    }
}

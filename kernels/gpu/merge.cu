/*
 * merge: a frozen matrix with a low-rank update, put on its grid, in one pass.
 *
 *   y[i,j] = round(base[i,j] + scale sum_r A[i,r] B[r,j])
 *
 * A group makes a tile of outputs by inputs (code.h); of A and B it keeps MERGE_RANK of the rank at
 * a time in shared memory: `outer` is what varies along outputs, `inner` along inputs.
 *
 * Shapes    base y [rows,cols]; A [rows,rank]; B [rank,cols]; groups of the grid along the last axis,
 *           or (columns) the first. code_group 0: nothing is rounded.
 * Writes    y is set; it is not the base.
 * Numerics  base converted to f32 exactly; the sum f32, r ascending; rank 0 gives the base itself.
 * Source    As kernels/ref/merge.c.
 */
#include "kernels/gpu/code.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/storage.h"

#define MERGE_RANK 16
#define MERGE_INNER (CODE_RUNS * (CODE_RUN + 1)) /* as far apart as a row's runs in the tile */

struct merge_place { /* of the tile */
    int rows, cols, rank, columns, first_output, first;
};

DEVICE void merge_load(LOCAL float *outer, LOCAL float *inner, GLOBAL const float *A,
                       GLOBAL const float *B, const struct merge_place *p, int r0)
{
    /* Along rows (r fastest) for what comes from A, along columns for what comes from B. */
    for (int number = THREAD; number < MERGE_RANK * GPU_CODE_OUTPUTS; number += GROUP_SIZE) {
        const int output = p->columns ? number % GPU_CODE_OUTPUTS : number / MERGE_RANK;
        const int r = p->columns ? number / GPU_CODE_OUTPUTS : number % MERGE_RANK;
        const gpu_size at = (gpu_size)(p->first_output + output), k = (gpu_size)(r0 + r);
        float value = 0;

        if (r0 + r < p->rank && p->columns && p->first_output + output < p->cols)
            value = B[k * (gpu_size)p->cols + at];
        else if (r0 + r < p->rank && !p->columns && p->first_output + output < p->rows)
            value = A[at * (gpu_size)p->rank + k];
        outer[r * GPU_CODE_OUTPUTS + output] = value;
    }
    for (int number = THREAD; number < MERGE_RANK * GPU_CODE_INPUTS; number += GROUP_SIZE) {
        const int input = p->columns ? number / MERGE_RANK : number % GPU_CODE_INPUTS;
        const int r = p->columns ? number % MERGE_RANK : number / GPU_CODE_INPUTS;
        const gpu_size at = (gpu_size)(p->first + input), k = (gpu_size)(r0 + r);
        float value = 0;

        if (r0 + r < p->rank && p->columns && p->first + input < p->rows)
            value = A[at * (gpu_size)p->rank + k];
        else if (r0 + r < p->rank && !p->columns && p->first + input < p->cols)
            value = B[k * (gpu_size)p->cols + at];
        inner[r * MERGE_INNER + input + input / CODE_RUN] = value;
    }
}

KERNEL gpu_merge(GLOBAL float *y, GLOBAL const gpu_u8 *values, GLOBAL const float *A,
                 GLOBAL const float *B, GLOBAL const float *code_values, int code_count,
                 int code_group, int storage, int aligned, float scale, int rows, int cols,
                 int rank, int columns)
{
    SHARED float tile[CODE_TILE];
    SHARED float sums[GROUP_SIZE];
    SHARED float book[CODE_BOOK];
    SHARED float outer[MERGE_RANK * GPU_CODE_OUTPUTS];
    SHARED float inner[MERGE_RANK * MERGE_INNER];
    const struct merge_place place = {
        rows, cols, rank, columns, GROUP * GPU_CODE_OUTPUTS, GROUP_Y * GPU_CODE_INPUTS};
    const int outputs = columns ? cols : rows, inputs = columns ? rows : cols;
    const gpu_size output_stride = columns ? 1 : (gpu_size)cols;
    const gpu_size stride = columns ? (gpu_size)cols : 1;
    const gpu_size origin =
        (gpu_size)place.first_output * output_stride + (gpu_size)place.first * stride;
    const int own_output = THREAD / CODE_RUNS, own_run = THREAD % CODE_RUNS;
    float update[CODE_RUN];

    code_load_book(book, code_values, code_count);
    for (int number = THREAD; number < CODE_VALUES; number += GROUP_SIZE) {
        const int output = code_output(number, columns), input = code_input(number, columns);
        const gpu_size at = origin + (gpu_size)output * output_stride + (gpu_size)input * stride;
        float value = 0;

        if (place.first_output + output < outputs && place.first + input < inputs)
            value = load_stored(values, storage, aligned, at);
        tile[code_place(output, input)] = value;
    }
    for (int i = 0; i < CODE_RUN; i++)
        update[i] = 0;
    for (int r0 = 0; r0 < rank; r0 += MERGE_RANK) {
        SYNC(); /* those before may still be read */
        merge_load(outer, inner, A, B, &place, r0);
        SYNC();
        for (int r = 0; r < MERGE_RANK && r0 + r < rank; r++) {
            const float factor = outer[r * GPU_CODE_OUTPUTS + own_output];

            for (int i = 0; i < CODE_RUN; i++)
                update[i] += factor * inner[r * MERGE_INNER + own_run * (CODE_RUN + 1) + i];
        }
    }
    SYNC();
    for (int i = 0; i < CODE_RUN && rank > 0; i++)
        tile[code_place(own_output, own_run * CODE_RUN + i)] += scale * update[i];
    if (code_group > 0) /* the same way for all threads */
        code_round(tile, sums, book, code_count, code_group, 0, 0, 0);
    SYNC();
    for (int number = THREAD; number < CODE_VALUES; number += GROUP_SIZE) {
        const int output = code_output(number, columns), input = code_input(number, columns);
        const gpu_size at = origin + (gpu_size)output * output_stride + (gpu_size)input * stride;

        if (place.first_output + output < outputs && place.first + input < inputs)
            y[at] = tile[code_place(output, input)];
    }
}

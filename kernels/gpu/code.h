/*
 * code: rounding to a grid of codes, for the kernels that do it on a tile in shared memory.
 *
 * Purpose    round_code of kernels/ref/quant.c on GPU_CODE_OUTPUTS rows of GPU_CODE_INPUTS values,
 *            whole groups of 1 to 128 of them: Walsh-Hadamard, norm, nearest code, and back.
 * Ownership  The caller's SHARED arrays: tile [CODE_TILE], sums [GROUP_SIZE], book [CODE_BOOK].
 * Threads    All of the group together; it contains barriers.
 * Failure    None.
 *
 * A thread holds CODE_RUN neighbours of one row in registers, 8 threads a row. Within them the
 * transform needs nobody; across them the threads exchange through the tile, once: then each has
 * every CODE_RUN-th value of its row, twice. Runs lie CODE_RUN + 1 apart in the tile, rows an odd
 * number, so that neither way through it meets the same bank often.
 */
#ifndef NEEDLED_GPU_CODE_H
#define NEEDLED_GPU_CODE_H

#include "kernels/gpu/rows.h"
#include "kernels/gpu/storage.h"

#define CODE_RUN 16
#define CODE_RUNS (GPU_CODE_INPUTS / CODE_RUN)
#define CODE_PITCH (CODE_RUNS * (CODE_RUN + 1) + 1)
#define CODE_TILE (GPU_CODE_OUTPUTS * CODE_PITCH)
#define CODE_BOOK 16
#define CODE_VALUES (GPU_CODE_OUTPUTS * GPU_CODE_INPUTS)

/* Where a value of the tile is kept. */
DEVICE int code_place(int output, int input)
{
    return output * CODE_PITCH + input + input / CODE_RUN;
}

/* Which value a thread carries between the tile and memory as its number-th: neighbours in memory
 * for neighbouring threads, with inputs along a row or (columns) down a column. */
DEVICE int code_output(int number, int columns)
{
    return columns ? number % GPU_CODE_OUTPUTS : number / GPU_CODE_INPUTS;
}

DEVICE int code_input(int number, int columns)
{
    return columns ? number / GPU_CODE_OUTPUTS : number % GPU_CODE_INPUTS;
}

/* Sums and differences of values `distance` apart, distances 1, 2, 4 ... below `below`. */
DEVICE void code_butterflies(float *values, int count, int stages, int below)
{
    UNROLL
    for (int stage = 0; stage < stages; stage++) {
        const int distance = 1 << stage;

        if (distance < below) {
            UNROLL
            for (int pair = 0; pair < count / 2; pair++) {
                const int a = (pair >> stage << (stage + 1)) + (pair & (distance - 1));
                const float sum = values[a] + values[a + distance];

                values[a + distance] = values[a] - values[a + distance];
                values[a] = sum;
            }
        }
    }
}

/* The thread's run of x H in place of its run of x. Only its own run of the tile may be in use. */
DEVICE void code_hadamard(float *run, LOCAL float *tile, int group)
{
    const int output = THREAD / CODE_RUNS, part = THREAD % CODE_RUNS;
    const float entry = 1.0f / sqrtf((float)group);
    LOCAL float *own = &tile[code_place(output, part * CODE_RUN)];

    code_butterflies(run, CODE_RUN, 4, group);
    if (group > CODE_RUN) { /* the same way for all threads */
        UNROLL
        for (int i = 0; i < CODE_RUN; i++)
            own[i] = run[i];
        SYNC();
        UNROLL
        for (int second = 0; second < CODE_RUN / CODE_RUNS; second++) {
            LOCAL float *first = &tile[code_place(output, part * (CODE_RUN / CODE_RUNS) + second)];
            float across[CODE_RUNS];

            UNROLL
            for (int i = 0; i < CODE_RUNS; i++)
                across[i] = first[i * (CODE_RUN + 1)];
            code_butterflies(across, CODE_RUNS, 3, group / CODE_RUN);
            UNROLL
            for (int i = 0; i < CODE_RUNS; i++)
                first[i * (CODE_RUN + 1)] = across[i];
        }
        SYNC();
        UNROLL
        for (int i = 0; i < CODE_RUN; i++)
            run[i] = own[i];
    }
    UNROLL
    for (int i = 0; i < CODE_RUN; i++)
        run[i] *= entry;
}

/* squares[i] = the sum of squares over the group that run[i] belongs to. */
DEVICE void code_squares(float *squares, const float *run, LOCAL float *sums, int group)
{
    const int threads = group / CODE_RUN;
    float sum = 0;

    UNROLL
    for (int i = 0; i < CODE_RUN; i++)
        squares[i] = run[i] * run[i];
    UNROLL
    for (int stage = 0; stage < 4; stage++) {
        const int distance = 1 << stage;

        if (distance < group) {
            UNROLL
            for (int pair = 0; pair < CODE_RUN / 2; pair++) {
                const int a = (pair >> stage << (stage + 1)) + (pair & (distance - 1));

                squares[a] += squares[a + distance];
                squares[a + distance] = squares[a];
            }
        }
    }
    if (group > CODE_RUN) { /* the same way for all threads */
        sums[THREAD] = squares[0];
        SYNC();
        UNROLL
        for (int i = 0; i < threads; i++)
            sum += sums[THREAD / threads * threads + i];
        UNROLL
        for (int i = 0; i < CODE_RUN; i++)
            squares[i] = sum;
    }
}

/* The nearest value of the book, the lower of two equally near. */
DEVICE int code_nearest(float unit, LOCAL const float *book, int count)
{
    int right = 1;

    UNROLL
    for (int i = 1; i < count - 1; i++)
        right += book[i] < unit;
    return fabsf(unit - book[right - 1]) <= fabsf(unit - book[right]) ? right - 1 : right;
}

/* Before code_round, whose first barrier it relies on: the caller's, after filling the tile. */
DEVICE void code_load_book(LOCAL float *book, GLOBAL const float *values, int count)
{
    if (THREAD < count)
        book[THREAD] = values[THREAD];
}

/*
 * tile = tile + (code(tile) - tile), padding included. index and norm may be NULL; else they are
 * those of the thread's row, whose first `valid` values (padding to a whole group included) are
 * wanted, counted from the tile's first. A barrier must stand before and after.
 */
DEVICE void code_round(LOCAL float *tile, LOCAL float *sums, LOCAL const float *book, int count,
                       int group, GLOBAL gpu_u8 *index, GLOBAL float *norm, int valid)
{
    const int start = THREAD % CODE_RUNS * CODE_RUN;
    LOCAL float *own = &tile[code_place(THREAD / CODE_RUNS, start)];
    float before[CODE_RUN], run[CODE_RUN], squares[CODE_RUN];
    float divisor = 0, stored = 0;

    UNROLL
    for (int i = 0; i < CODE_RUN; i++)
        run[i] = before[i] = own[i];
    code_hadamard(run, tile, group);
    code_squares(squares, run, sums, group);
    UNROLL
    for (int i = 0; i < CODE_RUN; i++) {
        if (i == 0 || (i & (group - 1)) == 0) { /* a group begins; long ones with a run */
            const float size = sqrtf(squares[i]);

            divisor = fmaxf(size, 1e-12f);
            stored = through_half(size);
            if (norm && start + i < valid && ((start + i) & (group - 1)) == 0)
                norm[(start + i) / group] = stored;
        }

        const int code = code_nearest(run[i] / divisor, book, count);

        if (index && start + i < valid)
            index[start + i] = (gpu_u8)code;
        run[i] = mul_rounded(book[code], stored);
    }
    code_hadamard(run, tile, group);
    UNROLL
    for (int i = 0; i < CODE_RUN; i++)
        own[i] = before[i] + (run[i] - before[i]);
}

#endif

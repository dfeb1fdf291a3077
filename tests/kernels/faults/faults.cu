/*
 * faults: what goes wrong in kernels, each once.
 *
 * Every kernel here is right with FAULT_NONE; the faults are what one forgets. They are chosen when
 * the kernel runs, so that one binary a build holds them all. Comments say what a card would do.
 */
#include "tests/kernels/faults/faults.h"

#define WARPS (GROUP_SIZE / 32)
#define TILE 32

KERNEL fault_scale(GLOBAL float *y, GLOBAL const float *x, int count, int fault)
{
    const int i = GROUP * GROUP_SIZE + THREAD;

    if (i < count || fault == NO_BOUND) /* writes into whatever lies behind */
        y[i] = SCALE_FACTOR * x[i];
}

KERNEL fault_scale4(GLOBAL float4 *y, GLOBAL const float4 *x, int count)
{
    const int i = GROUP * GROUP_SIZE + THREAD;

    if (i < count) {
        float4 value = x[i];

        value.x *= SCALE_FACTOR;
        value.y *= SCALE_FACTOR;
        value.z *= SCALE_FACTOR;
        value.w *= SCALE_FACTOR;
        y[i] = value;
    }
}

/* A group_sum of its own, to leave things out of; groups with fewer warps than `slots` fill the
 * rest with zeros. */
DEVICE float faulty_sum(float value, LOCAL float *scratch, int slots, int fault)
{
    for (int distance = 16; distance > 0; distance /= 2)
        value += gpu_lane_xor(value, distance);
    if (fault != NO_BARRIER_BEFORE_REUSE) /* some warps still read the sum before */
        SYNC();
    if (THREAD % 32 == 0)
        scratch[THREAD / 32] = value;
    if (THREAD >= WARPS && THREAD < slots && fault != SHARED_NOT_WRITTEN)
        scratch[THREAD] = 0;
    if (fault != NO_BARRIER_BEFORE_READ) /* some warps have not written yet */
        SYNC();
    value = 0;
    for (int slot = 0; slot < slots; slot++)
        value += scratch[slot];
    return value;
}

KERNEL fault_rows(GLOBAL float *y, GLOBAL const float *x, int C, int fault)
{
    SHARED float scratch[2 * WARPS];
    SHARED float short_scratch[WARPS - 1];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)C;
    float sum = 0, squares = 0;

    for (int c = THREAD; c < C; c += GROUP_SIZE) {
        sum += x[row + c];
        squares += x[row + c] * x[row + c];
    }
    sum = faulty_sum(sum, scratch, 2 * WARPS, fault);
    squares = faulty_sum(squares, scratch, 2 * WARPS, fault);
    if (fault == SHARED_TOO_SHORT) { /* the last warp's share goes past the end */
        for (int distance = 16; distance > 0; distance /= 2)
            sum = fmaxf(sum, gpu_lane_xor(sum, distance));
        if (THREAD % 32 == 0)
            short_scratch[THREAD / 32] = sum;
        SYNC();
        sum = short_scratch[0];
    }
    for (int c = THREAD; c < C; c += GROUP_SIZE)
        y[row + c] = x[row + c] * sum / squares;
}

KERNEL fault_tiles(GLOBAL float *o, GLOBAL const float *q, GLOBAL const float *k, int count,
                   int fault)
{
    SHARED float keys[TILE];
    const int i = GROUP * GROUP_SIZE + THREAD;
    const int last = (GROUP + 1) * GROUP_SIZE;
    const float query = i < count ? q[i] : 0.0f;
    float sum = 0;

    for (int tile = 0; tile < last && tile < count; tile += TILE) {
        if (fault != NO_BARRIER_BEFORE_TILE) /* the tile before is still being read */
            SYNC();
        if (THREAD < TILE)
            keys[THREAD] = tile + THREAD < count ? k[tile + THREAD] : 0.0f;
        SYNC();
        for (int j = 0; j < TILE; j++)
            if (tile + j < i + (fault == MASK_OFF_BY_ONE ? 0 : 1))
                sum += query * keys[j];
    }
    if (i < count)
        o[i] = sum;
}

KERNEL fault_tree(GLOBAL float *sum, GLOBAL const float *x, int count, int fault)
{
    SHARED float values[GROUP_SIZE];
    SHARED float large[(36 << 10) / sizeof(float)]; /* too much for some cards, with `values` */
    float value = 0;

    for (int i = THREAD; i < count; i += GROUP_SIZE)
        value += x[i];
    if (fault == SHARED_OVER_32_KB) {
        for (int i = THREAD; i < (int)(sizeof large / sizeof large[0]); i += GROUP_SIZE)
            large[i] = value;
        value = large[THREAD];
    }
    values[THREAD] = value;
    if (fault != DIVERGENT_BARRIER || THREAD < 128) /* half of the threads never come */
        SYNC();
    for (int half_count = GROUP_SIZE / 2; half_count > 16; half_count /= 2) {
        if (THREAD < half_count)
            values[THREAD] += values[THREAD + half_count];
        SYNC();
    }
    value = THREAD < 32 ? values[THREAD] : 0.0f;
    if (fault == WARP_SYNCHRONOUS_TAIL) { /* lanes need not run in step */
        for (int distance = 16; distance > 0; distance /= 2)
            if (THREAD < distance)
                values[THREAD] += values[THREAD + distance];
        value = values[0];
    } else if (fault != HALF_WARP_SHUFFLE ||
               THREAD % 32 < 16) { /* names lanes that are not there */
        for (int distance = 16; distance > 0; distance /= 2)
            value += gpu_lane_xor(value, distance);
    }
    if (THREAD == 0)
        sum[0] = value;
    SYNC();
}

KERNEL fault_columns(GLOBAL float *sums, GLOBAL const float *x, int rows, int C, int fault)
{
    const int row = fault == SUM_ACROSS_BLOCKS ? GROUP : 0;
    const int past = fault == SUM_ACROSS_BLOCKS ? GROUP + 1 : rows;

    for (int c = THREAD; c < C; c += GROUP_SIZE)
        for (int n = row; n < past; n++)
            sums[c] += x[n * C + c]; /* by many blocks: a sum is lost now and then */
}

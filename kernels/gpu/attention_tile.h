/*
 * attention_tile: products of tiles of queries and keys, for attention forward and backward.
 *
 * Purpose    A group works on a tile of 64 x 64 pairs; a thread holds 4 x 4 of them: rows
 *            TILE_ROW + 16 r, columns TILE_COLUMN + 16 s. Depth goes through shared memory 16 at a
 *            time.
 * Ownership  chunks are SHARED float [TILE_CHUNK], weights SHARED float [TILE_PAIRS], values of
 *            tokens SHARED [TILE].
 * Threads    All of the group call together: the functions contain barriers.
 * Failure    None. Rows past the last count as zero.
 */
#ifndef NEEDLED_GPU_ATTENTION_TILE_H
#define NEEDLED_GPU_ATTENTION_TILE_H

#include "kernels/gpu/attention.h"

#define TILE ATTENTION_TILE
#define TILE_DEPTH 16
#define TILE_EACH 4                   /* rows, and columns, of one thread */
#define TILE_APART (TILE / TILE_EACH) /* between them */
#define TILE_STRIDE (TILE + 1)        /* neighbours down a column lie in different banks */
#define TILE_PAIRS (TILE * TILE_STRIDE)
#define TILE_CHUNK (TILE_DEPTH * TILE_STRIDE)
#define TILE_ROW (THREAD / TILE_APART)
#define TILE_COLUMN (THREAD % TILE_APART)

/* tiles, by gpu_attention_tiles */
#define TILE_FIRST(tiles, t) ((tiles)[4 * (t)])
#define TILE_PAST(tiles, t) ((tiles)[4 * (t) + 1])
#define TILE_DEPTH_MIN(tiles, t) ((tiles)[4 * (t) + 2])
#define TILE_DEPTH_MAX(tiles, t) ((tiles)[4 * (t) + 3])

/* Whether no query of the one tile sees a key of the other. */
DEVICE int tiles_apart(GLOBAL const int *tiles, int query_tile, int key_tile, int window)
{
    if (TILE_PAST(tiles, key_tile) <= query_tile * TILE)
        return 1;
    return window > 0 &&
           TILE_DEPTH_MIN(tiles, query_tile) - TILE_DEPTH_MAX(tiles, key_tile) >= window;
}

/* values[n] = of token first + n; past the last token 0, which as the end of a key hides it. Shared by
 * the group: read per pair from memory, their addresses would take the registers. */
DEVICE void tile_load_tokens(LOCAL int *values, GLOBAL const int *of, int first, int N)
{
    if (THREAD < TILE)
        values[THREAD] = first + THREAD < N ? of[first + THREAD] : 0;
}

/* values[n] = of[n stride], n < count, else 0. */
DEVICE void tile_load_values(LOCAL float *values, GLOBAL const float *of, gpu_size stride,
                             int count)
{
    if (THREAD < TILE)
        values[THREAD] = THREAD < count ? of[(gpu_size)THREAD * stride] : 0.0f;
}

/* Whether query i, `apart` deeper than key j with its end, sees it; either may be past the last. */
DEVICE int token_sees(int i, int j, int end, int apart, int window)
{
    return j <= i && i < end && (window == 0 || apart < window);
}

DEVICE void tile_clear(float sums[TILE_EACH][TILE_EACH])
{
    for (int r = 0; r < TILE_EACH; r++)
        for (int s = 0; s < TILE_EACH; s++)
            sums[r][s] = 0;
}

/* chunk[d,row] = rows[row,d] of the next TILE_DEPTH d. */
DEVICE void tile_load_rows(LOCAL float *chunk, GLOBAL const float *rows, gpu_size stride, int count,
                           int depth)
{
    for (int e = THREAD; e < TILE * TILE_DEPTH; e += GROUP_SIZE) {
        const int row = e / TILE_DEPTH, d = e % TILE_DEPTH;

        chunk[d * TILE_STRIDE + row] =
            row < count && d < depth ? rows[(gpu_size)row * stride + (gpu_size)d] : 0.0f;
    }
}

/* sums = a b^T, a [a_count, depth], b [b_count, depth]; rows stand their stride apart. */
DEVICE void tile_dot(float sums[TILE_EACH][TILE_EACH], LOCAL float *a_chunk, LOCAL float *b_chunk,
                     GLOBAL const float *a, gpu_size a_stride, int a_count, GLOBAL const float *b,
                     gpu_size b_stride, int b_count, int depth)
{
    tile_clear(sums);
    for (int start = 0; start < depth; start += TILE_DEPTH) {
        SYNC(); /* the chunks before may still be read */
        tile_load_rows(a_chunk, a + start, a_stride, a_count, depth - start);
        tile_load_rows(b_chunk, b + start, b_stride, b_count, depth - start);
        SYNC();
        for (int d = 0; d < TILE_DEPTH; d++) {
            LOCAL const float *rows = a_chunk + d * TILE_STRIDE + TILE_ROW;
            LOCAL const float *columns = b_chunk + d * TILE_STRIDE + TILE_COLUMN;

            for (int r = 0; r < TILE_EACH; r++)
                for (int s = 0; s < TILE_EACH; s++)
                    sums[r][s] += rows[TILE_APART * r] * columns[TILE_APART * s];
        }
    }
}

/* sums += weights b[:, first ...], weights [TILE, count], b [count, width]. What was written to
 * weights before is seen; what is written after needs a barrier first. */
DEVICE void tile_apply(float sums[TILE_EACH][TILE_EACH], LOCAL float *b_chunk,
                       LOCAL const float *weights, GLOBAL const float *b, gpu_size b_stride,
                       int count, int first, int width)
{
    for (int start = 0; start < TILE && start < count; start += TILE_DEPTH) {
        SYNC(); /* the chunk before may still be read */
        for (int e = THREAD; e < TILE * TILE_DEPTH; e += GROUP_SIZE) {
            const int row = e / TILE, column = e % TILE;

            b_chunk[row * TILE_STRIDE + column] =
                start + row < count && first + column < width
                    ? b[(gpu_size)(start + row) * b_stride + (gpu_size)(first + column)]
                    : 0.0f;
        }
        SYNC();
        for (int d = 0; d < TILE_DEPTH; d++) {
            LOCAL const float *rows = weights + TILE_ROW * TILE_STRIDE + start + d;
            LOCAL const float *columns = b_chunk + d * TILE_STRIDE + TILE_COLUMN;

            for (int r = 0; r < TILE_EACH; r++)
                for (int s = 0; s < TILE_EACH; s++)
                    sums[r][s] += rows[TILE_APART * r * TILE_STRIDE] * columns[TILE_APART * s];
        }
    }
}

/* rows[row, first ...] = sums */
DEVICE void tile_store(GLOBAL float *rows, gpu_size stride, int count, int first, int width,
                       float sums[TILE_EACH][TILE_EACH])
{
    for (int r = 0; r < TILE_EACH; r++) {
        const int row = TILE_ROW + TILE_APART * r;

        for (int s = 0; s < TILE_EACH; s++) {
            const int column = first + TILE_COLUMN + TILE_APART * s;

            if (row < count && column < width)
                rows[(gpu_size)row * stride + (gpu_size)column] = sums[r][s];
        }
    }
}

DEVICE int tile_count(int tile, int N)
{
    return N - tile * TILE < TILE ? N - tile * TILE : TILE;
}

#endif

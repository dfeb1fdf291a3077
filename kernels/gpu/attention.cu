/*
 * attention: softmax attention of each token over itself and its ancestors; the formula is in
 * kernels/ref/attention.c.
 *
 *   tiles of 64 tokens: of a tile of queries only those tiles of keys are looked at that hold an
 *   ancestor within the window, by the largest end and the depths of each tile. Per tile of keys:
 *   s = scale q k^T (hidden pairs -inf), m' = max(m, max s), o = o exp(m - m') + exp(s - m') v
 *
 * Shapes    As kernels/ref/attention.c; tiles [UP(N, 64), 4] of int: the first tile a query of this
 *           one may look at, the largest end, the least and the largest depth.
 * Writes    tiles, o, lse are set.
 * Numerics  f32; sums over keys in tiles of 64, tiles ascending; nothing is stored per pair.
 * Source    Dao et al. 2022, arXiv:2205.14135; trees as kernels/README.md.
 */
#include "kernels/gpu/attention_tile.h"

KERNEL gpu_attention_tiles(GLOBAL int *tiles, GLOBAL const int *parent, GLOBAL const int *depth,
                           GLOBAL const int *run, GLOBAL const int *end, int N)
{
    const int tile = GROUP * GROUP_SIZE + THREAD, begin = tile * TILE;

    if (begin >= N)
        return; /* no barrier below */
    int root = run[begin], past = end[begin], least = depth[begin], most = depth[begin];

    while (parent[root] >= 0)
        root = run[parent[root]];
    for (int n = begin + 1; n < N && n < begin + TILE; n++) {
        past = end[n] > past ? end[n] : past;
        least = depth[n] < least ? depth[n] : least;
        most = depth[n] > most ? depth[n] : most;
    }
    TILE_FIRST(tiles, tile) = root / TILE;
    TILE_PAST(tiles, tile) = past;
    TILE_DEPTH_MIN(tiles, tile) = least;
    TILE_DEPTH_MAX(tiles, tile) = most;
}

#define ROW_PARTS (GROUP_SIZE / TILE) /* threads to a row of scores */
#define PART_SIZE (TILE / ROW_PARTS)

/* scores = scale sums, -inf where the key is hidden from the query. */
DEVICE void store_scores(LOCAL float *scores, float sums[TILE_EACH][TILE_EACH], int i, int j,
                         LOCAL const int *query_depth, LOCAL const int *key_depth,
                         LOCAL const int *key_end, int window, float scale)
{
    for (int r = 0; r < TILE_EACH; r++) {
        const int row = TILE_ROW + TILE_APART * r;

        for (int s = 0; s < TILE_EACH; s++) {
            const int column = TILE_COLUMN + TILE_APART * s;
            const int sees = token_sees(i + row, j + column, key_end[column],
                                        query_depth[row] - key_depth[column], window);

            scores[row * TILE_STRIDE + column] = sees ? scale * sums[r][s] : -INFINITY;
        }
    }
}

/* The largest of a row's scores and of what it was before. */
DEVICE float row_largest(float largest, LOCAL const float *scores, LOCAL float *parts)
{
    LOCAL const float *part =
        scores + THREAD / ROW_PARTS * TILE_STRIDE + THREAD % ROW_PARTS * PART_SIZE;
    float most = -INFINITY;

    for (int column = 0; column < PART_SIZE; column++)
        most = fmaxf(most, part[column]);
    parts[THREAD] = most;
    SYNC();
    for (int i = 0; i < ROW_PARTS; i++)
        largest = fmaxf(largest, parts[THREAD / ROW_PARTS * ROW_PARTS + i]);
    return largest;
}

/* scores = exp(scores - largest); returns the sum of this thread's part. */
DEVICE float exponentials(LOCAL float *scores, float largest)
{
    LOCAL float *part = scores + THREAD / ROW_PARTS * TILE_STRIDE + THREAD % ROW_PARTS * PART_SIZE;
    float total = 0;

    for (int column = 0; column < PART_SIZE; column++) {
        part[column] = largest > -INFINITY ? expf(part[column] - largest) : 0.0f;
        total += part[column];
    }
    return total;
}

KERNEL gpu_attention_forward(GLOBAL float *o, GLOBAL float *lse, GLOBAL const float *q,
                             GLOBAL const float *k, GLOBAL const float *v, GLOBAL const int *depth,
                             GLOBAL const int *end, GLOBAL const int *tiles, int N, int H, int G,
                             int C, int V, int window, float scale)
{
    SHARED float scores[TILE_PAIRS], a_chunk[TILE_CHUNK], b_chunk[TILE_CHUNK];
    SHARED float parts[GROUP_SIZE], row_values[TILE];
    SHARED int query_depth[TILE], key_depth[TILE], key_end[TILE];
    const int h = GROUP_Y % H, first = GROUP_Y / H * TILE, g = h / (H / G);
    const int i = GROUP * TILE, rows = tile_count(GROUP, N);
    const gpu_size query = (gpu_size)i * (gpu_size)H + (gpu_size)h;
    float sums[TILE_EACH][TILE_EACH], pairs[TILE_EACH][TILE_EACH];
    float largest = -INFINITY, total = 0; /* of THREAD / ROW_PARTS; total of this thread's parts */

    tile_load_tokens(query_depth, depth, i, N);
    tile_clear(sums);
    for (int tile = TILE_FIRST(tiles, GROUP); tile <= GROUP; tile++) {
        const int j = tile * TILE, columns = tile_count(tile, N);
        const gpu_size key = (gpu_size)j * (gpu_size)G + (gpu_size)g;

        if (tiles_apart(tiles, GROUP, tile, window))
            continue;                             /* all threads together */
        tile_load_tokens(key_depth, depth, j, N); /* seen after the barriers of tile_dot */
        tile_load_tokens(key_end, end, j, N);
        tile_dot(pairs, a_chunk, b_chunk, q + query * (gpu_size)C, (gpu_size)H * (gpu_size)C, rows,
                 k + key * (gpu_size)C, (gpu_size)G * (gpu_size)C, columns, C);
        store_scores(scores, pairs, i, j, query_depth, key_depth, key_end, window, scale);
        SYNC();
        const float before = largest;

        largest = row_largest(before, scores, parts);
        const float keep = before > -INFINITY ? expf(before - largest) : 0.0f;

        total = total * keep + exponentials(scores, largest);
        if (THREAD % ROW_PARTS == 0)
            row_values[THREAD / ROW_PARTS] = keep;
        SYNC();
        for (int r = 0; r < TILE_EACH; r++)
            for (int s = 0; s < TILE_EACH; s++)
                sums[r][s] *= row_values[TILE_ROW + TILE_APART * r];
        tile_apply(sums, b_chunk, scores, v + key * (gpu_size)V, (gpu_size)G * (gpu_size)V, columns,
                   first, V);
    }

    parts[THREAD] = total;
    SYNC();
    if (THREAD < rows) {
        float whole = 0;

        for (int part = 0; part < ROW_PARTS; part++)
            whole += parts[THREAD * ROW_PARTS + part];
        row_values[THREAD] = whole;
    }
    SYNC();
    if (first == 0 && THREAD % ROW_PARTS == 0 && THREAD / ROW_PARTS < rows)
        lse[query + (gpu_size)(THREAD / ROW_PARTS) * (gpu_size)H] =
            largest + logf(row_values[THREAD / ROW_PARTS]);
    for (int r = 0; r < TILE_EACH; r++)
        for (int s = 0; s < TILE_EACH; s++)
            if (TILE_ROW + TILE_APART * r < rows)
                sums[r][s] /= row_values[TILE_ROW + TILE_APART * r];
    tile_store(o + query * (gpu_size)V, (gpu_size)H * (gpu_size)V, rows, first, V, sums);
}

/*
 * attention_backward: gradients of queries, keys and values; the formula is in
 * kernels/ref/attention.c.
 *
 *   dots[i,h] = sum_v do[i,h,v] o[i,h,v]
 *   p and ds are computed anew from q k^T, do v^T, lse and dots, a tile of pairs at a time:
 *   one group sums a tile of dq over tiles of keys, another a tile of dk and dv over heads and
 *   tiles of queries
 *
 * Shapes    As kernels/ref/attention.c; dots [N,H]; tiles as in attention.cu.
 * Writes    dots, dq, dk, dv are set.
 * Numerics  f32; each sum in one thread, tiles ascending, for dk and dv within ascending heads.
 * Source    Dao et al. 2022, arXiv:2205.14135.
 */
#include "kernels/gpu/attention_tile.h"
#include "kernels/gpu/team.h"

KERNEL gpu_attention_dots(GLOBAL float *dots, GLOBAL const float *dout, GLOBAL const float *o,
                          gpu_size rows, int V)
{
    SHARED float scratch[GROUP_SIZE];
    const gpu_size row = (gpu_size)GROUP * TEAM_COUNT + (gpu_size)TEAM;
    float sum = 0;

    for (int c = MEMBER; row < rows && c < V; c += TEAM_SIZE)
        sum += dout[row * (gpu_size)V + (gpu_size)c] * o[row * (gpu_size)V + (gpu_size)c];
    sum = team_sum(sum, scratch);
    if (row < rows && MEMBER == 0)
        dots[row] = sum;
}

KERNEL gpu_attention_backward_q(GLOBAL float *dq, GLOBAL const float *dout,
                                GLOBAL const float *dots, GLOBAL const float *lse,
                                GLOBAL const float *q, GLOBAL const float *k, GLOBAL const float *v,
                                GLOBAL const int *depth, GLOBAL const int *end,
                                GLOBAL const int *tiles, int N, int H, int G, int C, int V,
                                int window, float scale)
{
    SHARED float weights[TILE_PAIRS], a_chunk[TILE_CHUNK], b_chunk[TILE_CHUNK];
    SHARED float query_lse[TILE], query_dots[TILE];
    SHARED int query_depth[TILE], key_depth[TILE], key_end[TILE];
    const int h = GROUP_Y % H, first = GROUP_Y / H * TILE, g = h / (H / G);
    const int i = GROUP * TILE, rows = tile_count(GROUP, N);
    const gpu_size query = (gpu_size)i * (gpu_size)H + (gpu_size)h;
    float sums[TILE_EACH][TILE_EACH], pairs[TILE_EACH][TILE_EACH], toward[TILE_EACH][TILE_EACH];

    tile_load_values(query_lse, lse + query, (gpu_size)H, rows);
    tile_load_values(query_dots, dots + query, (gpu_size)H, rows);
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
        tile_dot(toward, a_chunk, b_chunk, dout + query * (gpu_size)V, (gpu_size)H * (gpu_size)V,
                 rows, v + key * (gpu_size)V, (gpu_size)G * (gpu_size)V, columns, V);
        for (int r = 0; r < TILE_EACH; r++) {
            const int row = TILE_ROW + TILE_APART * r;

            for (int s = 0; s < TILE_EACH; s++) {
                const int column = TILE_COLUMN + TILE_APART * s;
                float weight = 0;

                if (token_sees(i + row, j + column, key_end[column],
                               query_depth[row] - key_depth[column], window))
                    weight = scale * expf(scale * pairs[r][s] - query_lse[row]) *
                             (toward[r][s] - query_dots[row]);
                weights[row * TILE_STRIDE + column] = weight;
            }
        }
        tile_apply(sums, b_chunk, weights, k + key * (gpu_size)C, (gpu_size)G * (gpu_size)C,
                   columns, first, C);
    }
    tile_store(dq + query * (gpu_size)C, (gpu_size)H * (gpu_size)C, rows, first, C, sums);
}

KERNEL gpu_attention_backward_kv(GLOBAL float *dk, GLOBAL float *dv, GLOBAL const float *dout,
                                 GLOBAL const float *dots, GLOBAL const float *lse,
                                 GLOBAL const float *q, GLOBAL const float *k,
                                 GLOBAL const float *v, GLOBAL const int *depth,
                                 GLOBAL const int *end, GLOBAL const int *tiles, int N, int H,
                                 int G, int C, int V, int window, float scale)
{
    SHARED float weights[TILE_PAIRS], a_chunk[TILE_CHUNK], b_chunk[TILE_CHUNK];
    SHARED float query_lse[TILE], query_dots[TILE];
    SHARED int query_depth[TILE], key_depth[TILE], key_end[TILE];
    const int g = GROUP_Y % G, first = GROUP_Y / G * TILE, share = H / G;
    const int j = GROUP * TILE, rows = tile_count(GROUP, N);
    const int tile_past = (TILE_PAST(tiles, GROUP) + TILE - 1) / TILE;
    const gpu_size key = (gpu_size)j * (gpu_size)G + (gpu_size)g;
    float k_sums[TILE_EACH][TILE_EACH], v_sums[TILE_EACH][TILE_EACH];
    float pairs[TILE_EACH][TILE_EACH], toward[TILE_EACH][TILE_EACH];

    tile_load_tokens(key_depth, depth, j, N);
    tile_load_tokens(key_end, end, j, N);
    tile_clear(k_sums);
    tile_clear(v_sums);
    for (int step = 0; step < share * (tile_past - GROUP); step++) {
        const int h = g * share + step / (tile_past - GROUP);
        const int tile = GROUP + step % (tile_past - GROUP);
        const int i = tile * TILE, columns = tile_count(tile, N);
        const gpu_size query = (gpu_size)i * (gpu_size)H + (gpu_size)h;

        if (tiles_apart(tiles, tile, GROUP, window))
            continue;                                                   /* all threads together */
        tile_load_values(query_lse, lse + query, (gpu_size)H, columns); /* seen after tile_dot's */
        tile_load_values(query_dots, dots + query, (gpu_size)H, columns); /* barriers */
        tile_load_tokens(query_depth, depth, i, N);
        tile_dot(pairs, a_chunk, b_chunk, k + key * (gpu_size)C, (gpu_size)G * (gpu_size)C, rows,
                 q + query * (gpu_size)C, (gpu_size)H * (gpu_size)C, columns, C);
        tile_dot(toward, a_chunk, b_chunk, v + key * (gpu_size)V, (gpu_size)G * (gpu_size)V, rows,
                 dout + query * (gpu_size)V, (gpu_size)H * (gpu_size)V, columns, V);
        for (int r = 0; r < TILE_EACH; r++) {
            const int row = TILE_ROW + TILE_APART * r;

            for (int s = 0; s < TILE_EACH; s++) {
                const int column = TILE_COLUMN + TILE_APART * s;
                float weight = 0, slope = 0;

                if (token_sees(i + column, j + row, key_end[row],
                               query_depth[column] - key_depth[row], window)) {
                    weight = expf(scale * pairs[r][s] - query_lse[column]);
                    slope = scale * weight * (toward[r][s] - query_dots[column]);
                }
                weights[row * TILE_STRIDE + column] = weight;
                toward[r][s] = slope;
            }
        }
        if (first < V) /* the same for all threads */
            tile_apply(v_sums, b_chunk, weights, dout + query * (gpu_size)V,
                       (gpu_size)H * (gpu_size)V, columns, first, V);
        SYNC();
        for (int r = 0; r < TILE_EACH; r++)
            for (int s = 0; s < TILE_EACH; s++)
                weights[(TILE_ROW + TILE_APART * r) * TILE_STRIDE + TILE_COLUMN + TILE_APART * s] =
                    toward[r][s];
        if (first < C)
            tile_apply(k_sums, b_chunk, weights, q + query * (gpu_size)C, (gpu_size)H * (gpu_size)C,
                       columns, first, C);
    }
    tile_store(dk + key * (gpu_size)C, (gpu_size)G * (gpu_size)C, rows, first, C, k_sums);
    tile_store(dv + key * (gpu_size)V, (gpu_size)G * (gpu_size)V, rows, first, V, v_sums);
}

/*
 * matmul: the matrix product, with either side transposed.
 *
 *   C[i,j] = alpha sum_k op(A)[i,k] op(B)[k,j] + beta C[i,j]
 *
 * A group makes a tile of 64 by 64 values of C, a thread 4 by 4 of them, 16 apart in both directions:
 *
 *        columns of C ->            for each 16 of K:  all load a tile of op(A) [64,16] and of op(B)
 *      t0 t1 .. t15 t0 t1 ..                           [16,64] into shared memory; each thread adds
 *      t16 ..                                          16 products to its values
 *
 * Shapes    op(A) [M,K], op(B) [K,N], C [M,N]; ld* are strides of rows in elements.
 * Writes    C; beta 0 sets it without reading it. K 0 scales by beta.
 * Numerics  f32; the sum of 16 products, then the sum of those sums, k ascending.
 * Source    As kernels/ref/matmul.c. Slower than a card's own library: where that is missing.
 */
#include "kernels/gpu/matmul.h"

#define TILE GPU_MATMUL_TILE
#define DEPTH 16
#define SIDE (TILE / 4)   /* threads along one side; each has 4 values there, SIDE apart */
#define STRIDE (TILE + 1) /* of a tile's rows, so that a column spreads over the banks */

/* tile[k,i] = X(begin + i, depth + k), zero outside; X(i, k) = x[i ld + k], or x[k ld + i] where
 * `flip`. Neighbouring threads read neighbouring memory. */
DEVICE void load_tile(LOCAL float *tile, GLOBAL const float *x, int begin, int count, int depth,
                      int K, int flip, gpu_size ld)
{
    const int i_step = flip ? 0 : GROUP_SIZE / DEPTH, k_step = flip ? GROUP_SIZE / TILE : 0;
    const gpu_size step = (gpu_size)(i_step + k_step) * ld;
    int i = flip ? THREAD % TILE : THREAD / DEPTH, k = flip ? THREAD / TILE : THREAD % DEPTH;

    x += flip ? (gpu_size)(depth + k) * ld + (gpu_size)(begin + i)
              : (gpu_size)(begin + i) * ld + (gpu_size)(depth + k);
    for (int round = 0; round < TILE * DEPTH / GROUP_SIZE; round++) {
        tile[k * STRIDE + i] = begin + i < count && depth + k < K ? x[0] : 0.0f;
        i += i_step;
        k += k_step;
        x += step;
    }
}

KERNEL gpu_matmul(GLOBAL float *RESTRICT C, GLOBAL const float *RESTRICT A,
                  GLOBAL const float *RESTRICT B, int M, int N, int K, int transpose_a,
                  int transpose_b, gpu_size lda, gpu_size ldb, gpu_size ldc, float alpha,
                  float beta)
{
    SHARED float a_tile[DEPTH * STRIDE];
    SHARED float b_tile[DEPTH * STRIDE];
    const int tiles = (N + TILE - 1) / TILE;
    const int first_row = GROUP / tiles * TILE, first_column = GROUP % tiles * TILE;
    const int row = THREAD / SIDE, column = THREAD % SIDE;
    float sum[4][4] = {{0}};

    for (int depth = 0; depth < K; depth += DEPTH) {
        float part[4][4] = {{0}};

        SYNC(); /* the tiles before are still being read */
        load_tile(a_tile, A, first_row, M, depth, K, transpose_a, lda);
        load_tile(b_tile, B, first_column, N, depth, K, !transpose_b, ldb);
        SYNC();
        for (int k = 0; k < DEPTH; k++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    part[i][j] += a_tile[k * STRIDE + row + i * SIDE] *
                                  b_tile[k * STRIDE + column + j * SIDE];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                sum[i][j] += part[i][j];
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const int m = first_row + row + i * SIDE, n = first_column + column + j * SIDE;
            const gpu_size target = (gpu_size)m * ldc + (gpu_size)n;

            if (m < M && n < N)
                C[target] = beta == 0.0f ? alpha * sum[i][j] : alpha * sum[i][j] + beta * C[target];
        }
    }
}

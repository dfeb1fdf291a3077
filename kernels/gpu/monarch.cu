/*
 * monarch: a feed-forward layer of Kronecker factors and permutations, conditioned on its input.
 *
 * The formula is that of kernels/ref/monarch.c. Here it is a chain of launches over a tile of
 * tokens, whose intermediate values [N,P] stay in the card's cache:
 *
 *   forward     condition, factor b, factor a (z1), activate (in2), factors (z2), factors (y)
 *   backward    condition, factors (z1); then back: factors (dz of in3, of in2), slope, factors
 *               (dz of in1), condition_backward, input
 *   K(z; wa, wb) = factor a(factor b(z)); its transpose likewise with `back`
 *
 * Values behind a permutation are stored where they are read: z1 and z2 through the inverse of p1
 * and p2, and the gradients of the products' outputs are read through it.
 *
 * Shapes    As the reference's, for N tokens of a tile; m da [N,rank].
 * Writes    All outputs are set. Where one may stand in an input's place, blocks.h says so.
 * Numerics  f32; a factor's sum runs along its axis in order, a token's sum over D or P is 256 sums
 *           of every 256th element, added up as group_sum does; a weight's gradient goes through a
 *           block's tokens in order, each with its t in order.
 * Source    As kernels/ref/monarch.c.
 */
#include "kernels/gpu/blocks.h"

#define TILE_K 16
#define RANKS 8 /* sums of one walk over a token */

KERNEL gpu_monarch_inverse(GLOBAL int *inverse, GLOBAL const int *permutation, int P)
{
    const int i = GROUP * GROUP_SIZE + THREAD;

    if (i < P)
        inverse[permutation[i]] = i;
}

KERNEL gpu_monarch_condition(GLOBAL float *m, GLOBAL const float *x, GLOBAL const float *cond_v,
                             int D, int rank)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)D, own = (gpu_size)GROUP * (gpu_size)rank;
    float largest = -3e38f, total = 0;

    for (int first = 0; first < rank; first += RANKS) {
        float sum[RANKS] = {0};

        for (int d = THREAD; d < D; d += GROUP_SIZE) {
            const float value = x[row + d];
            for (int r = 0; r < RANKS; r++)
                if (first + r < rank)
                    sum[r] += value * cond_v[(gpu_size)d * (gpu_size)rank + first + r];
        }
        for (int r = 0; r < RANKS; r++) {
            const float logit = group_sum(sum[r], scratch);

            if (THREAD == 0 && first + r < rank)
                m[own + first + r] = logit;
        }
    }
    SYNC();
    for (int r = THREAD; r < rank; r += GROUP_SIZE)
        largest = fmaxf(largest, m[own + r]);
    largest = group_max(largest, scratch);
    for (int r = THREAD; r < rank; r += GROUP_SIZE) {
        m[own + r] = expf(m[own + r] - largest);
        total += m[own + r];
    }
    total = group_sum(total, scratch);
    for (int r = THREAD; r < rank; r += GROUP_SIZE)
        m[own + r] /= total;
}

/* Value i of token n as blocks.h says; scale and place may be NULL. */
DEVICE float placed(GLOBAL const float *in, GLOBAL const float *scale, GLOBAL const int *place,
                    int stride, int count, int n, int i)
{
    const int c = place ? place[i] : i;

    if (c >= count)
        return 0.0f;
    return (scale ? scale[c] : 1.0f) * in[(gpu_size)n * (gpu_size)stride + (gpu_size)c];
}

/* A group makes 128 vectors by 32 outputs, a thread 4 by 4 of them. */
KERNEL gpu_monarch_factor(GLOBAL float *out, GLOBAL const float *skip,
                          GLOBAL const float *out_scale, GLOBAL const int *out_place,
                          int out_stride, int out_count, GLOBAL const float *in,
                          GLOBAL const float *in_scale, GLOBAL const int *in_place, int in_stride,
                          int in_count, GLOBAL const float *w, int back, int size, int step,
                          int others_shift, int V)
{
    SHARED float in_tile[TILE_K][GPU_FACTOR_VECTORS + 1], w_tile[TILE_K][GPU_FACTOR_OUTPUTS];
    /* neighbours in memory go to neighbouring threads: along the factor's axis, or across it */
    const int along = step == 1, other_step = along ? size : 1;
    const int others = 1 << others_shift;
    const int own_v = along ? THREAD / 8 : THREAD % 32, own_m = along ? THREAD % 8 : THREAD / 32;
    const int first_v = GROUP * GPU_FACTOR_VECTORS, first_m = GROUP_Y * GPU_FACTOR_OUTPUTS;
    float sum[4][4] = {{0}};

    for (int first_k = 0; first_k < size; first_k += TILE_K) {
        SYNC(); /* the tile before is still read */
        for (int e = THREAD; e < TILE_K * GPU_FACTOR_VECTORS; e += GROUP_SIZE) {
            const int tile_k = along ? e % TILE_K : e / GPU_FACTOR_VECTORS;
            const int tile_v = along ? e / TILE_K : e % GPU_FACTOR_VECTORS;
            const int k = first_k + tile_k, v = first_v + tile_v;
            const int i = (v & (others - 1)) * other_step + k * step;

            in_tile[tile_k][tile_v] = k < size && v < V ? placed(in, in_scale, in_place, in_stride,
                                                                 in_count, v >> others_shift, i)
                                                        : 0.0f;
        }
        for (int e = THREAD; e < TILE_K * GPU_FACTOR_OUTPUTS; e += GROUP_SIZE) {
            const int tile_k = back ? e % TILE_K : e / GPU_FACTOR_OUTPUTS;
            const int tile_m = back ? e / TILE_K : e % GPU_FACTOR_OUTPUTS;
            const int k = first_k + tile_k, m = first_m + tile_m;
            const gpu_size at = back ? (gpu_size)m * (gpu_size)size + (gpu_size)k
                                     : (gpu_size)k * (gpu_size)size + (gpu_size)m;

            w_tile[tile_k][tile_m] = k < size && m < size ? w[at] : 0.0f;
        }
        SYNC();
        for (int k = 0; k < TILE_K; k++) {
            for (int x = 0; x < 4; x++) {
                const float value = in_tile[k][own_v + 32 * x];

                for (int y = 0; y < 4; y++)
                    sum[x][y] += value * w_tile[k][own_m + 8 * y];
            }
        }
    }
    for (int x = 0; x < 4; x++) {
        const int v = first_v + own_v + 32 * x, n = v >> others_shift;
        for (int y = 0; y < 4; y++) {
            const int m = first_m + own_m + 8 * y;
            const int i = (v & (others - 1)) * other_step + m * step;

            if (v < V && m < size && i < out_count) {
                const gpu_size at =
                    (gpu_size)n * (gpu_size)out_stride + (gpu_size)(out_place ? out_place[i] : i);
                const float value = (out_scale ? out_scale[i] : 1.0f) * sum[x][y];

                out[at] = skip ? skip[at] + value : value;
            }
        }
    }
}

/* e at i, from the token's m. */
DEVICE float condition_at(GLOBAL const float *m, GLOBAL const float *cond_u, int i, int P, int rank)
{
    float e = 1.0f;

    for (int r = 0; r < rank; r++)
        e += m[r] * cond_u[(gpu_size)r * (gpu_size)P + (gpu_size)i];
    return e;
}

DEVICE float sigmoid_of(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

KERNEL gpu_monarch_activate(GLOBAL float *in2, GLOBAL const float *z1, GLOBAL const float *m,
                            GLOBAL const float *cond_u, GLOBAL const float *d2,
                            GLOBAL const float *b2, int P, int rank)
{
    const int i = GROUP_Y * GROUP_SIZE + THREAD;
    const gpu_size at = (gpu_size)GROUP * (gpu_size)P + (gpu_size)i;

    if (i >= P)
        return; /* no barrier below */

    const float e = condition_at(m + (gpu_size)GROUP * (gpu_size)rank, cond_u, i, P, rank);
    const float c = d2[i] * e * z1[at] + b2[i];
    in2[at] = c * sigmoid_of(c);
}

KERNEL gpu_monarch_slope(GLOBAL float *dc, GLOBAL float *e_dc, GLOBAL float *z1_dc,
                         GLOBAL const float *z1, GLOBAL const float *m, GLOBAL const float *cond_u,
                         GLOBAL const float *d2, GLOBAL const float *b2, int P, int rank)
{
    const int i = GROUP_Y * GROUP_SIZE + THREAD;
    const gpu_size at = (gpu_size)GROUP * (gpu_size)P + (gpu_size)i;

    if (i >= P)
        return; /* no barrier below */

    const float e = condition_at(m + (gpu_size)GROUP * (gpu_size)rank, cond_u, i, P, rank);
    const float z = z1[at], c = d2[i] * e * z + b2[i], s = sigmoid_of(c);
    const float through = dc[at] * (s + c * s * (1.0f - s));
    dc[at] = through;
    e_dc[at] = e * through;
    z1_dc[at] = z * through;
}

KERNEL gpu_monarch_condition_backward(GLOBAL float *da, GLOBAL const float *m,
                                      GLOBAL const float *z1_dc, GLOBAL const float *d2,
                                      GLOBAL const float *cond_u, int P, int rank)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)P, own = (gpu_size)GROUP * (gpu_size)rank;
    float mean = 0;

    for (int first = 0; first < rank; first += RANKS) {
        float sum[RANKS] = {0};

        for (int i = THREAD; i < P; i += GROUP_SIZE) {
            const float de = d2[i] * z1_dc[row + i];
            for (int r = 0; r < RANKS; r++)
                if (first + r < rank)
                    sum[r] += de * cond_u[(gpu_size)(first + r) * (gpu_size)P + (gpu_size)i];
        }
        for (int r = 0; r < RANKS; r++) {
            const float dm = group_sum(sum[r], scratch);

            if (THREAD == 0 && first + r < rank)
                da[own + first + r] = dm;
        }
    }
    SYNC();
    for (int r = THREAD; r < rank; r += GROUP_SIZE)
        mean += m[own + r] * da[own + r];
    mean = group_sum(mean, scratch);
    for (int r = THREAD; r < rank; r += GROUP_SIZE)
        da[own + r] = m[own + r] * (da[own + r] - mean);
}

KERNEL gpu_monarch_input(GLOBAL float *dx, GLOBAL const float *dz1, GLOBAL const float *d1,
                         GLOBAL const float *cond_v, GLOBAL const float *da, int D, int P, int rank)
{
    const int d = GROUP_Y * GROUP_SIZE + THREAD;
    const gpu_size own = (gpu_size)GROUP * (gpu_size)rank;

    if (d >= D)
        return; /* no barrier below */

    float sum = d1[d] * dz1[(gpu_size)GROUP * (gpu_size)P + (gpu_size)d];
    for (int r = 0; r < rank; r++)
        sum += cond_v[(gpu_size)d * (gpu_size)rank + (gpu_size)r] * da[own + r];
    dx[(gpu_size)GROUP * (gpu_size)D + (gpu_size)d] = sum;
}

/* A group makes 32 by 32 sums, a thread 2 by 2 of them; s counts (n, t). */
KERNEL gpu_monarch_pairs(GLOBAL float *partials, GLOBAL const float *left, int left_stride,
                         GLOBAL const float *right, GLOBAL const float *right_scale,
                         GLOBAL const int *right_place, int right_stride, int right_count, int rows,
                         int columns, int step, int t_shift, int t_step, int N)
{
    SHARED float left_tile[GPU_PAIR_TILE][GPU_PAIR_TILE + 1];
    SHARED float right_tile[GPU_PAIR_TILE][GPU_PAIR_TILE + 1];
    const int tiles = (columns + GPU_PAIR_TILE - 1) / GPU_PAIR_TILE, t_count = 1 << t_shift;
    const int first_p = GROUP / tiles * GPU_PAIR_TILE, first_q = GROUP % tiles * GPU_PAIR_TILE;
    const int begin = GROUP_Y * GPU_PAIR_TOKENS;
    const int end = begin + GPU_PAIR_TOKENS < N ? begin + GPU_PAIR_TOKENS : N;
    const int own_p = THREAD / 16, own_q = THREAD % 16, along = t_step == 1 && t_count > 1;
    float sum[2][2] = {{0}};

    for (int first_s = begin << t_shift; first_s < end << t_shift; first_s += GPU_PAIR_TILE) {
        SYNC(); /* the tile before is still read */
        for (int e = THREAD; e < GPU_PAIR_TILE * GPU_PAIR_TILE; e += GROUP_SIZE) {
            const int tile_s = along ? e % GPU_PAIR_TILE : e / GPU_PAIR_TILE;
            const int tile_p = along ? e / GPU_PAIR_TILE : e % GPU_PAIR_TILE;
            const int s = first_s + tile_s, n = s >> t_shift, t = s & (t_count - 1);
            const int p = first_p + tile_p, q = first_q + tile_p;

            left_tile[tile_s][tile_p] =
                n < end && p < rows
                    ? placed(left, 0, 0, left_stride, left_stride, n, p * step + t * t_step)
                    : 0.0f;
            right_tile[tile_s][tile_p] = n < end && q < columns
                                             ? placed(right, right_scale, right_place, right_stride,
                                                      right_count, n, q * step + t * t_step)
                                             : 0.0f;
        }
        SYNC();
        for (int s = 0; s < GPU_PAIR_TILE; s++) {
            for (int x = 0; x < 2; x++) {
                const float value = left_tile[s][own_p + 16 * x];

                for (int y = 0; y < 2; y++)
                    sum[x][y] += value * right_tile[s][own_q + 16 * y];
            }
        }
    }
    for (int x = 0; x < 2; x++)
        for (int y = 0; y < 2; y++) {
            const int p = first_p + own_p + 16 * x, q = first_q + own_q + 16 * y;

            if (p < rows && q < columns)
                partials[((gpu_size)GROUP_Y * (gpu_size)rows + (gpu_size)p) * (gpu_size)columns +
                         (gpu_size)q] = sum[x][y];
        }
}

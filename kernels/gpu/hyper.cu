/*
 * hyper: reading from hyper-connections: coefficients and the mix of the lanes, both ways.
 *
 * The formula is that of kernels/ref/hyper.c. What is left of Sinkhorn after every half-round is
 *   L[i,j] = l[i,j] - R[i] - C[j]
 *   R[i]   = logsumexp_j(l[i,j] - C[j]),   C[j] = logsumexp_i(l[i,j] - R[i])
 * in turn, from C = 0: forward keeps only l, R and C in a thread's registers, a thread to a token;
 * backward goes back through the R and C that it noted on the way.
 *
 *   forward     norm, raw, coefficients, mix
 *   backward    pre_backward, coefficients_backward, read_backward; for the weights norm again,
 *               phi_partials, gpu_column_dots of dl and of dl raw
 *
 * Shapes    As the reference's, W = n D; step [N]; dl [N,M].
 * Writes    dS and dscale accumulate, all else is set.
 * Numerics  f32; raw is summed by stretches of 32 of W, in order; a token's other sums over W or D
 *           are 256 sums of every 256th element, added up as group_sum does; dphi goes through a
 *           block's tokens in order. eps 1e-6; the gradient passes the rounding.
 * Source    As kernels/ref/hyper.c.
 */
#include "kernels/gpu/blocks.h"
#include "kernels/gpu/round.h"

#define TILE 32
#define MIX_MAX (GPU_LANES_MAX * GPU_LANES_MAX)
#define COEFFICIENTS_MAX (2 * GPU_LANES_MAX + MIX_MAX)

/* Which of the three scales coefficient m has. */
DEVICE int part_of(int m, int lanes)
{
    return m < lanes ? 0 : m < 2 * lanes ? 1 : 2;
}

/* One value of the token's normalised lanes. */
DEVICE float normalised(float value, float r, float step)
{
    const float scaled = mul_rounded(value, r);

    return step > 0.0f ? a8_round(scaled, step, 1.0f / step) : scaled;
}

/* ---- forward --------------------------------------------------------------------------------- */

KERNEL gpu_hyper_norm(GLOBAL float *r, GLOBAL float *step, GLOBAL const float *S, int W,
                      int rounding)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size row = (gpu_size)GROUP * (gpu_size)W;
    float sum = 0, largest = 0;

    for (int k = THREAD; k < W; k += GROUP_SIZE) {
        sum += S[row + k] * S[row + k];
        largest = fmaxf(largest, fabsf(S[row + k]));
    }
    sum = group_sum(sum, scratch);
    largest = group_max(largest, scratch);

    const float inverse = 1.0f / sqrtf(sum / (float)W + GPU_EPSILON);
    if (THREAD == 0) {
        r[GROUP] = inverse;
        /* products are rounded alike whatever their order: the largest stays the largest */
        step[GROUP] = rounding == GPU_ROUND_A8 ? a8_scale(mul_rounded(largest, inverse)) : 0.0f;
    }
}

/* A group makes 64 tokens by 32 coefficients, a thread 2 by 4 of them. */
KERNEL gpu_hyper_raw(GLOBAL float *raw, GLOBAL const float *S, GLOBAL const float *r,
                     GLOBAL const float *step, GLOBAL const float *phi, int N, int W, int M)
{
    SHARED float nx_tile[TILE][GPU_HYPER_TOKENS + 1], phi_tile[TILE][TILE];
    const int first_n = GROUP * GPU_HYPER_TOKENS, first_m = GROUP_Y * TILE;
    const int own_n = THREAD / 8, own_m = THREAD % 8;
    float sum[2][4] = {{0}};

    for (int first_k = 0; first_k < W; first_k += TILE) {
        float part[2][4] = {{0}};

        SYNC(); /* the tile before is still read */
        for (int e = THREAD; e < TILE * GPU_HYPER_TOKENS; e += GROUP_SIZE) {
            const int k = first_k + e % TILE, n = first_n + e / TILE;

            nx_tile[e % TILE][e / TILE] =
                k < W && n < N
                    ? normalised(S[(gpu_size)n * (gpu_size)W + (gpu_size)k], r[n], step[n])
                    : 0.0f;
        }
        for (int e = THREAD; e < TILE * TILE; e += GROUP_SIZE) {
            const int k = first_k + e / TILE, m = first_m + e % TILE;

            phi_tile[e / TILE][e % TILE] =
                k < W && m < M ? phi[(gpu_size)k * (gpu_size)M + (gpu_size)m] : 0.0f;
        }
        SYNC();
        for (int k = 0; k < TILE; k++) {
            for (int x = 0; x < 2; x++) {
                const float value = nx_tile[k][own_n + 32 * x];

                for (int y = 0; y < 4; y++)
                    part[x][y] += value * phi_tile[k][own_m + 8 * y];
            }
        }
        for (int x = 0; x < 2; x++)
            for (int y = 0; y < 4; y++)
                sum[x][y] += part[x][y];
    }
    for (int x = 0; x < 2; x++)
        for (int y = 0; y < 4; y++) {
            const int n = first_n + own_n + 32 * x, m = first_m + own_m + 8 * y;

            if (n < N && m < M)
                raw[(gpu_size)n * (gpu_size)M + (gpu_size)m] = sum[x][y];
        }
}

/*
 * own[i] = logsumexp_j(l[i,j] - other[j]), lines `line` apart and their elements `step`. size is 4
 * or 8 where this is inlined, at least lanes, so that arrays are registers.
 */
DEVICE void sinkhorn_half(float *own, const float *other, const float *l, int line, int step,
                          int lanes, int size)
{
    UNROLL
    for (int i = 0; i < size; i++) {
        float largest = -3e38f, total = 0;

        if (i >= lanes)
            continue;
        UNROLL
        for (int j = 0; j < size; j++)
            if (j < lanes)
                largest = fmaxf(largest, l[i * line + j * step] - other[j]);
        UNROLL
        for (int j = 0; j < size; j++)
            if (j < lanes)
                total += expf(l[i * line + j * step] - other[j] - largest);
        own[i] = largest + logf(total);
    }
}

/* l [size,size] = scale raw + bias of the token's res part. */
DEVICE void mix_logits(float *l, GLOBAL const float *raw, float scale, GLOBAL const float *bias,
                       int lanes, int size)
{
    UNROLL
    for (int i = 0; i < size; i++)
        UNROLL
    for (int j = 0; j < size; j++)
        l[i * size + j] =
            i < lanes && j < lanes ? scale * raw[i * lanes + j] + bias[i * lanes + j] : 0.0f;
}

DEVICE void mix_forward(GLOBAL float *res, GLOBAL const float *raw, float scale,
                        GLOBAL const float *bias, int lanes, int size)
{
    float l[MIX_MAX], rows[GPU_LANES_MAX] = {0}, columns[GPU_LANES_MAX] = {0};

    mix_logits(l, raw, scale, bias, lanes, size);
    for (int round = 0; round < GPU_SINKHORN_ROUNDS; round++) {
        sinkhorn_half(rows, columns, l, size, 1, lanes, size);
        sinkhorn_half(columns, rows, l, 1, size, lanes, size);
    }
    UNROLL
    for (int i = 0; i < size; i++)
        UNROLL
    for (int j = 0; j < size; j++)
        if (i < lanes && j < lanes)
            res[i * lanes + j] = expf(l[i * size + j] - rows[i] - columns[j]);
}

KERNEL gpu_hyper_coefficients(GLOBAL float *h, GLOBAL const float *raw, GLOBAL const float *scale,
                              GLOBAL const float *bias, int N, int lanes)
{
    const int n = GROUP * GROUP_SIZE + THREAD;
    const gpu_size at = (gpu_size)n * (gpu_size)(2 * lanes + lanes * lanes);

    if (n >= N)
        return; /* no barrier below */
    for (int m = 0; m < 2 * lanes; m++) {
        const int part = part_of(m, lanes);
        const float l = scale[part] * raw[at + m] + bias[m];

        h[at + m] = (part == 0 ? 1.0f : 2.0f) / (1.0f + expf(-l));
    }
    if (lanes <= 4)
        mix_forward(h + at + 2 * lanes, raw + at + 2 * lanes, scale[2], bias + 2 * lanes, lanes, 4);
    else
        mix_forward(h + at + 2 * lanes, raw + at + 2 * lanes, scale[2], bias + 2 * lanes, lanes, 8);
}

KERNEL gpu_hyper_mix(GLOBAL float *u, GLOBAL const float *S, GLOBAL const float *h, int lanes,
                     int D)
{
    const int d = GROUP_Y * GROUP_SIZE + THREAD, M = 2 * lanes + lanes * lanes;
    const gpu_size n = (gpu_size)GROUP, first = n * (gpu_size)lanes * (gpu_size)D + (gpu_size)d;
    float sum = 0;

    if (d >= D)
        return; /* no barrier below */
    for (int i = 0; i < lanes; i++)
        sum += h[n * (gpu_size)M + (gpu_size)i] * S[first + (gpu_size)i * (gpu_size)D];
    u[n * (gpu_size)D + (gpu_size)d] = sum;
}

/* ---- backward -------------------------------------------------------------------------------- */

KERNEL gpu_hyper_pre_backward(GLOBAL float *dl, GLOBAL const float *du, GLOBAL const float *S,
                              int lanes, int D)
{
    SHARED float scratch[GROUP_SCRATCH];
    const gpu_size n = (gpu_size)GROUP, row = n * (gpu_size)D;

    for (int i = 0; i < lanes; i++) {
        const gpu_size lane = (n * (gpu_size)lanes + (gpu_size)i) * (gpu_size)D;
        float sum = 0;

        for (int d = THREAD; d < D; d += GROUP_SIZE)
            sum += du[row + d] * S[lane + d];
        sum = group_sum(sum, scratch);
        if (THREAD == 0)
            dl[n * (gpu_size)(2 * lanes + lanes * lanes) + (gpu_size)i] = sum;
    }
}

/* dL = dL - exp(L) sum(dL) along each line, L = l - own - other. */
DEVICE void sinkhorn_half_backward(float *dL, const float *own, const float *other, const float *l,
                                   int line, int step, int lanes, int size)
{
    UNROLL
    for (int i = 0; i < size; i++) {
        float total = 0;

        if (i >= lanes)
            continue;
        UNROLL
        for (int j = 0; j < size; j++)
            if (j < lanes)
                total += dL[i * line + j * step];
        UNROLL
        for (int j = 0; j < size; j++)
            if (j < lanes)
                dL[i * line + j * step] -= expf(l[i * line + j * step] - own[i] - other[j]) * total;
    }
}

/* noted: of one token, values N apart: for each half-round the lanes' R or C. */
DEVICE void note(GLOBAL float *noted, const float *offsets, int half_round, int N, int lanes,
                 int size)
{
    UNROLL
    for (int i = 0; i < size; i++)
        if (i < lanes)
            noted[(gpu_size)(half_round * lanes + i) * (gpu_size)N] = offsets[i];
}

DEVICE void recall(float *offsets, GLOBAL const float *noted, int half_round, int N, int lanes,
                   int size)
{
    UNROLL
    for (int i = 0; i < size; i++)
        offsets[i] = half_round >= 0 && i < lanes
                         ? noted[(gpu_size)(half_round * lanes + i) * (gpu_size)N]
                         : 0.0f;
}

DEVICE void mix_backward(GLOBAL float *dl, GLOBAL float *noted, GLOBAL const float *dres,
                         GLOBAL const float *raw, float scale, GLOBAL const float *bias, int N,
                         int lanes, int size)
{
    float l[MIX_MAX], dL[MIX_MAX], rows[GPU_LANES_MAX] = {0}, columns[GPU_LANES_MAX] = {0};

    mix_logits(l, raw, scale, bias, lanes, size);
    for (int round = 0; round < GPU_SINKHORN_ROUNDS; round++) {
        sinkhorn_half(rows, columns, l, size, 1, lanes, size);
        note(noted, rows, 2 * round, N, lanes, size);
        sinkhorn_half(columns, rows, l, 1, size, lanes, size);
        note(noted, columns, 2 * round + 1, N, lanes, size);
    }
    UNROLL
    for (int i = 0; i < size; i++)
        UNROLL
    for (int j = 0; j < size; j++)
        dL[i * size + j] = i < lanes && j < lanes
                               ? dres[i * lanes + j] * expf(l[i * size + j] - rows[i] - columns[j])
                               : 0.0f;
    for (int round = GPU_SINKHORN_ROUNDS - 1; round >= 0; round--) {
        recall(rows, noted, 2 * round, N, lanes, size);
        sinkhorn_half_backward(dL, columns, rows, l, 1, size, lanes, size);
        recall(columns, noted, 2 * round - 1, N, lanes, size);
        sinkhorn_half_backward(dL, rows, columns, l, size, 1, lanes, size);
    }
    UNROLL
    for (int i = 0; i < size; i++)
        UNROLL
    for (int j = 0; j < size; j++)
        if (i < lanes && j < lanes)
            dl[i * lanes + j] = dL[i * size + j];
}

KERNEL gpu_hyper_coefficients_backward(GLOBAL float *dl, GLOBAL float *offsets,
                                       GLOBAL const float *dh, GLOBAL const float *h,
                                       GLOBAL const float *raw, GLOBAL const float *scale,
                                       GLOBAL const float *bias, int N, int lanes)
{
    const int n = GROUP * GROUP_SIZE + THREAD;
    const gpu_size at = (gpu_size)n * (gpu_size)(2 * lanes + lanes * lanes);
    const gpu_size mix = at + (gpu_size)(2 * lanes);

    if (n >= N)
        return; /* no barrier below */
    for (int i = 0; i < lanes; i++) {
        const float pre = h[at + i], post = h[at + lanes + i];

        dl[at + i] *= pre * (1.0f - pre);
        dl[at + lanes + i] = dh[at + lanes + i] * post * (1.0f - post / 2.0f);
    }
    if (lanes <= 4)
        mix_backward(dl + mix, offsets + n, dh + mix, raw + mix, scale[2], bias + 2 * lanes, N,
                     lanes, 4);
    else
        mix_backward(dl + mix, offsets + n, dh + mix, raw + mix, scale[2], bias + 2 * lanes, N,
                     lanes, 8);
}

/* A group takes 8 tokens, so that phi is read once for them; a thread every 256th of W, twice. */
KERNEL gpu_hyper_read_backward(GLOBAL float *dS, GLOBAL const float *du, GLOBAL const float *dl,
                               GLOBAL const float *S, GLOBAL const float *h, GLOBAL const float *r,
                               GLOBAL const float *phi, GLOBAL const float *scale, int N, int lanes,
                               int D)
{
    SHARED float draw[COEFFICIENTS_MAX][GPU_HYPER_BACKWARD_TOKENS], scratch[GROUP_SCRATCH];
    const int M = 2 * lanes + lanes * lanes, W = lanes * D;
    const int first_n = GROUP * GPU_HYPER_BACKWARD_TOKENS;
    float mean[GPU_HYPER_BACKWARD_TOKENS] = {0};

    for (int e = THREAD; e < M * GPU_HYPER_BACKWARD_TOKENS; e += GROUP_SIZE) {
        const int t = e / M, m = e % M, n = first_n + t;

        draw[m][t] =
            n < N ? scale[part_of(m, lanes)] * dl[(gpu_size)n * (gpu_size)M + (gpu_size)m] : 0.0f;
    }
    SYNC();
    for (int k = THREAD; k < W; k += GROUP_SIZE) {
        const int i = k / D, d = k % D;
        float dnx[GPU_HYPER_BACKWARD_TOKENS] = {0};

        for (int m = 0; m < M; m++) {
            const float weight = phi[(gpu_size)k * (gpu_size)M + (gpu_size)m];
            for (int t = 0; t < GPU_HYPER_BACKWARD_TOKENS; t++)
                dnx[t] += weight * draw[m][t];
        }
        for (int t = 0; t < GPU_HYPER_BACKWARD_TOKENS; t++) {
            const gpu_size n = (gpu_size)(first_n + t), at = n * (gpu_size)W + (gpu_size)k;

            if (first_n + t < N) {
                dS[at] += h[n * (gpu_size)M + (gpu_size)i] * du[n * (gpu_size)D + (gpu_size)d] +
                          r[n] * dnx[t];
                mean[t] += dnx[t] * S[at];
            }
        }
    }
    for (int t = 0; t < GPU_HYPER_BACKWARD_TOKENS; t++) {
        const float total = group_sum(mean[t], scratch);
        const gpu_size row = (gpu_size)(first_n + t) * (gpu_size)W;

        if (first_n + t < N) {
            const float inverse = r[first_n + t];
            const float factor = inverse * (total * inverse * inverse / (float)W);

            for (int k = THREAD; k < W; k += GROUP_SIZE)
                dS[row + k] -= factor * S[row + k];
        }
    }
}

/* A group makes 32 by 32 sums, a thread 2 by 2 of them. */
KERNEL gpu_hyper_phi_partials(GLOBAL float *partials, GLOBAL const float *S, GLOBAL const float *r,
                              GLOBAL const float *step, GLOBAL const float *dl,
                              GLOBAL const float *scale, int N, int W, int lanes)
{
    SHARED float nx_tile[TILE][TILE + 1], draw_tile[TILE][TILE + 1];
    const int M = 2 * lanes + lanes * lanes, tiles = (M + TILE - 1) / TILE;
    const int first_k = GROUP / tiles * TILE, first_m = GROUP % tiles * TILE;
    const int begin = GROUP_Y * GPU_HYPER_PHI_TOKENS;
    const int end = begin + GPU_HYPER_PHI_TOKENS < N ? begin + GPU_HYPER_PHI_TOKENS : N;
    const int own_k = THREAD / 16, own_m = THREAD % 16;
    float sum[2][2] = {{0}};

    for (int first_n = begin; first_n < end; first_n += TILE) {
        SYNC(); /* the tile before is still read */
        for (int e = THREAD; e < TILE * TILE; e += GROUP_SIZE) {
            const int n = first_n + e / TILE, k = first_k + e % TILE, m = first_m + e % TILE;

            nx_tile[e / TILE][e % TILE] =
                n < end && k < W
                    ? normalised(S[(gpu_size)n * (gpu_size)W + (gpu_size)k], r[n], step[n])
                    : 0.0f;
            draw_tile[e / TILE][e % TILE] =
                n < end && m < M
                    ? scale[part_of(m, lanes)] * dl[(gpu_size)n * (gpu_size)M + (gpu_size)m]
                    : 0.0f;
        }
        SYNC();
        for (int s = 0; s < TILE; s++) {
            for (int x = 0; x < 2; x++) {
                const float value = nx_tile[s][own_k + 16 * x];

                for (int y = 0; y < 2; y++)
                    sum[x][y] += value * draw_tile[s][own_m + 16 * y];
            }
        }
    }
    for (int x = 0; x < 2; x++)
        for (int y = 0; y < 2; y++) {
            const int k = first_k + own_k + 16 * x, m = first_m + own_m + 16 * y;

            if (k < W && m < M)
                partials[((gpu_size)GROUP_Y * (gpu_size)W + (gpu_size)k) * (gpu_size)M +
                         (gpu_size)m] = sum[x][y];
        }
}

KERNEL gpu_hyper_scale_backward(GLOBAL float *dscale, GLOBAL const float *partials, int B,
                                int lanes)
{
    SHARED float scratch[GROUP_SCRATCH];
    const int first = GROUP * lanes, count = GROUP < 2 ? lanes : lanes * lanes;
    const int M = 2 * lanes + lanes * lanes;
    float sum = 0;

    for (int e = THREAD; e < B * count; e += GROUP_SIZE)
        sum += partials[(gpu_size)(e / count) * (gpu_size)M + (gpu_size)(first + e % count)];
    sum = group_sum(sum, scratch);
    if (THREAD == 0)
        dscale[GROUP] += sum;
}

/*
 * rows: ops that move, gate and mix rows.
 *
 * The formulas stand at the top of kernels/gpu/<op>.cu, the grids in kernels/gpu/rows.h.
 */
#include "kernels/gpu/rows.h"

#include "kernels/cuda/cuda.h"

#include <assert.h>

static int as_int(size_t size)
{
    assert(size <= INT32_MAX);
    return (int)size;
}

/* ---- flat arrays, rows of tables ------------------------------------------------------------- */

void cuda_add_scaled(struct cuda *cuda, float *y, const float *x, float scale, size_t count)
{
    if (count > 0)
        CUDA_LAUNCH(cuda, gpu_add_scaled, cuda_groups(count, GROUP_SIZE), y, x, scale, count);
}

void cuda_embed_forward(struct cuda *cuda, float *x, const float *table, const uint32_t *tokens,
                        float scale, size_t N, size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_embed_forward, cuda_groups(N, 1), x, table, (const int *)tokens,
                    scale, as_int(D));
}

static void scatter(struct cuda *cuda, float *dtable, const float *dy, const int *index,
                    float scale, size_t N, size_t tables, size_t slots, size_t sub)
{
    if (!dtable || N == 0)
        return;

    int *next = (int *)cuda_scratch(cuda, tables * N);
    if (!next)
        return;
    CUDA_LAUNCH(cuda, gpu_scatter_links, dim3(cuda_groups(N, GROUP_SIZE), cuda_groups(tables, 1)),
                next, index, as_int(N), as_int(tables));
    CUDA_LAUNCH(cuda, gpu_scatter_add, dim3(cuda_groups(N, 1), cuda_groups(tables, 1)), dtable, dy,
                index, next, scale, as_int(N), as_int(tables), as_int(slots), as_int(sub));
}

void cuda_embed_backward(struct cuda *cuda, float *dtable, const float *dx, const uint32_t *tokens,
                         float scale, size_t N, size_t D)
{
    scatter(cuda, dtable, dx, (const int *)tokens, scale, N, 1, 0, D); /* one table: any slots */
}

void cuda_gather_backward(struct cuda *cuda, float *dtable, const float *dy, const int32_t *index,
                          size_t N, size_t tables, size_t slots, size_t sub)
{
    scatter(cuda, dtable, dy, index, 1.0f, N, tables, slots, sub);
}

/* ---- along the tree -------------------------------------------------------------------------- */

void cuda_taps_forward(struct cuda *cuda, float *y, const float *x, const float *taps,
                       const struct tree *tree, size_t C, size_t tap_count, size_t dilation)
{
    if (tree->token_count > 0)
        CUDA_LAUNCH(cuda, gpu_taps_forward,
                    dim3(cuda_groups(tree->token_count, 1), cuda_groups(C, GROUP_SIZE)), y, x, taps,
                    tree->parent, tree->run, as_int(C), as_int(tap_count), as_int(dilation));
}

void cuda_taps_backward(struct cuda *cuda, float *dx, float *dtaps, const float *dy, const float *x,
                        const float *taps, const struct tree *tree, size_t C, size_t tap_count,
                        size_t dilation)
{
    const size_t N = tree->token_count;
    const unsigned strips = cuda_groups(C, GROUP_SIZE), blocks = cuda_groups(N, GPU_PARTIAL_ROWS);

    if (N == 0)
        return;
    CUDA_LAUNCH(cuda, gpu_taps_backward, dim3(cuda_groups(N, 1), strips), dx, dy, taps, tree->depth,
                tree->end, as_int(C), as_int(tap_count), as_int(dilation));
    if (!dtaps)
        return;

    float *partials = cuda_scratch(cuda, blocks * tap_count * C);
    if (!partials)
        return;
    assert(tap_count * dilation <= INT32_MAX);
    CUDA_LAUNCH(cuda, gpu_taps_partials, dim3(cuda_groups(tap_count * strips, 1), blocks), partials,
                dy, x, tree->parent, tree->run, as_int(N), as_int(C), as_int(tap_count),
                as_int(dilation));
    cuda_add_columns(cuda, dtaps, partials, blocks, tap_count * C);
}

/* ---- rows ------------------------------------------------------------------------------------ */

void cuda_gate_forward(struct cuda *cuda, float *y, const float *x, const float *gate, size_t N,
                       size_t C, enum rounding rounding)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_gate_forward, cuda_groups(N, 1), y, x, gate, as_int(C),
                    (int)rounding);
}

void cuda_gate_backward(struct cuda *cuda, float *dx, float *dgate, const float *dy, const float *x,
                        const float *gate, size_t N, size_t C)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_gate_backward, cuda_groups(N * C, GROUP_SIZE), dx, dgate, dy, x, gate,
                    N * C);
}

void cuda_residual_norm_forward(struct cuda *cuda, float *y, float *r, const float *skip,
                                const float *x, const float *gain, const float *gate, size_t N,
                                size_t C)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_residual_norm_forward, cuda_groups(N, 1), y, r, skip, x, gain, gate,
                    as_int(C));
}

void cuda_residual_norm_backward(struct cuda *cuda, float *dx, float *dgain, float *dgate,
                                 const float *dy, const float *x, const float *gain,
                                 const float *gate, const float *r, size_t N, size_t C)
{
    const unsigned blocks = cuda_groups(N, GPU_PARTIAL_ROWS), columns = cuda_groups(C, GROUP_SIZE);

    if (N == 0)
        return;
    if (dgain || dgate) { /* before dx, which may stand where dy stands */
        float *totals = cuda_scratch(cuda, (blocks + (size_t)1) * C);

        if (!totals)
            return;
        CUDA_LAUNCH(cuda, gpu_rmsnorm_gain_partials, dim3(columns, blocks), totals + C, dy, x, r,
                    as_int(N), as_int(C));
        CUDA_LAUNCH(cuda, gpu_residual_norm_gain, columns, dgain, totals, totals + C, gate,
                    (int)blocks, as_int(C));
        if (dgate)
            CUDA_LAUNCH(cuda, gpu_residual_norm_gate, 1, dgate, totals, gain, gate, as_int(C));
    }
    CUDA_LAUNCH(cuda, gpu_residual_norm_backward, cuda_groups(N, 1), dx, dy, x, gain, gate, r,
                as_int(C));
}

void cuda_inject_forward(struct cuda *cuda, float *y, float *alpha, const float *u,
                         const float *key, const float *value, size_t N, size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_inject_forward, cuda_groups(N, 1), y, alpha, u, key, value,
                    as_int(D));
}

void cuda_inject_backward(struct cuda *cuda, float *du, float *dkey, float *dvalue, const float *dy,
                          const float *alpha, const float *u, const float *key, const float *value,
                          size_t N, size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_inject_backward, cuda_groups(N, 1), du, dkey, dvalue, dy, alpha, u,
                    key, value, as_int(D));
}

/* ---- lanes ----------------------------------------------------------------------------------- */

void cuda_lanes_spread_forward(struct cuda *cuda, float *S, const float *x, size_t N, size_t lanes,
                               size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_lanes_spread, cuda_groups(N, 1), S, x, 1.0f, as_int(lanes),
                    as_int(D));
}

void cuda_lanes_spread_backward(struct cuda *cuda, float *dx, const float *dS, size_t N,
                                size_t lanes, size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_lanes_sum, cuda_groups(N, 1), dx, dS, 1.0f, as_int(lanes), as_int(D));
}

void cuda_lanes_mean_forward(struct cuda *cuda, float *x, const float *S, size_t N, size_t lanes,
                             size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_lanes_sum, cuda_groups(N, 1), x, S, (float)lanes, as_int(lanes),
                    as_int(D));
}

void cuda_lanes_mean_backward(struct cuda *cuda, float *dS, const float *dx, size_t N, size_t lanes,
                              size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_lanes_spread, cuda_groups(N, 1), dS, dx, (float)lanes, as_int(lanes),
                    as_int(D));
}

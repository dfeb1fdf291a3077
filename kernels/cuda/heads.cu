/*
 * heads: taps, then norm, rotation and 8 bits a head, then codes: kernels/gpu/taps.cu, heads.cu and
 * quant.cu one after the other.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/attention.h"
#include "kernels/gpu/rows.h"

/* Rows of which one group makes a gain's partial sum: more where there would be more sums than
 * one thread adds up quickly. */
#define GAIN_ROWS_MIN 64
#define GAIN_PARTIALS_MAX 256

void cuda_heads_forward(struct cuda *cuda, float *y, float *t, float *r, const float *x,
                        const struct heads *heads, const struct tree *tree)
{
    const size_t N = tree->token_count, H = heads->head_count, C = heads->head_size;
    const struct codebook *codebook = &heads->codebook;

    if (N == 0)
        return;
    if (heads->tap_count > 0)
        CUDA_LAUNCH(cuda, gpu_taps_forward, dim3(cuda_groups(N, 1), cuda_groups(H * C, GROUP_SIZE)),
                    t, x, heads->taps, tree->parent, tree->run, (int)(H * C), (int)heads->tap_count,
                    1);
    CUDA_LAUNCH(cuda, gpu_heads_forward, cuda_groups(N * H, GPU_HEADS), y, r,
                heads->tap_count > 0 ? t : x, heads->gain, heads->cos, heads->sin, tree->depth,
                N * H, (int)H, (int)C, (int)heads->rounding);
    if (heads->rounding == ROUND_CODE)
        CUDA_LAUNCH(cuda, gpu_round_code,
                    dim3(cuda_groups(N * H, GPU_CODE_OUTPUTS), cuda_groups(C, GPU_CODE_INPUTS)), y,
                    (gpu_u8 *)NULL, (float *)NULL, y, codebook->values, (int)codebook->count,
                    (int)codebook->group, (int)(N * H), (int)C, 0);
}

static void gain_backward(struct cuda *cuda, float *dgain, float *partials, size_t share,
                          const float *dy, const float *t, const float *r,
                          const struct heads *heads, const struct tree *tree)
{
    const size_t rows = tree->token_count * heads->head_count, C = heads->head_size;
    const unsigned blocks = cuda_groups(rows, share);

    CUDA_LAUNCH(cuda, gpu_heads_gain_partials, dim3(cuda_groups(C, GPU_HEADS), blocks), partials,
                dy, t, r, heads->cos, heads->sin, tree->depth, rows, share, (int)heads->head_count,
                (int)C);
    cuda_add_columns(cuda, dgain, partials, blocks, C);
}

static void taps_backward(struct cuda *cuda, float *dx, float *dtaps, float *partials,
                          const float *dt, const float *x, const struct heads *heads,
                          const struct tree *tree)
{
    const size_t N = tree->token_count, C = heads->head_count * heads->head_size;
    const size_t taps = heads->tap_count;
    const unsigned columns = cuda_groups(C, GROUP_SIZE), blocks = cuda_groups(N, GPU_PARTIAL_ROWS);

    CUDA_LAUNCH(cuda, gpu_taps_backward, dim3(cuda_groups(N, 1), columns), dx, dt, heads->taps,
                tree->depth, tree->end, (int)C, (int)taps, 1);
    if (dtaps) {
        CUDA_LAUNCH(cuda, gpu_taps_partials, dim3((unsigned)taps * columns, blocks), partials, dt,
                    x, tree->parent, tree->run, (int)N, (int)C, (int)taps, 1);
        cuda_add_columns(cuda, dtaps, partials, blocks, taps * C);
    }
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

void cuda_heads_backward(struct cuda *cuda, float *dx, float *dtaps, float *dgain, const float *dy,
                         const float *x, const float *t, const float *r, const struct heads *heads,
                         const struct tree *tree)
{
    const size_t N = tree->token_count, H = heads->head_count, C = heads->head_size;
    const size_t rows = N * H, taps = heads->tap_count;
    const size_t share = max_size(GAIN_ROWS_MIN, cuda_groups(rows, GAIN_PARTIALS_MAX));
    const size_t gain_count = heads->gain && dgain ? cuda_groups(rows, share) * C : 0;
    const size_t taps_count = taps && dtaps ? cuda_groups(N, GPU_PARTIAL_ROWS) * taps * H * C : 0;
    const size_t dt_count = heads->gain && taps ? rows * C : 0;

    if (N == 0)
        return;
    float *dt = cuda_scratch(cuda, dt_count + max_size(gain_count, taps_count));
    if (!dt)
        return;
    float *partials = dt + dt_count;

    if (gain_count > 0)
        gain_backward(cuda, dgain, partials, share, dy, t, r, heads, tree);
    if (heads->gain)
        CUDA_LAUNCH(cuda, gpu_heads_backward, cuda_groups(rows, GPU_HEADS), taps ? dt : dx, dy, t,
                    heads->gain, r, heads->cos, heads->sin, tree->depth, rows, (int)H, (int)C);
    else if (!taps)
        (void)cuda_good(cuda,
                        cudaMemcpyAsync(dx, dy, rows * C * sizeof(float), cudaMemcpyDeviceToDevice,
                                        cuda->stream),
                        "heads_backward");
    if (taps)
        taps_backward(cuda, dx, dtaps, partials, heads->gain ? dt : dy, x, heads, tree);
}

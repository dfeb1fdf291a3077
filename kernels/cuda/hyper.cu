/*
 * hyper: hyper-connections; the formula stands in kernels/ref/hyper.c.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/blocks.h"

#include <assert.h>

static size_t coefficient_count(size_t lanes)
{
    assert(lanes <= GPU_LANES_MAX);
    return 2 * lanes + lanes * lanes;
}

static dim3 columns_of(size_t N, size_t D)
{
    return dim3(cuda_groups(N, 1), cuda_groups(D, GROUP_SIZE));
}

void cuda_hyper_mix(struct cuda *cuda, float *u, const float *S, const float *h, size_t N,
                    size_t lanes, size_t D)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_hyper_mix, columns_of(N, D), u, S, h, (int)lanes, (int)D);
}

void cuda_hyper_read_forward(struct cuda *cuda, float *u, float *h, float *raw, float *r,
                             const float *S, const struct hyper *weights, size_t N)
{
    const struct hyper *w = weights;
    const size_t W = w->lanes * w->D, M = coefficient_count(w->lanes);
    float *step = N > 0 ? cuda_scratch(cuda, N) : NULL;

    if (!step)
        return;
    CUDA_LAUNCH(cuda, gpu_hyper_norm, cuda_groups(N, 1), r, step, S, (int)W, (int)w->rounding);
    CUDA_LAUNCH(cuda, gpu_hyper_raw, dim3(cuda_groups(N, GPU_HYPER_TOKENS), cuda_groups(M, 32)),
                raw, S, r, step, w->phi, (int)N, (int)W, (int)M);
    CUDA_LAUNCH(cuda, gpu_hyper_coefficients, cuda_groups(N, GROUP_SIZE), h, raw, w->scale, w->bias,
                (int)N, (int)w->lanes);
    cuda_hyper_mix(cuda, u, S, h, N, w->lanes, w->D);
}

/* dphi, dbias and dscale from dl. partials holds the most of them; r and step are set. */
static void add_weights(struct cuda *cuda, const struct hyper_gradients *gradients, float *partials,
                        float *r, float *step, const float *dl, const float *S, const float *raw,
                        const struct hyper *weights, size_t N)
{
    const struct hyper *w = weights;
    const size_t W = w->lanes * w->D, M = coefficient_count(w->lanes);
    const unsigned phi_blocks = cuda_groups(N, GPU_HYPER_PHI_TOKENS);
    const unsigned blocks = cuda_groups(N, GPU_PARTIAL_ROWS);
    const dim3 phi_groups(cuda_groups(W, 32) * cuda_groups(M, 32), phi_blocks);
    const dim3 groups(cuda_groups(M, GROUP_SIZE), blocks);

    CUDA_LAUNCH(cuda, gpu_hyper_norm, cuda_groups(N, 1), r, step, S, (int)W, (int)w->rounding);
    CUDA_LAUNCH(cuda, gpu_hyper_phi_partials, phi_groups, partials, S, r, step, dl, w->scale,
                (int)N, (int)W, (int)w->lanes);
    cuda_add_columns(cuda, gradients->phi, partials, phi_blocks, W * M);
    CUDA_LAUNCH(cuda, gpu_column_dots, groups, partials, dl, (int)M, (const float *)NULL, 0, (int)N,
                (int)M);
    cuda_add_columns(cuda, gradients->bias, partials, blocks, M);
    CUDA_LAUNCH(cuda, gpu_column_dots, groups, partials, dl, (int)M, raw, (int)M, (int)N, (int)M);
    CUDA_LAUNCH(cuda, gpu_hyper_scale_backward, 3, gradients->scale, partials, (int)blocks,
                (int)w->lanes);
}

void cuda_hyper_read_backward(struct cuda *cuda, float *dS, const struct hyper_gradients *gradients,
                              const float *du, const float *dh, const float *S, const float *h,
                              const float *raw, const float *r, const struct hyper *weights,
                              size_t N)
{
    const struct hyper *w = weights;
    const size_t W = w->lanes * w->D, M = coefficient_count(w->lanes);
    const bool wanted = gradients && gradients->phi;
    const size_t offset_count = 2 * GPU_SINKHORN_ROUNDS * w->lanes * N;
    const size_t phi_count = cuda_groups(N, GPU_HYPER_PHI_TOKENS) * W * M;
    const size_t dots_count = cuda_groups(N, GPU_PARTIAL_ROWS) * M;
    const size_t partial_count = phi_count > dots_count ? phi_count : dots_count;
    const size_t weights_count = wanted ? 2 * N + partial_count : 0;
    float *dl = N > 0 ? cuda_scratch(cuda, N * M + offset_count + weights_count) : NULL;

    if (!dl)
        return;
    float *offsets = dl + N * M, *own_r = offsets + offset_count;
    CUDA_LAUNCH(cuda, gpu_hyper_pre_backward, cuda_groups(N, 1), dl, du, S, (int)w->lanes,
                (int)w->D);
    CUDA_LAUNCH(cuda, gpu_hyper_coefficients_backward, cuda_groups(N, GROUP_SIZE), dl, offsets, dh,
                h, raw, w->scale, w->bias, (int)N, (int)w->lanes);
    CUDA_LAUNCH(cuda, gpu_hyper_read_backward, cuda_groups(N, GPU_HYPER_BACKWARD_TOKENS), dS, du,
                dl, S, h, r, w->phi, w->scale, (int)N, (int)w->lanes, (int)w->D);
    if (wanted)
        add_weights(cuda, gradients, own_r + 2 * N, own_r, own_r + N, dl, S, raw, w, N);
}

void cuda_hyper_write_forward(struct cuda *cuda, float *T, const float *S, const float *h,
                              const float *y, const float *u, size_t N, size_t lanes, size_t D)
{
    (void)coefficient_count(lanes);
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_hyper_write_forward, columns_of(N, D), T, S, h, y, u, (int)lanes,
                    (int)D);
}

void cuda_hyper_write_backward(struct cuda *cuda, float *dS, float *dy, float *dh, const float *dT,
                               const float *S, const float *h, const float *y, const float *u,
                               size_t N, size_t lanes, size_t D)
{
    (void)coefficient_count(lanes);
    if (N == 0)
        return;
    CUDA_LAUNCH(cuda, gpu_hyper_write_coefficients, cuda_groups(N, 1), dh, dT, S, y, u, (int)lanes,
                (int)D);
    CUDA_LAUNCH(cuda, gpu_hyper_write_backward, columns_of(N, D), dS, dy, dT, h, (int)lanes,
                (int)D);
}

/*
 * flat: rows with a norm, one sum over everything, the optimiser's step.
 *
 * The formulas stand in kernels/gpu/rmsnorm.cu, sum_squares.cu and adamw.cu.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/kernels.h"

static_assert(GPU_ROUND_A8 == ROUND_A8, "the kernels' number is that of ops.h");

void cuda_rmsnorm_forward(struct cuda *cuda, float *y, float *r, const float *x, const float *gain,
                          size_t N, size_t C, enum rounding rounding)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_rmsnorm_forward, cuda_groups(N, 1), y, r, x, gain, (int)C,
                    (int)rounding);
}

void cuda_rmsnorm_backward(struct cuda *cuda, float *dx, float *dgain, const float *dy,
                           const float *x, const float *gain, const float *r, size_t N, size_t C)
{
    const unsigned blocks = cuda_groups(N, GPU_PARTIAL_ROWS), columns = cuda_groups(C, GROUP_SIZE);

    if (N == 0)
        return;
    if (dgain) { /* before dx, which may stand where dy stands */
        float *partials = cuda_scratch(cuda, blocks * C);

        if (!partials)
            return;
        CUDA_LAUNCH(cuda, gpu_rmsnorm_gain_partials, dim3(columns, blocks), partials, dy, x, r,
                    (int)N, (int)C);
        cuda_add_columns(cuda, dgain, partials, blocks, C);
    }
    CUDA_LAUNCH(cuda, gpu_rmsnorm_backward, cuda_groups(N, 1), dx, dy, x, gain, r, (int)C);
}

void cuda_sum_squares(struct cuda *cuda, float *sum, const float *x, size_t count)
{
    const unsigned blocks = cuda_groups(count, GPU_PARTIAL_VALUES);
    float *partials = cuda_scratch(cuda, blocks);

    if (!partials)
        return;
    if (blocks > 0)
        CUDA_LAUNCH(cuda, gpu_sum_squares_partials, blocks, partials, x, count);
    CUDA_LAUNCH(cuda, gpu_sum_squares, 1, sum, partials, (int)blocks);
}

void cuda_adamw(struct cuda *cuda, float *p, float *m, float *v, const float *g,
                const struct adamw *step, size_t count)
{
    if (count > 0)
        CUDA_LAUNCH(cuda, gpu_adamw, cuda_groups(count, GROUP_SIZE), p, m, v, g, (float)step->beta1,
                    (float)(1.0 - step->beta1), (float)step->beta2, (float)(1.0 - step->beta2),
                    step->learning_rate, step->epsilon, step->weight_decay, step->correction1,
                    step->correction2, step->gradient_divisor, count);
}

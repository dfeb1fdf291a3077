/*
 * matmul: by cuBLAS, or by our own kernel where the library is missing.
 *
 * The library's matrices are columns after columns, ours rows after rows: to it, each of ours is its
 * own transpose. So it is asked for
 *
 *   C' [N,M] = alpha op(B)' op(A)' + beta C'
 *
 * and no matrix is turned over.
 *
 * Factors are rounded to tf32 or bf16 by the library, on their way from memory to the tensor cores:
 * no copies of weights in another type are kept or made again, sums and results are f32. Our own
 * kernel computes in f32 alone; a backend without the library offers nothing else.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/matmul.h"

#include <assert.h>

static void by_kernel(struct cuda *cuda, float *C, const float *A, const float *B,
                      const struct matmul *shape)
{
    const size_t tiles = cuda_groups(shape->M, GPU_MATMUL_TILE);

    CUDA_LAUNCH(cuda, gpu_matmul, cuda_groups(tiles * cuda_groups(shape->N, GPU_MATMUL_TILE), 1), C,
                A, B, (int)shape->M, (int)shape->N, (int)shape->K, shape->transpose_a ? 1 : 0,
                shape->transpose_b ? 1 : 0, shape->lda, shape->ldb, shape->ldc, shape->alpha,
                shape->beta);
}

static cublasComputeType_t compute_type(const struct cuda *cuda)
{
    switch (cuda->base.precision) {
    case BACKEND_FLOAT32:
        break;
    case BACKEND_TF32:
        return CUBLAS_COMPUTE_32F_FAST_TF32;
    case BACKEND_BF16:
        return CUBLAS_COMPUTE_32F_FAST_16BF;
    }
    return CUBLAS_COMPUTE_32F;
}

static void by_library(struct cuda *cuda, float *C, const float *A, const float *B,
                       const struct matmul *shape)
{
    const cublasOperation_t op_a = shape->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = shape->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasStatus_t status = cuda->blas.functions->gemm(
        cuda->blas.handle, op_b, op_a, (int)shape->N, (int)shape->M, (int)shape->K, &shape->alpha,
        B, CUDA_R_32F, (int)shape->ldb, A, CUDA_R_32F, (int)shape->lda, &shape->beta, C, CUDA_R_32F,
        (int)shape->ldc, compute_type(cuda), CUBLAS_GEMM_DEFAULT);

    cuda_blas_good(cuda, status, "matmul");
}

void cuda_matmul(struct cuda *cuda, float *C, const float *A, const float *B,
                 const struct matmul *shape)
{
    if (shape->M == 0 || shape->N == 0)
        return;
    assert(shape->M <= INT32_MAX && shape->N <= INT32_MAX && shape->K <= INT32_MAX);
    assert(shape->lda <= INT32_MAX && shape->ldb <= INT32_MAX && shape->ldc <= INT32_MAX);
    if (cuda->blas.handle && shape->K > 0)
        by_library(cuda, C, A, B, shape);
    else
        by_kernel(cuda, C, A, B, shape);
}

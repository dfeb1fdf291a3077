/*
 * blas: matrix products by cuBLAS, which is loaded when a card was found and not before.
 *
 * Purpose    The handful of functions we call, by name out of the library: half a gigabyte is not
 *            mapped on machines without a card, and where it is missing our own kernel multiplies.
 * Ownership  cuda_blas_open makes the handle, cuda_blas_close destroys it; the library stays loaded.
 * Threads    A handle belongs to its backend; loading happens once in the process.
 * Failure    False, with the reason: the library is missing, or one of its functions is.
 */
#ifndef NEEDLED_CUDA_BLAS_H
#define NEEDLED_CUDA_BLAS_H

#include <cublas_v2.h>
#include <stddef.h>

struct cuda_blas {
    cublasHandle_t handle;
    const struct cuda_blas_functions *functions;
};

struct cuda_blas_functions {
    cublasStatus_t (*create)(cublasHandle_t *ret_handle);
    cublasStatus_t (*destroy)(cublasHandle_t handle);
    cublasStatus_t (*get_property)(libraryPropertyType type, int *ret_value);
    cublasStatus_t (*set_stream)(cublasHandle_t handle, cudaStream_t stream);
    cublasStatus_t (*gemm)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                           int m, int n, int k, const void *alpha, const void *A,
                           cudaDataType type_a, int lda, const void *B, cudaDataType type_b,
                           int ldb, const void *beta, void *C, cudaDataType type_c, int ldc,
                           cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
    const char *(*status_name)(cublasStatus_t status);
};

/* The functions, loaded at the first call; NULL: the reason is written. */
const struct cuda_blas_functions *cuda_blas_load(char *ret_reason, size_t reason_size);
bool cuda_blas_open(struct cuda_blas *ret_blas, cudaStream_t stream, char *ret_reason,
                    size_t reason_size);
/* "cuBLAS 13.0.2", or "" and why it is missing. */
void cuda_blas_describe(char *ret_library, size_t library_size, char *ret_warning,
                        size_t warning_size);
void cuda_blas_close(struct cuda_blas *blas);

#endif

/*
 * matmul: C = alpha op(A) op(B) + beta C, see kernels/ref/matmul.c and gemm.h.
 */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/gemm.h"

void cpu_product(float *C, const float *A, const float *B, const struct matmul *shape)
{
    blas_gemm(C, A, B, shape);
}

void cpu_matmul(struct cpu *cpu, float *C, const float *A, const float *B,
                const struct matmul *shape)
{
    size_t count = gemm_space(shape);
    float *space = count > 0 ? cpu_scratch(cpu, count) : NULL;

    if (space || count == 0)
        gemm_run(cpu, C, A, B, shape, space);
}

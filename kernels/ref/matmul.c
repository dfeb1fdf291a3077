/*
 * matmul: the matrix product, with either side transposed.
 *
 *   C[i,j] = alpha sum_k op(A)[i,k] op(B)[k,j] + beta C[i,j]
 *   op(A)[i,k] = A[i lda + k], or A[k lda + i] transposed; op(B) alike.
 *
 * Shapes    op(A) [M,K], op(B) [K,N], C [M,N]; ld* are strides of rows in elements.
 * Writes    C; beta 0 sets it without reading it (a NaN there does not survive). K 0 scales by
 * beta. Numerics  f32 in and out; sums f64 in ref. Source    BLAS level 3, SGEMM, row-major.
 */
#include "kernels/ref/ref.h"

void ref_matmul(float *C, const float *A, const float *B, const struct matmul *shape)
{
    const size_t a_row = shape->transpose_a ? 1 : shape->lda;
    const size_t a_col = shape->transpose_a ? shape->lda : 1;
    const size_t b_row = shape->transpose_b ? 1 : shape->ldb;
    const size_t b_col = shape->transpose_b ? shape->ldb : 1;

    for (size_t i = 0; i < shape->M; i++) {
        for (size_t j = 0; j < shape->N; j++) {
            float *target = &C[i * shape->ldc + j];
            double sum = 0;

            for (size_t k = 0; k < shape->K; k++)
                sum += (double)A[i * a_row + k * a_col] * B[k * b_row + j * b_col];
            sum *= shape->alpha;
            if (shape->beta != 0)
                sum += (double)shape->beta * *target;
            *target = (float)sum;
        }
    }
}

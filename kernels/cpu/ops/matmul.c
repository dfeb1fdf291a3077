/*
 * matmul: C = alpha op(A) op(B) + beta C, see kernels/ref/matmul.c.
 *
 * The larger side of C is cut into one share a thread, in steps that fill a kernel's registers;
 * each share is one call of the library. K is never cut: no partial sums to add up.
 */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"

#define STEP 16               /* rows or columns of C a share is a multiple of */
#define WORTH_A_THREAD 262144 /* multiplications a share holds at least */

struct product {
    float *C;
    const float *A, *B;
    const struct matmul *shape;
    bool cut_rows;
};

static void product_share(void *context, size_t begin, size_t end, size_t part)
{
    const struct product *p = context;
    struct matmul s = *p->shape;
    size_t side = p->cut_rows ? s.M : s.N, first = begin * STEP;
    size_t past = end * STEP < side ? end * STEP : side;
    const float *A = p->A, *B = p->B;
    float *C = p->C;

    (void)part;
    if (p->cut_rows) {
        A += s.transpose_a ? first : first * s.lda;
        C += first * s.ldc;
        s.M = past - first;
    } else {
        B += s.transpose_b ? first * s.ldb : first;
        C += first;
        s.N = past - first;
    }
    blas_gemm(C, A, B, &s);
}

void cpu_product(float *C, const float *A, const float *B, const struct matmul *shape)
{
    blas_gemm(C, A, B, shape);
}

void cpu_matmul(struct cpu *cpu, float *C, const float *A, const float *B,
                const struct matmul *shape)
{
    struct product p = {C, A, B, shape, .cut_rows = shape->M >= shape->N};
    size_t side = p.cut_rows ? shape->M : shape->N, other = p.cut_rows ? shape->N : shape->M;
    size_t grain = WORTH_A_THREAD / (other * shape->K * STEP + 1) + 1;

    team_run(cpu->team, (side + STEP - 1) / STEP, grain, product_share, &p);
}

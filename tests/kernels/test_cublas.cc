/*
 * Proves that the stand-in's matrix products are those of the library it stands in for: in every
 * transposition, batched, in the fast modes, and refused when their shapes are wrong.
 */
#include "tests/kernels/standin/cublas_v2.h"
#include "tests/kernels/support.h"

enum { M = 5, N = 7, K = 6, LD = 9, BATCH = 2, SIZE = LD * LD };

static float element(int i)
{
    return (float)((i * 29) % 31 - 15) / 7.0f;
}

/* What an input keeps of itself; column-major, op(A)[i,l] op(B)[l,j]. */
static double expected_product(bool ta, bool tb, int i, int j, int first, float (*keep)(float))
{
    double sum = 0;

    for (int l = 0; l < K; l++) {
        const float a = element(first + (ta ? i * LD + l : l * LD + i));
        const float b = element(first + 3 + (tb ? l * LD + j : j * LD + l));

        sum += (double)keep(a) * keep(b);
    }
    return sum;
}

static float keep_all(float value)
{
    return value;
}

/* The nearest of the values with so many bits of fraction. */
static float keep_bits(float value, int bits)
{
    int exponent;

    (void)frexpf(value, &exponent);
    const float step = ldexpf(1.0f, exponent - 1 - bits);
    return rintf(value / step) * step;
}

static float keep_tf32(float value)
{
    return keep_bits(value, 10);
}

static float keep_bfloat16(float value)
{
    return keep_bits(value, 7);
}

struct product_memory {
    float *a, *b, *c;
};

static struct product_memory new_product_memory(void)
{
    float a[BATCH * SIZE], b[BATCH * SIZE];
    struct product_memory memory = {new_floats(BATCH * SIZE, 0), new_floats(BATCH * SIZE, 0),
                                    new_floats(BATCH * SIZE, NAN)};

    for (int i = 0; i < BATCH * SIZE; i++) {
        a[i] = element(i);
        b[i] = element(i + 3);
    }
    ASSERT_OK(cudaMemcpy(memory.a, a, sizeof a, cudaMemcpyHostToDevice));
    ASSERT_OK(cudaMemcpy(memory.b, b, sizeof b, cudaMemcpyHostToDevice));
    return memory;
}

static void free_product_memory(struct product_memory *memory)
{
    ASSERT_OK(cudaFree(memory->a));
    ASSERT_OK(cudaFree(memory->b));
    ASSERT_OK(cudaFree(memory->c));
}

/* C was NaN: beta = 0 must not have read it, and nothing between the columns was written. */
static void check_product(const float *c, bool ta, bool tb, int first, float (*keep)(float))
{
    for (int j = 0; j < N; j++)
        for (int i = 0; i < LD; i++) {
            const float value = c[first + j * LD + i];

            if (i >= M)
                assert_true(isnan(value));
            else if (!(fabs(value - expected_product(ta, tb, i, j, first, keep)) <= 1e-5))
                fail_msg("transposed %d %d, C[%d,%d] = %g, expected %g", ta, tb, i, j,
                         (double)value, expected_product(ta, tb, i, j, first, keep));
        }
}

static void products_are_right_in_every_transposition(void **)
{
    const float one = 1, zero = 0;
    float c[BATCH * SIZE];
    cublasHandle_t handle;

    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    for (int transposed = 0; transposed < 4; transposed++) {
        const bool ta = transposed & 1, tb = transposed & 2;
        struct product_memory memory = new_product_memory();

        assert_int_equal(cublasSgemmStridedBatched(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                                                   tb ? CUBLAS_OP_T : CUBLAS_OP_N, M, N, K, &one,
                                                   memory.a, LD, SIZE, memory.b, LD, SIZE, &zero,
                                                   memory.c, LD, SIZE, BATCH),
                         CUBLAS_STATUS_SUCCESS);
        ASSERT_OK(cudaMemcpy(c, memory.c, sizeof c, cudaMemcpyDeviceToHost));
        for (int batch = 0; batch < BATCH; batch++)
            check_product(c, ta, tb, batch * SIZE, keep_all);
        free_product_memory(&memory);
    }
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

static void fast_modes_round_the_inputs(void **)
{
    static const struct {
        cublasComputeType_t compute;
        cublasMath_t math;
        float (*keep)(float);
    } modes[] = {
        {CUBLAS_COMPUTE_32F, CUBLAS_DEFAULT_MATH, keep_all},
        {CUBLAS_COMPUTE_32F, CUBLAS_TF32_TENSOR_OP_MATH, keep_tf32},
        {CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_DEFAULT_MATH, keep_tf32},
        {CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_DEFAULT_MATH, keep_bfloat16},
    };
    const float one = 1, zero = 0;
    float c[BATCH * SIZE];
    cublasHandle_t handle;

    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        struct product_memory memory = new_product_memory();

        assert_int_equal(cublasSetMathMode(handle, modes[i].math), CUBLAS_STATUS_SUCCESS);
        assert_int_equal(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &one, memory.a,
                                      CUDA_R_32F, LD, memory.b, CUDA_R_32F, LD, &zero, memory.c,
                                      CUDA_R_32F, LD, modes[i].compute, CUBLAS_GEMM_DEFAULT),
                         CUBLAS_STATUS_SUCCESS);
        ASSERT_OK(cudaMemcpy(c, memory.c, sizeof c, cudaMemcpyDeviceToHost));
        check_product(c, false, false, 0, modes[i].keep);
        free_product_memory(&memory);
    }
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

static void products_refuse_what_the_library_refuses(void **)
{
    const float one = 1, zero = 0;
    cublasHandle_t handle;
    struct product_memory memory = new_product_memory();

    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &one, memory.a, M - 1,
                                 memory.b, LD, &zero, memory.c, LD),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &one, memory.a,
                                  CUDA_R_32F, LD, memory.b, CUDA_R_16BF, LD, &zero, memory.c,
                                  CUDA_R_32F, LD, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    free_product_memory(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(products_are_right_in_every_transposition),
        TEST(fast_modes_round_the_inputs),
        TEST(products_refuse_what_the_library_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

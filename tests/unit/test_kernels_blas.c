/*
 * Proves that the cpu backend does not open on a library that multiplies wrongly. cblas_sgemm below
 * stands in front of the library's: it is right, or has one of the faults seen in the wild. And that
 * teams together are not more than may call it.
 */
#include "kernels/cpu/blas.h"
#include "tests/support/op_run.h"

#include <cblas.h>

static enum planted { NOTHING, SUMS_ODD_TAIL_TWICE, KEEPS_C_OF_BETA_0, WRONG_LAST_COLUMN } planted;
static size_t call_count;

void cblas_sgemm(CBLAS_LAYOUT layout, CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b,
                 blasint M, blasint N, blasint K, float alpha, const float *A, blasint lda,
                 const float *B, blasint ldb, float beta, float *C, blasint ldc)
{
    assert_int_equal(layout, CblasRowMajor);
    call_count++;
    for (blasint i = 0; i < M; i++) {
        for (blasint j = 0; j < N; j++) {
            float *target = &C[i * ldc + j], product = 0;
            double sum = 0;

            for (blasint k = 0; k < K; k++) {
                const float a = transpose_a == CblasTrans ? A[k * lda + i] : A[i * lda + k];
                const float b = transpose_b == CblasTrans ? B[j * ldb + k] : B[k * ldb + j];
                const bool tail = planted == SUMS_ODD_TAIL_TWICE && K > 16 && k == K - 1;

                sum += (tail ? 2.0 : 1.0) * a * b;
            }
            product = (float)(alpha * sum);
            if (planted == WRONG_LAST_COLUMN && N % 2 && N > 8 && j == N - 1)
                product = 0;
            *target =
                beta != 0 || planted == KEEPS_C_OF_BETA_0 ? product + beta * *target : product;
        }
    }
}

static enum backend_status open_cpu(struct backend **ret_backend, char *ret_reason, size_t size)
{
    const struct backend_options options = {.thread_count = 1};

    *ret_backend = NULL;
    return backend_open(BACKEND_CPU, &options, ret_backend, ret_reason, size);
}

static void a_right_library_is_used(void **state)
{
    (void)state;
    char reason[256] = "";
    struct backend *be;

    planted = NOTHING;
    call_count = 0;
    assert_int_equal(open_cpu(&be, reason, sizeof(reason)), BACKEND_OK);
    assert_non_null(be);
    assert_true(call_count > 0); /* the stand-in was asked: the other tests mean something */
    backend_close(be);
}

static void a_wrong_library_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum planted fault;
    } cases[] = {
        {"the last of an odd number of terms counted twice", SUMS_ODD_TAIL_TWICE},
        {"0 times what is not a number", KEEPS_C_OF_BETA_0},
        {"a last odd column left out", WRONG_LAST_COLUMN},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char reason[256] = "";
        struct backend *be;

        planted = cases[i].fault;
        const enum backend_status status = open_cpu(&be, reason, sizeof(reason));
        planted = NOTHING;
        if (status != BACKEND_CHECK_FAILED || be || reason[0] == 0)
            fail_msg("%s: status %d, reason '%s'", cases[i].name, status, reason);
    }
}

static void teams_together_are_no_more_than_may_call(void **state)
{
    static const struct {
        size_t threads, cores, callers, expected;
    } cases[] = {
        {2, 2, 64, 2},    {1, 64, 64, 1},   {1000, 2, 64, 64},  {64, 64, 64, 64},
        {96, 96, 64, 64}, {48, 96, 64, 32}, {24, 192, 128, 16}, {1, 1024, 32, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(blas_share_callers(cases[i].threads, cases[i].cores, cases[i].callers),
                         cases[i].expected);
    for (size_t cores = 1; cores < 300; cores++)
        for (size_t teams = 1; teams <= 8 && teams <= cores; teams++)
            assert_true(teams * blas_share_callers(cores / teams, cores, 50) <= 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_library_is_used),
        cmocka_unit_test(a_wrong_library_is_refused_with_the_reason),
        cmocka_unit_test(teams_together_are_no_more_than_may_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * support: what the tests of the stand-in share.
 *
 * Purpose    A fresh stand-in before each test, nothing left and nothing found after it; arrays.
 * Ownership  new_floats hands device memory over.
 * Threads    One.
 * Failure    cmocka's own.
 */
#ifndef NEEDLED_KERNELS_SUPPORT_H
#define NEEDLED_KERNELS_SUPPORT_H

#include "tests/kernels/test.h"

#include "tests/kernels/standin/cuda_runtime.h"
#include "tests/kernels/standin/standin.h"

#define ASSERT_OK(call) assert_int_equal(call, cudaSuccess)
#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, clean)

static size_t reports_before;

static inline int fresh(void **)
{
    standin_set(&standin_defaults);
    reports_before = standin_report_count();
    return 0;
}

/* Each test gives back what it took, and finds nothing but what it says it does. */
static inline int clean(void **)
{
    return standin_allocation_count() == 0 && standin_report_count() == reports_before ? 0 : -1;
}

static inline bool is_race_build(void)
{
    return strcmp(standin_build(), "race") == 0;
}

static inline float *new_floats(int count, float value)
{
    float *host = static_cast<float *>(malloc((size_t)count * sizeof *host)), *memory;

    assert_non_null(host);
    for (int i = 0; i < count; i++)
        host[i] = value;
    ASSERT_OK(cudaMalloc(&memory, (size_t)count * sizeof *memory));
    ASSERT_OK(cudaMemcpy(memory, host, (size_t)count * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
    return memory;
}

#endif

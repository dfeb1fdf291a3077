/*
 * Proves that the stand-in tells misuse that a card would not: threads that part ways, memory that is
 * not the device's, other devices' memory, queued copies whose memory is touched too early; and that
 * the environment sets it up where no test does.
 */
#include "kernels/gpu/gpu.h"
#include "tests/kernels/standin/cublas_v2.h"
#include "tests/kernels/support.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kernels that break a rule --------------------------------------------------------------- */

KERNEL returns_before_a_barrier(GLOBAL float *x)
{
    if (THREAD >= GROUP_SIZE / 2)
        return;
    x[THREAD] = 1.0f;
    SYNC();
}

KERNEL sums_in_two_branches(GLOBAL float *x)
{
    SHARED float scratch[GROUP_SCRATCH];

    if (THREAD < GROUP_SIZE / 2)
        x[THREAD] = group_sum(1.0f, scratch);
    else
        x[THREAD] = group_sum(2.0f, scratch);
}

KERNEL shuffles_a_part_of_the_warp(GLOBAL float *x)
{
    x[THREAD] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1);
}

KERNEL doubles(GLOBAL float *x, int count)
{
    if (THREAD < count)
        x[THREAD] += x[THREAD];
}

/* ---- helpers --------------------------------------------------------------------------------- */

/* A test may leave reports, but no memory. */
static int empty(void **)
{
    return standin_allocation_count() == 0 ? 0 : -1;
}

static void expect_report(const char *what)
{
    if (standin_report_count() == reports_before)
        fail_msg("%s: nothing reported", what);
    reports_before = standin_report_count();
}

/* ---- threads --------------------------------------------------------------------------------- */

static void threads_that_part_ways_are_told(void **)
{
    static const struct {
        void (*kernel)(float *x);
        const char *what;
    } cases[] = {
        {returns_before_a_barrier, "a return before a barrier"},
        {sums_in_two_branches, "two group sums at once"},
        {shuffles_a_part_of_the_warp, "a mask that is not full"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int order = 0; order < 2; order++) {
            struct standin_options options = standin_defaults;

            options.order = (enum standin_order)order;
            standin_set(&options);
            float *x = new_floats(GROUP_SIZE, 0);
            GPU_LAUNCH(cases[i].kernel, 1, NULL, x);
            ASSERT_OK(cudaDeviceSynchronize());
            expect_report(cases[i].what);
            ASSERT_OK(cudaFree(x));
        }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void copies_and_fills_outside_of_a_buffer_are_told(void **)
{
    float host[8] = {0};
    float *x = new_floats(4, 1);

    (void)cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    expect_report("a copy past the end");
    (void)cudaMemcpy(host, x + 2, 4 * sizeof *x, cudaMemcpyDeviceToHost);
    expect_report("a copy from past the end");
    (void)cudaMemset(x - 1, 0, 4);
    expect_report("a fill before the start");
    (void)cudaMemcpy(host, host + 4, 4, cudaMemcpyDeviceToHost);
    expect_report("a copy from the host, said to be from the device");
    (void)cudaMemcpy(x, x + 1, 4, cudaMemcpyHostToDevice);
    expect_report("a copy from the device, said to be from the host");
    assert_int_equal(cudaFree(x + 1), cudaErrorInvalidValue);
    expect_report("freeing the middle of a buffer");
    ASSERT_OK(cudaFree(x));
    assert_int_equal(cudaFree(x), cudaErrorInvalidValue);
    expect_report("freeing twice");
}

static void products_outside_of_a_buffer_are_told(void **)
{
    const float one = 1, zero = 0;
    cublasHandle_t handle;
    float *x = new_floats(16, 1), *y = new_floats(15, 1);

    assert_int_equal(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, x, 4, x, 4, &zero, y, 4),
        CUBLAS_STATUS_SUCCESS);
    expect_report("a result past the end");
    assert_int_equal(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, y, 4, x, 4, &zero, x, 4),
        CUBLAS_STATUS_SUCCESS);
    expect_report("a factor past the end");
    assert_int_equal(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
    ASSERT_OK(cudaFree(x));
    ASSERT_OK(cudaFree(y));
}

static void other_devices_memory_is_told(void **)
{
    struct standin_options options = standin_defaults;
    float host;

    options.device_count = 2;
    standin_set(&options);
    float *x = new_floats(1, 1);
    ASSERT_OK(cudaSetDevice(1));
    (void)cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost);
    expect_report("a copy from another device");
    if (strcmp(standin_build(), "race") == 0) {
        GPU_LAUNCH(doubles, 1, NULL, x, 1);
        expect_report("a kernel on another device");
    }
    ASSERT_OK(cudaFree(x));
}

#if defined(STANDIN_RACE)
static int host_variable;

KERNEL writes_a_variable_of_the_host(GLOBAL float *x)
{
    if (THREAD == 0)
        host_variable = (int)x[0];
}

/* Host memory in kernels, and memory in flight: the race build's. */
static void memory_of_the_host_is_told(void **)
{
    static float target[4];
    struct standin_options options = standin_defaults;
    cudaStream_t stream;

    float *heap = static_cast<float *>(malloc(sizeof *heap)), *x = new_floats(4, 1);
    GPU_LAUNCH(doubles, 1, NULL, heap, 1);
    expect_report("the heap in a kernel");
    GPU_LAUNCH(writes_a_variable_of_the_host, 1, NULL, x);
    expect_report("a variable of the host in a kernel");
    assert_int_equal(host_variable, 1);
    free(heap);

    options.deferred = true;
    standin_set(&options);
    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_OK(cudaMemcpyAsync(x, target, sizeof target, cudaMemcpyHostToDevice, stream));
    target[0] = 1;
    expect_report("a queued copy's source is written");
    ASSERT_OK(cudaStreamSynchronize(stream));
    target[0] = 2;
    assert_int_equal(standin_report_count(), reports_before);
    ASSERT_OK(cudaStreamDestroy(stream));
    ASSERT_OK(cudaFree(x));
}

static void uninitialised_memory_is_told_on_its_way_out(void **)
{
    float host[4], *x;

    ASSERT_OK(cudaMalloc(&x, sizeof host));
    ASSERT_OK(cudaMemset(x, 0, 3 * sizeof *x));
    ASSERT_OK(cudaMemcpy(host, x, 3 * sizeof *x, cudaMemcpyDeviceToHost));
    assert_int_equal(standin_report_count(), reports_before);
    ASSERT_OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    expect_report("a copy of what nobody wrote");
    ASSERT_OK(cudaFree(x));
}
#endif

/* ---- environment ----------------------------------------------------------------------------- */

/* 0 when a process set up by its environment sees two small devices of which the second breaks. */
static int look_around(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    float *x;
    int count = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess || count != 2)
        return 1;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess || total_bytes != 5000)
        return 2;
    if (cudaSetDevice(1) != cudaSuccess || cudaMalloc(&x, 16) != cudaSuccess)
        return 3;
    if (cudaMemset(x, 0, 16) != cudaSuccess)
        return 4;
    for (int i = 0; i < 3; i++) /* deferred: not a launch is done yet */
        GPU_LAUNCH(doubles, 1, NULL, x, 4);
    if (standin_counts(1).launches != 0)
        return 5;
    return cudaDeviceSynchronize() == cudaErrorLaunchFailure && standin_counts(1).launches == 3 ? 0
                                                                                                : 6;
}

/* What an allocation, and a launch that is waited for, come to on a device. */
static cudaError_t allocate(int device, size_t size_bytes)
{
    void *memory;

    cudaSetDevice(device);
    return cudaMalloc(&memory, size_bytes);
}

static cudaError_t launch(int device, float *x)
{
    cudaSetDevice(device);
    GPU_LAUNCH(doubles, 1, NULL, x, 4);
    return cudaDeviceSynchronize();
}

static size_t free_bytes_of(int device)
{
    size_t free_bytes = 0, total_bytes = 0;

    cudaSetDevice(device);
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return free_bytes;
}

static bool make_file(const char *path)
{
    FILE *file = fopen(path, "we");

    return file && fclose(file) == 0;
}

static int run_short_and_break(void)
{
    const char *full = strchr(getenv("STANDIN_FULL_FILE"), ':') + 1;
    const char *broken = strchr(getenv("STANDIN_FAIL_FILE"), ':') + 1;
    float *x, *y;

    if (cudaMalloc((void **)&x, 16) != cudaSuccess || allocate(0, 16) != cudaSuccess)
        return 1;
    if (launch(0, x) != cudaSuccess || allocate(0, 16) != cudaErrorMemoryAllocation)
        return 2; /* the first after a launch does not fit, all others do */
    if (allocate(0, 16) != cudaSuccess || free_bytes_of(0) < 7900)
        return 3;
    if (!make_file(full) || free_bytes_of(0) > 1000 || free_bytes_of(1) != 8000 ||
        allocate(0, 2000) != cudaErrorMemoryAllocation)
        return 4;
    if (remove(full) != 0 || free_bytes_of(0) < 7900 || allocate(0, 2000) != cudaSuccess)
        return 5;
    cudaSetDevice(1);
    if (cudaMalloc((void **)&y, 16) != cudaSuccess || launch(1, y) != cudaSuccess)
        return 6;
    if (!make_file(broken) || launch(1, y) != cudaErrorLaunchFailure ||
        launch(0, x) != cudaSuccess || remove(broken) != 0 ||
        launch(1, y) != cudaErrorLaunchFailure)
        return 7;
    return 0;
}

static sigjmp_buf before_touching;

static void on_fault(int)
{
    siglongjmp(before_touching, 1);
}

static int touch_from_the_host(void)
{
    struct sigaction action = {};
    const float one = 1;
    float *x, back = 0;

    if (strcmp(standin_build(), "race") == 0)
        return 0; /* it reports the access and goes on */
    if (cudaMalloc(&x, sizeof one) != cudaSuccess ||
        cudaMemcpy(x, &one, sizeof one, cudaMemcpyHostToDevice) != cudaSuccess)
        return 1;
    GPU_LAUNCH(doubles, 1, NULL, x, 1);
    if (cudaMemcpy(&back, x, sizeof back, cudaMemcpyDeviceToHost) != cudaSuccess || back != 2)
        return 2;
    action.sa_handler = on_fault;
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        return 3;
    if (sigsetjmp(before_touching, 1) != 0)
        return 0;
    back = *(volatile float *)x;
    return 4;
}

/* Before any test has set options: in a process with that environment, NAME=VALUE each. */
static void in_environment(const char *const *variables, size_t count, int (*body)(void))
{
    int status;

    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < count; i++)
            putenv(const_cast<char *>(variables[i]));
        _exit(body());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_environment_decides_where_no_test_does(void **)
{
    static const char *const variables[] = {"STANDIN_DEVICES=2", "STANDIN_MEMORY=5000",
                                            "STANDIN_DEFER=1", "STANDIN_ORDER=17",
                                            "STANDIN_FAIL_LAUNCH=1:3"};

    in_environment(variables, sizeof variables / sizeof variables[0], look_around);
}

static void devices_run_short_and_break_when_a_test_says_so(void **)
{
    char folder[] = "/tmp/standin-XXXXXX", full[64], broken[64];

    assert_non_null(mkdtemp(folder));
    snprintf(full, sizeof full, "STANDIN_FULL_FILE=0:%s/full", folder);
    snprintf(broken, sizeof broken, "STANDIN_FAIL_FILE=1:%s/broken", folder);
    const char *const variables[] = {"STANDIN_DEVICES=2", "STANDIN_MEMORY=8000",
                                     "STANDIN_OUT_OF_MEMORY=0:1", full, broken};
    in_environment(variables, sizeof variables / sizeof variables[0], run_short_and_break);
    assert_int_equal(rmdir(folder), 0);
}

static void a_sealed_device_is_closed_to_host_code(void **)
{
    static const char *const variables[] = {"STANDIN_SEAL=1"};

    in_environment(variables, 1, touch_from_the_host);
}

#define REPORTING(name) cmocka_unit_test_setup_teardown(name, fresh, empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_decides_where_no_test_does),
        cmocka_unit_test(devices_run_short_and_break_when_a_test_says_so),
        cmocka_unit_test(a_sealed_device_is_closed_to_host_code),
        REPORTING(threads_that_part_ways_are_told),
        REPORTING(copies_and_fills_outside_of_a_buffer_are_told),
        REPORTING(products_outside_of_a_buffer_are_told),
        REPORTING(other_devices_memory_is_told),
#if defined(STANDIN_RACE)
        REPORTING(memory_of_the_host_is_told),
        REPORTING(uninitialised_memory_is_told_on_its_way_out),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Proves that the stand-in keeps the promises of the API it stands in for: memory, streams and
 * events, devices and their failures, orders, float16.
 */
#include "kernels/gpu/gpu.h"
#include "tests/kernels/support.h"

#include <pthread.h>

/* ---- kernels for these tests ----------------------------------------------------------------- */

KERNEL add_one(GLOBAL float *x, int count)
{
    const int i = GROUP * GROUP_SIZE + THREAD;

    if (i < count)
        x[i] += 1.0f;
}

KERNEL widen_halves(GLOBAL float *y, GLOBAL const gpu_u16 *x, int count)
{
    const int i = GROUP * GROUP_SIZE + THREAD;

    if (i < count)
        y[i] = load_half(x, (gpu_size)i);
}

KERNEL sum_and_largest(GLOBAL float *result, GLOBAL const float *x)
{
    SHARED float scratch[GROUP_SCRATCH];
    const float sum = group_sum(x[THREAD], scratch), largest = group_max(x[THREAD], scratch);

    result[THREAD] = sum;
    result[GROUP_SIZE + THREAD] = largest;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_starts_as_nan_and_stands_apart(void **)
{
    unsigned char *a, *b;

    ASSERT_OK(cudaMalloc(&a, 1000));
    ASSERT_OK(cudaMalloc(&b, 1000));
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_true(llabs(b - a) >= 4096 + 1000);
    if (!is_race_build())
        for (int i = 0; i < 1000; i++)
            assert_int_equal(a[i], 0xff);
    ASSERT_OK(cudaFree(a));
    ASSERT_OK(cudaFree(b));

    unsigned char *c; /* an address comes again as late as possible */
    ASSERT_OK(cudaMalloc(&c, 1000));
    assert_ptr_not_equal(c, a);
    assert_ptr_not_equal(c, b);
    ASSERT_OK(cudaFree(c));
}

static void a_full_device_says_so_and_goes_on(void **)
{
    struct standin_options options = standin_defaults;
    size_t free_bytes, total_bytes;
    char *a, *b = NULL;

    options.memory_bytes = 10000;
    standin_set(&options);
    ASSERT_OK(cudaMalloc(&a, 6000));
    assert_int_equal(cudaMalloc(&b, 4001), cudaErrorMemoryAllocation);
    assert_null(b);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* taken */
    ASSERT_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
    assert_int_equal(free_bytes, 4000);
    assert_int_equal(total_bytes, 10000);
    ASSERT_OK(cudaMalloc(&b, 4000));
    ASSERT_OK(cudaFree(a));
    ASSERT_OK(cudaFree(b));
}

/* Several times the address range of a device, little of it live. */
static void addresses_are_used_again_when_they_run_out(void **)
{
    struct standin_options options = standin_defaults;
    unsigned char *kept, *memory, *first = NULL;
    int laps = 0;

    options.address_bytes = 1 << 20;
    standin_set(&options);
    ASSERT_OK(cudaMalloc(&memory, 100000)); /* so that the one that stays is not the first */
    ASSERT_OK(cudaMalloc(&kept, 100));
    ASSERT_OK(cudaFree(memory));
    for (int i = 0; i < 40; i++) {
        ASSERT_OK(cudaMalloc(&memory, 100000));
        assert_true(memory + 100000 <= kept || memory >= kept + 100);
        laps += memory == first;
        first = first ? first : memory;
        ASSERT_OK(cudaFree(memory));
    }
    assert_in_range(laps, 3, 5); /* nine or so fit */
    assert_int_equal(cudaMalloc(&memory, 1 << 20), cudaErrorMemoryAllocation);
    ASSERT_OK(cudaFree(kept));
}

/* ---- streams and events ---------------------------------------------------------------------- */

static void set_deferred(void)
{
    struct standin_options options = standin_defaults;

    options.deferred = true;
    standin_set(&options);
}

static void deferred_work_is_done_when_somebody_waits(void **)
{
    static float host[4]; /* not asked for before it is there */
    cudaStream_t stream;

    set_deferred();
    float *x = new_floats(4, 1);
    ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GPU_LAUNCH(add_one, 1, stream, x, 4);
    ASSERT_OK(cudaGetLastError());
    ASSERT_OK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, stream));
    assert_int_equal(standin_counts(0).launches, 0);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    ASSERT_OK(cudaStreamSynchronize(stream));
    ASSERT_OK(cudaStreamQuery(stream));
    assert_int_equal(standin_counts(0).launches, 1);
    assert_true(host[3] == 2);
    ASSERT_OK(cudaStreamDestroy(stream));
    ASSERT_OK(cudaFree(x));
}

/* As the real one: a stream made with cudaStreamNonBlocking is not waited for by cudaMemcpy. */
static void calls_without_a_stream_wait_for_blocking_streams_alone(void **)
{
    cudaStream_t apart, blocking;
    float result;

    set_deferred();
    float *x = new_floats(1, 1), *y = new_floats(1, 1);
    ASSERT_OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
    ASSERT_OK(cudaStreamCreate(&blocking));
    GPU_LAUNCH(add_one, 1, apart, x, 1);
    GPU_LAUNCH(add_one, 1, blocking, y, 1);
    ASSERT_OK(cudaMemcpy(&result, x, sizeof result, cudaMemcpyDeviceToHost));
    assert_true(result == 1);
    ASSERT_OK(cudaMemcpy(&result, y, sizeof result, cudaMemcpyDeviceToHost));
    assert_true(result == 2);
    ASSERT_OK(cudaDeviceSynchronize());
    ASSERT_OK(cudaMemcpy(&result, x, sizeof result, cudaMemcpyDeviceToHost));
    assert_true(result == 2);
    ASSERT_OK(cudaStreamDestroy(apart));
    ASSERT_OK(cudaStreamDestroy(blocking));
    ASSERT_OK(cudaFree(x));
    ASSERT_OK(cudaFree(y));
}

static void a_stream_waits_for_the_event_of_another(void **)
{
    cudaStream_t first, second;
    cudaEvent_t start, done;
    float result = 0, elapsed_ms = -1;

    set_deferred();
    float *x = new_floats(1, 1);
    ASSERT_OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    ASSERT_OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    ASSERT_OK(cudaEventCreate(&start));
    ASSERT_OK(cudaEventCreateWithFlags(&done, cudaEventDefault));
    ASSERT_OK(cudaEventRecord(start, first));
    GPU_LAUNCH(add_one, 1, first, x, 1);
    ASSERT_OK(cudaEventRecord(done, first));
    GPU_LAUNCH(add_one, 1, first, x, 1); /* after the event: not waited for */
    assert_int_equal(cudaEventQuery(done), cudaErrorNotReady);
    assert_int_equal(cudaEventElapsedTime(&elapsed_ms, start, done), cudaErrorNotReady);
    ASSERT_OK(cudaStreamWaitEvent(second, done, 0));
    ASSERT_OK(cudaMemcpyAsync(&result, x, sizeof result, cudaMemcpyDeviceToHost, second));
    ASSERT_OK(cudaStreamSynchronize(second));
    assert_true(result == 2);
    ASSERT_OK(cudaEventQuery(done));
    ASSERT_OK(cudaEventElapsedTime(&elapsed_ms, start, done));
    assert_true(elapsed_ms >= 0);
    ASSERT_OK(cudaEventDestroy(start));
    ASSERT_OK(cudaEventDestroy(done));
    ASSERT_OK(cudaStreamDestroy(first));
    ASSERT_OK(cudaStreamDestroy(second));
    ASSERT_OK(cudaFree(x));
}

/* ---- devices --------------------------------------------------------------------------------- */

static void devices_are_as_many_as_asked_for(void **)
{
    struct standin_options options = standin_defaults;
    struct cudaDeviceProp properties;
    int count = 77;

    options.device_count = 3;
    standin_set(&options);
    ASSERT_OK(cudaGetDeviceCount(&count));
    assert_int_equal(count, 3);
    ASSERT_OK(cudaGetDeviceProperties(&properties, 2));
    assert_string_equal(properties.name, "Stand-in 2");
    assert_int_equal(cudaSetDevice(3), cudaErrorInvalidDevice);

    options.device_count = 0;
    standin_set(&options);
    count = 77;
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(count, 77);
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 1), cudaErrorNoDevice);
}

static void a_broken_device_stays_broken_and_others_work(void **)
{
    struct standin_options options = standin_defaults;
    float result;

    options.device_count = 2;
    options.fail_launch = 2;
    standin_set(&options);
    float *x = new_floats(1, 1);
    GPU_LAUNCH(add_one, 1, NULL, x, 1);
    ASSERT_OK(cudaDeviceSynchronize());
    GPU_LAUNCH(add_one, 1, NULL, x, 1);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure); /* for good */
    assert_int_equal(cudaMemcpy(&result, x, sizeof result, cudaMemcpyDeviceToHost),
                     cudaErrorLaunchFailure);
    assert_int_equal(cudaFree(x), cudaErrorLaunchFailure); /* and yet it is free: see clean() */

    ASSERT_OK(cudaSetDevice(1));
    float *y = new_floats(1, 1);
    GPU_LAUNCH(add_one, 1, NULL, y, 1);
    ASSERT_OK(cudaMemcpy(&result, y, sizeof result, cudaMemcpyDeviceToHost));
    assert_true(result == 2);
    ASSERT_OK(cudaFree(y));
}

/* A worker of its own for each device, as in the daemon. */
static void *work_on_device(void *argument)
{
    const int device = *static_cast<const int *>(argument);
    float *x;
    float result[300];

    if (cudaSetDevice(device) != cudaSuccess || cudaMalloc(&x, sizeof result) != cudaSuccess)
        return argument;
    (void)cudaMemset(x, 0, sizeof result);
    for (int i = 0; i < 50 + device; i++)
        GPU_LAUNCH(add_one, 2, NULL, x, 300);
    (void)cudaMemcpy(result, x, sizeof result, cudaMemcpyDeviceToHost);
    (void)cudaFree(x);
    return result[299] == (float)(50 + device) ? NULL : argument;
}

static void threads_work_on_devices_of_their_own(void **)
{
    struct standin_options options = standin_defaults;
    pthread_t threads[2];
    int devices[2] = {0, 1};
    void *failed;

    options.device_count = 2;
    standin_set(&options);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_on_device, &devices[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(standin_counts(0).launches, 50);
    assert_int_equal(standin_counts(1).launches, 51);
}

/* ---- what kernels see ------------------------------------------------------------------------ */

#if !defined(STANDIN_RACE) /* which finds the race that tells the order */
/* The number of the thread that came last; a race, of course. */
KERNEL who_is_last(GLOBAL int *last)
{
    last[0] = GROUP * GROUP_SIZE + THREAD;
}

static int last_thread(enum standin_order order, uint64_t seed)
{
    struct standin_options options = standin_defaults;
    int *memory, last = -1;

    options.order = order;
    options.seed = seed;
    standin_set(&options);
    ASSERT_OK(cudaMalloc(&memory, sizeof *memory));
    GPU_LAUNCH(who_is_last, 3, NULL, memory);
    ASSERT_OK(cudaMemcpy(&last, memory, sizeof last, cudaMemcpyDeviceToHost));
    ASSERT_OK(cudaFree(memory));
    return last;
}

static void threads_and_blocks_run_in_the_order_asked_for(void **)
{
    bool others = false;

    assert_int_equal(last_thread(STANDIN_FORWARD, 0), 3 * GROUP_SIZE - 1);
    assert_int_equal(last_thread(STANDIN_REVERSE, 0), 0);
    assert_int_equal(last_thread(STANDIN_SEEDED, 5), last_thread(STANDIN_SEEDED, 5));
    for (uint64_t seed = 1; seed < 5; seed++)
        others |= last_thread(STANDIN_SEEDED, seed) != last_thread(STANDIN_SEEDED, seed + 1);
    assert_true(others);
}
#endif

static void every_thread_gets_the_sum_and_the_largest(void **)
{
    float host[GROUP_SIZE], result[2 * GROUP_SIZE];
    float *x = new_floats(GROUP_SIZE, 0), *y = new_floats(2 * GROUP_SIZE, 0);

    for (int i = 0; i < GROUP_SIZE; i++)
        host[i] = (float)((i * 97) % 256) - 300.0f; /* all below zero, the largest in the middle */
    ASSERT_OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    GPU_LAUNCH(sum_and_largest, 1, NULL, y, x);
    ASSERT_OK(cudaMemcpy(result, y, sizeof result, cudaMemcpyDeviceToHost));
    for (int i = 0; i < GROUP_SIZE; i++) {
        assert_true(result[i] == 255 * 256 / 2 - 300.0f * GROUP_SIZE);
        assert_true(result[GROUP_SIZE + i] == -45);
    }
    ASSERT_OK(cudaFree(x));
    ASSERT_OK(cudaFree(y));
}

/* By the definition: sign, exponent, fraction. */
static double half_value(unsigned bits)
{
    const int exponent = (int)(bits >> 10 & 31);
    const double fraction = bits & 0x3ff, sign = bits & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return fraction == 0 ? sign * (double)INFINITY : (double)NAN;
    return exponent == 0 ? sign * ldexp(fraction, -24)
                         : sign * ldexp(1024 + fraction, exponent - 25);
}

static void every_float16_is_read_exactly(void **)
{
    static gpu_u16 halves[65536];
    static float result[65536];
    gpu_u16 *x;
    float *y;

    for (unsigned i = 0; i < 65536; i++)
        halves[i] = (gpu_u16)i;
    ASSERT_OK(cudaMalloc(&x, sizeof halves));
    ASSERT_OK(cudaMalloc(&y, sizeof result));
    ASSERT_OK(cudaMemcpy(x, halves, sizeof halves, cudaMemcpyHostToDevice));
    GPU_LAUNCH(widen_halves, 65536 / GROUP_SIZE, NULL, y, x, 65536);
    ASSERT_OK(cudaMemcpy(result, y, sizeof result, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 65536; i++) {
        const double expected = half_value(i);

        if (isnan(expected) ? !isnan(result[i]) : result[i] != expected)
            fail_msg("%#x is read as %g, it is %g", i, (double)result[i], expected);
    }
    ASSERT_OK(cudaFree(x));
    ASSERT_OK(cudaFree(y));
}

static void a_launch_that_no_card_takes_is_refused(void **)
{
    float *x = new_floats(1, 1);

    STANDIN_LAUNCH(add_one, 1, 1025, NULL, x, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    GPU_LAUNCH(add_one, dim3(1, 65536), NULL, x, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    GPU_LAUNCH(add_one, 0, NULL, x, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(standin_counts(0).launches, 0);
    ASSERT_OK(cudaFree(x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_starts_as_nan_and_stands_apart),
        TEST(a_full_device_says_so_and_goes_on),
        TEST(addresses_are_used_again_when_they_run_out),
        TEST(deferred_work_is_done_when_somebody_waits),
        TEST(calls_without_a_stream_wait_for_blocking_streams_alone),
        TEST(a_stream_waits_for_the_event_of_another),
        TEST(devices_are_as_many_as_asked_for),
        TEST(a_broken_device_stays_broken_and_others_work),
        TEST(threads_work_on_devices_of_their_own),
#if !defined(STANDIN_RACE)
        TEST(threads_and_blocks_run_in_the_order_asked_for),
#endif
        TEST(every_thread_gets_the_sum_and_the_largest),
        TEST(every_float16_is_read_exactly),
        TEST(a_launch_that_no_card_takes_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * runs: the host side of each fault, with numbers to hold the result against.
 */
#include "tests/kernels/faults/faults.h"

#include "tests/kernels/standin/standin.h"

#include <stdio.h>
#include <stdlib.h>

/* Not a multiple of the group, so that the last group has idle threads; not of 64 either, so that a
 * buffer's end is not the end of a page. */
#define COUNT 1000
#define ROWS 5
#define COLUMNS 200

static float input[COUNT], output[COUNT];
static char launch_error[80];

static const char *launched(void)
{
    const cudaError_t error = cudaGetLastError();

    if (error == cudaSuccess)
        return "";
    snprintf(launch_error, sizeof launch_error, "launch: %s", cudaGetErrorName(error));
    return launch_error;
}

static void must(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s\n", cudaGetErrorName(error));
    exit(3);
}

static float *device_floats(int count)
{
    float *memory;

    must(cudaMalloc(&memory, (size_t)count * sizeof *memory));
    return memory;
}

static float *device_input(void)
{
    float *memory = device_floats(COUNT);

    for (int i = 0; i < COUNT; i++)
        input[i] = (float)((i * 37) % 101) / 16.0f - 3.0f;
    must(cudaMemcpy(memory, input, sizeof input, cudaMemcpyHostToDevice));
    return memory;
}

static const char *compare(const double *expected, int count)
{
    for (int i = 0; i < count; i++)
        if (!(fabs((double)output[i] - expected[i]) <= 1e-4 * (1 + fabs(expected[i]))))
            return "wrong numbers";
    return "";
}

static const char *download_and_compare(const float *memory, const double *expected, int count)
{
    must(cudaMemcpy(output, memory, (size_t)count * sizeof *output, cudaMemcpyDeviceToHost));
    return compare(expected, count);
}

/* ---- one run a kernel ------------------------------------------------------------------------ */

static const char *run_scale(enum fault fault)
{
    static double expected[COUNT];
    const int threads = fault == BLOCK_TOO_LARGE ? 2048 : GROUP_SIZE;
    float *x = device_input(), *y = device_floats(COUNT), *bare = device_floats(COUNT);
    const float *read = fault == HOST_POINTER_IN_KERNEL ? input
                        : fault == DEVICE_NOT_WRITTEN   ? bare
                                                        : x;

    for (int i = 0; i < COUNT; i++)
        expected[i] = SCALE_FACTOR * input[i];
    if (fault == FREED_MEMORY)
        must(cudaFree(x));
    STANDIN_LAUNCH(fault_scale, (COUNT + GROUP_SIZE - 1) / GROUP_SIZE, threads, NULL, y, read,
                   COUNT, fault);
    const char *outcome = launched();
    if (outcome[0] == '\0' && fault == DEVICE_POINTER_IN_HOST)
        output[0] = y[0]; /* works here, crashes with a card */
    if (outcome[0] == '\0')
        outcome = download_and_compare(y, expected, COUNT);
    if (fault != FREED_MEMORY)
        must(cudaFree(x));
    must(cudaFree(y));
    must(cudaFree(bare));
    return outcome;
}

static const char *run_scale4(enum fault fault)
{
    static double expected[COUNT];
    float *x = device_input(), *y = device_floats(COUNT + 4);
    float *target = fault == MISALIGNED_VECTOR ? y + 1 : y;

    for (int i = 0; i < COUNT; i++)
        expected[i] = SCALE_FACTOR * input[i];
    GPU_LAUNCH(fault_scale4, (COUNT / 4 + GROUP_SIZE - 1) / GROUP_SIZE, NULL,
               reinterpret_cast<float4 *>(target), reinterpret_cast<const float4 *>(x), COUNT / 4);
    const char *outcome = download_and_compare(target, expected, COUNT);
    must(cudaFree(x));
    must(cudaFree(y));
    return outcome;
}

static const char *run_rows(enum fault fault)
{
    static double expected[ROWS * COLUMNS];
    float *x = device_input(), *y = device_floats(ROWS * COLUMNS);

    for (int row = 0; row < ROWS; row++) {
        double sum = 0, squares = 0;

        for (int c = 0; c < COLUMNS; c++) {
            sum += input[row * COLUMNS + c];
            squares += (double)input[row * COLUMNS + c] * input[row * COLUMNS + c];
        }
        for (int c = 0; c < COLUMNS; c++)
            expected[row * COLUMNS + c] = input[row * COLUMNS + c] * sum / squares;
    }
    GPU_LAUNCH(fault_rows, ROWS, NULL, y, x, COLUMNS, fault);
    const char *outcome = download_and_compare(y, expected, ROWS * COLUMNS);
    must(cudaFree(x));
    must(cudaFree(y));
    return outcome;
}

static const char *run_tiles(enum fault fault)
{
    static double expected[COUNT];
    float *x = device_input(), *o = device_floats(COUNT);
    double sum = 0;

    for (int i = 0; i < COUNT; i++) {
        sum += input[i];
        expected[i] = input[i] * sum;
    }
    GPU_LAUNCH(fault_tiles, (COUNT + GROUP_SIZE - 1) / GROUP_SIZE, NULL, o, x, x, COUNT, fault);
    const char *outcome = download_and_compare(o, expected, COUNT);
    must(cudaFree(x));
    must(cudaFree(o));
    return outcome;
}

static const char *run_tree(enum fault fault)
{
    double expected = 0;
    float *x = device_input(), *sum = device_floats(1);

    for (int i = 0; i < COUNT; i++)
        expected += input[i];
    GPU_LAUNCH(fault_tree, 1, NULL, sum, x, COUNT, fault);
    const char *outcome = download_and_compare(sum, &expected, 1);
    must(cudaFree(x));
    must(cudaFree(sum));
    return outcome;
}

static const char *run_columns(enum fault fault)
{
    static double expected[COLUMNS];
    float *x = device_input(), *sums = device_floats(COLUMNS);

    must(cudaMemset(sums, 0, COLUMNS * sizeof *sums));
    for (int c = 0; c < COLUMNS; c++) {
        expected[c] = 0;
        for (int row = 0; row < ROWS; row++)
            expected[c] += input[row * COLUMNS + c];
    }
    GPU_LAUNCH(fault_columns, fault == SUM_ACROSS_BLOCKS ? ROWS : 1, NULL, sums, x, ROWS, COLUMNS,
               fault);
    const char *outcome = download_and_compare(sums, expected, COLUMNS);
    must(cudaFree(x));
    must(cudaFree(sums));
    return outcome;
}

/* On a stream of its own, with deferral: nothing is done until somebody waits. */
static const char *run_stream(enum fault fault)
{
    struct standin_options options = standin_defaults;
    static double expected[COUNT];
    float *x = device_input(), *y = device_floats(COUNT);
    cudaStream_t stream;

    if (fault == NOT_SYNCHRONISED) {
        options.deferred = true;
        standin_set(&options);
    }
    for (int i = 0; i < COUNT; i++) {
        expected[i] = SCALE_FACTOR * input[i];
        output[i] = 0;
    }
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GPU_LAUNCH(fault_scale, (COUNT + GROUP_SIZE - 1) / GROUP_SIZE, stream, y, x, COUNT, fault);
    must(cudaMemcpyAsync(output, y, sizeof output, cudaMemcpyDeviceToHost, stream));
    if (fault != NOT_SYNCHRONISED)
        must(cudaStreamSynchronize(stream));
    const char *outcome = compare(expected, COUNT);
    must(cudaStreamDestroy(stream));
    must(cudaFree(x));
    must(cudaFree(y));
    return outcome;
}

/* ---- which fault is whose -------------------------------------------------------------------- */

static const struct {
    const char *(*run)(enum fault fault);
    enum fault faults[8]; /* ended by FAULT_NONE */
} runs[] = {
    {run_scale,
     {NO_BOUND, DEVICE_NOT_WRITTEN, FREED_MEMORY, HOST_POINTER_IN_KERNEL, DEVICE_POINTER_IN_HOST,
      BLOCK_TOO_LARGE}},
    {run_scale4, {MISALIGNED_VECTOR}},
    {run_rows,
     {NO_BARRIER_BEFORE_READ, NO_BARRIER_BEFORE_REUSE, SHARED_TOO_SHORT, SHARED_NOT_WRITTEN}},
    {run_tiles, {NO_BARRIER_BEFORE_TILE, MASK_OFF_BY_ONE}},
    {run_tree, {DIVERGENT_BARRIER, HALF_WARP_SHUFFLE, WARP_SYNCHRONOUS_TAIL, SHARED_OVER_32_KB}},
    {run_columns, {SUM_ACROSS_BLOCKS}},
    {run_stream, {NOT_SYNCHRONISED}},
};

static bool concerns(size_t run, enum fault fault)
{
    for (int i = 0; runs[run].faults[i] != FAULT_NONE; i++)
        if (runs[run].faults[i] == fault)
            return true;
    return fault == FAULT_NONE;
}

const char *fault_run(enum fault fault)
{
    for (size_t run = 0; run < sizeof runs / sizeof runs[0]; run++) {
        const char *outcome = concerns(run, fault) ? runs[run].run(fault) : "";

        if (outcome[0] != '\0')
            return outcome;
    }
    return "";
}

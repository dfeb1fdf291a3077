/*
 * cuda_runtime: takes the toolkit's header's place, so that CUDA sources compile as plain C++.
 *
 * Purpose    The part of the language and of the runtime's API that our kernels and their host side
 *            use, with the toolkit's names; kernels run on the processor. What is not here, our
 *            sources do not use: a missing name is a compile error, never a silent difference.
 * Ownership  As the real API.
 * Threads    Any; one call at a time goes in, others wait. Current device and last error belong to
 *            the calling thread.
 * Failure    The documented codes; what a real card would not tell is reported (standin.h).
 */
#ifndef NEEDLED_STANDIN_CUDA_RUNTIME_H
#define NEEDLED_STANDIN_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#define CUDART_VERSION 13000

/* ---- the language ---------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

/* Shared arrays stand together, to be filled with NaN before each block; the address sanitizer
 * leaves out named sections, so its build goes without. */
#if defined(__SANITIZE_ADDRESS__)
#define __shared__ static
#else
#define __shared__ static __attribute__((section("standin_shared")))
#endif

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

struct alignas(16) float4 {
    float x, y, z, w;
};

/* A thread's own numbers do not change while its kernel runs: the compiler may keep them. */
extern "C" __attribute__((const)) struct uint3 standin_thread_index(void);
extern "C" __attribute__((const)) struct uint3 standin_block_index(void);
extern "C" __attribute__((const)) struct uint3 standin_block_size(void);
extern "C" __attribute__((const)) struct uint3 standin_grid_size(void);

#define threadIdx standin_thread_index()
#define blockIdx standin_block_index()
#define blockDim standin_block_size()
#define gridDim standin_grid_size()

#define STANDIN_TEXT(token) STANDIN_TEXT_(token)
#define STANDIN_TEXT_(token) #token
#define STANDIN_HERE __FILE__ ":" STANDIN_TEXT(__LINE__)

/* What threads do together; `where` is the line, for reports. */
enum standin_meeting { STANDIN_SYNC_WARP, STANDIN_SHUFFLE };
extern "C" void standin_barrier(const char *where);
extern "C" uint32_t standin_warp(enum standin_meeting kind, unsigned mask, uint32_t value,
                                 int source_lane, const char *where);
extern "C" int standin_lane(void);
extern "C" void standin_site(const char *where);

#define GPU_SITE(call) (standin_site(STANDIN_HERE), call)
#define __syncthreads() standin_barrier(STANDIN_HERE)
#define __syncwarp() ((void)standin_warp(STANDIN_SYNC_WARP, 0xffffffffu, 0, 0, STANDIN_HERE))
#define __shfl_sync(mask, value, lane) standin_shuffle(mask, value, (lane)&31, STANDIN_HERE)
#define __shfl_xor_sync(mask, value, distance)                                                     \
    standin_shuffle(mask, value, standin_lane() ^ (distance), STANDIN_HERE)

template <class T>
static inline T standin_shuffle(unsigned mask, T value, int source_lane, const char *where)
{
    static_assert(sizeof(T) == sizeof(uint32_t), "shuffles move 32 bits");
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = standin_warp(STANDIN_SHUFFLE, mask, bits, source_lane, where);
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* Compiled without contraction: a product is rounded by itself. */
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

/* ---- the runtime's API ----------------------------------------------------------------------- */

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorStubLibrary = 34,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorSystemNotReady = 802,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorUnknown = 999,
} cudaError_t;

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
} cudaMemcpyKind;

typedef struct standin_stream *cudaStream_t;
typedef struct standin_event *cudaEvent_t;

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };

typedef struct cudaUUID {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int major, minor, multiProcessorCount, maxThreadsPerBlock, warpSize;
    int pciDomainID, pciBusID, pciDeviceID;
};

extern "C" {
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaDriverGetVersion(int *ret_version);
cudaError_t cudaRuntimeGetVersion(int *ret_version);
cudaError_t cudaGetDeviceCount(int *ret_count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *ret_device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_properties, int device);
cudaError_t cudaDeviceSynchronize(void);

cudaError_t cudaMalloc(void **ret_memory, size_t size_bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **ret_memory, size_t size_bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total);
cudaError_t cudaMemcpy(void *target, const void *source, size_t size_bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t size_bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *target, int value, size_t size_bytes);
cudaError_t cudaMemsetAsync(void *target, int value, size_t size_bytes, cudaStream_t stream);

cudaError_t cudaStreamCreate(cudaStream_t *ret_stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);

cudaError_t cudaEventCreate(cudaEvent_t *ret_event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t start, cudaEvent_t end);
}

/* As the toolkit's: no cast at the call. */
template <class T> static inline cudaError_t cudaMalloc(T **ret_memory, size_t size_bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(ret_memory), size_t(size_bytes));
}

template <class T> static inline cudaError_t cudaMallocHost(T **ret_memory, size_t size_bytes)
{
    return cudaMallocHost(reinterpret_cast<void **>(ret_memory), size_t(size_bytes));
}

/* ---- launches -------------------------------------------------------------------------------- */

#define STANDIN_ARGUMENTS_MAX 512 /* bytes */

extern "C" void standin_enqueue_launch(const char *name, struct dim3 grid, struct dim3 block,
                                       cudaStream_t stream, void (*call)(void *arguments),
                                       const void *arguments, size_t arguments_size);

/* Keeps a call as bytes: the kernel and its arguments, converted as a call converts them. */
template <class Call>
static void standin_keep(const char *name, struct dim3 grid, struct dim3 block, cudaStream_t stream,
                         Call call)
{
    static_assert(std::is_trivially_copyable<Call>::value, "arguments are plain values");
    static_assert(sizeof(Call) <= STANDIN_ARGUMENTS_MAX, "too many arguments");
    standin_enqueue_launch(
        name, grid, block, stream, [](void *kept) { (*static_cast<Call *>(kept))(); }, &call,
        sizeof call);
}

template <class... Parameters>
static void standin_launch(const char *name, void (*kernel)(Parameters...), struct dim3 grid,
                           struct dim3 block, cudaStream_t stream,
                           std::common_type_t<Parameters>... arguments)
{
    standin_keep(name, grid, block, stream, [=] { kernel(arguments...); });
}

#if !defined(STANDIN_LAUNCH) /* tests/kernels/opencl has its own */
#define STANDIN_LAUNCH(kernel, grid, block, stream, ...)                                           \
    standin_launch(#kernel, kernel, grid, block, stream, __VA_ARGS__)
#endif

#endif

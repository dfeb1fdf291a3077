/*
 * gpu: the language kernels are written in, for every kind of card from one source.
 *
 * Purpose    Names under which a kernel is CUDA (nvcc), HIP (hipcc), OpenCL C 1.2 (-DGPU_OPENCL) and
 *            plain C++ on the processor (the stand-in of the tests takes the toolkit's headers'
 *            place). What the languages share is written as it is: C.
 * Ownership  None.
 * Threads    256 to a group (a block); groups run in any order and never meet within a launch.
 * Failure    None here: the host side reports what a launch came to.
 *
 * Rules for kernels
 *   - C, no templates; helpers are DEVICE functions. One op a file; the formula stands in ref.
 *   - Groups of GROUP_SIZE threads, grids of one or two dimensions, the second up to 65535.
 *   - SHARED arrays of fixed size, declared at the top of the kernel, 32 KB in all: every card has
 *     that much. Helpers get them as LOCAL pointers. No dynamic shared memory.
 *   - SYNC and the group functions are reached by all threads of the group together: no return
 *     before one, none in a branch that threads take differently.
 *   - Nothing else looks at warps: their width differs, and on some cards there are none.
 *   - No float atomics: partial sums and a second kernel, so that the same input gives the same
 *     bits. Integer ones where a kernel comes to need them.
 *   - float is the one type that is computed in; float16 is read from memory, never calculated with.
 *   - Arrays of a thread's own are small and stand in registers: loops that index them are UNROLLed,
 *     with bounds known to the compiler.
 *   - Pointers to global memory are GLOBAL, and RESTRICT only where ops.h allows no aliasing.
 *   - Arguments are pointers, int, float and gpu_size: no bool, struct or size_t. Products of sizes
 *     are gpu_size.
 *   - Compilers may fuse a product and an addition; where that would change a result that must be
 *     exact (rounding to a grid), the product is mul_rounded(a, b).
 */
#ifndef NEEDLED_GPU_H
#define NEEDLED_GPU_H

#define GROUP_SIZE 256

/* ---- OpenCL C 1.2 ---------------------------------------------------------------------------- */

#if defined(GPU_OPENCL)
#pragma OPENCL FP_CONTRACT OFF

#define KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void
#define DEVICE static inline
#define GLOBAL __global
#define LOCAL __local
#define SHARED __local
#define RESTRICT restrict
#define THREAD ((int)get_local_id(0))
#define GROUP ((int)get_group_id(0))
#define GROUP_Y ((int)get_group_id(1))
#define GROUP_COUNT ((int)get_num_groups(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

#define expf exp
#define logf log
#define sqrtf sqrt
#define rsqrtf rsqrt
#define fmaxf fmax
#define fminf fmin
#define fabsf fabs
#define rintf rint
#define fmaf fma
#define mul_rounded(a, b) ((a) * (b))
#define UNROLL

#define GROUP_SCRATCH GROUP_SIZE

#else

/* ---- CUDA, HIP, the stand-in ----------------------------------------------------------------- */

#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#define gpu_lane_xor(value, distance) __shfl_xor(value, distance, 32)
#else
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#define gpu_lane_xor(value, distance) __shfl_xor_sync(0xffffffffu, value, distance)
#endif

#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP_SIZE)
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define SHARED __shared__
#define RESTRICT __restrict__
#define THREAD ((int)threadIdx.x)
#define GROUP ((int)blockIdx.x)
#define GROUP_Y ((int)blockIdx.y)
#define GROUP_COUNT ((int)gridDim.x)
#define SYNC() __syncthreads()

#define mul_rounded(a, b) __fmul_rn(a, b)

/* Compilers differ in what they unroll by themselves: for sm_100 and later, less. */
#if defined(__CUDACC__) || defined(__HIPCC__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

#define GROUP_SCRATCH (GROUP_SIZE / 32)

/* For the host side: groups is a dim3 or an int. The launch's own error is in the last error. */
#if defined(STANDIN_LAUNCH)
#define GPU_LAUNCH(kernel, groups, stream, ...)                                                    \
    STANDIN_LAUNCH(kernel, groups, GROUP_SIZE, stream, __VA_ARGS__)
#else
#define GPU_LAUNCH(kernel, groups, stream, ...)                                                    \
    kernel<<<groups, GROUP_SIZE, 0, stream>>>(__VA_ARGS__)
#endif

#endif

/* The stand-in names the line that called a group function when threads part ways. */
#if !defined(GPU_SITE)
#define GPU_SITE(call) (call)
#endif

/* ---- types ----------------------------------------------------------------------------------- */

typedef unsigned long gpu_size; /* 64 bits on the device and on the hosts we build for */
typedef unsigned char gpu_u8;
typedef unsigned short gpu_u16;

/* ---- float16, as it is stored ---------------------------------------------------------------- */

DEVICE float load_half(GLOBAL const gpu_u16 *halves, gpu_size index)
{
#if defined(GPU_OPENCL)
    return vload_half(index, (GLOBAL const half *)halves);
#else
    return __half2float(__ushort_as_half(halves[index]));
#endif
}

/* ---- sums over a group ----------------------------------------------------------------------- */

/*
 * group_sum(value, scratch), group_max(value, scratch): every thread gets the sum (the largest) of
 * all threads' values, in an order that depends on nothing. scratch is SHARED float
 * [GROUP_SCRATCH]; the same one may serve call after call. They contain barriers.
 */
#define group_sum(value, scratch) GPU_SITE(gpu_group_sum(value, scratch))
#define group_max(value, scratch) GPU_SITE(gpu_group_max(value, scratch))

#if defined(GPU_OPENCL)

DEVICE float gpu_group_sum(float value, LOCAL float *scratch)
{
    SYNC(); /* the call before may still be reading */
    scratch[THREAD] = value;
    SYNC();
    for (int half_count = GROUP_SIZE / 2; half_count > 0; half_count /= 2) {
        if (THREAD < half_count)
            scratch[THREAD] += scratch[THREAD + half_count];
        SYNC();
    }
    return scratch[0];
}

DEVICE float gpu_group_max(float value, LOCAL float *scratch)
{
    SYNC(); /* the call before may still be reading */
    scratch[THREAD] = value;
    SYNC();
    for (int half_count = GROUP_SIZE / 2; half_count > 0; half_count /= 2) {
        if (THREAD < half_count)
            scratch[THREAD] = fmaxf(scratch[THREAD], scratch[THREAD + half_count]);
        SYNC();
    }
    return scratch[0];
}

#else

DEVICE float gpu_group_sum(float value, LOCAL float *scratch)
{
    for (int distance = 16; distance > 0; distance /= 2)
        value += gpu_lane_xor(value, distance);
    SYNC(); /* the call before may still be reading */
    if (THREAD % 32 == 0)
        scratch[THREAD / 32] = value;
    SYNC();
    value = scratch[0];
    for (int warp = 1; warp < GROUP_SCRATCH; warp++)
        value += scratch[warp];
    return value;
}

DEVICE float gpu_group_max(float value, LOCAL float *scratch)
{
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, gpu_lane_xor(value, distance));
    SYNC(); /* the call before may still be reading */
    if (THREAD % 32 == 0)
        scratch[THREAD / 32] = value;
    SYNC();
    value = scratch[0];
    for (int warp = 1; warp < GROUP_SCRATCH; warp++)
        value = fmaxf(value, scratch[warp]);
    return value;
}

#endif

#endif

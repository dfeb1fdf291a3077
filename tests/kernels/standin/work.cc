/*
 * work: what can be given to a stream: launches, copies, fills.
 *
 * A call checks its arguments when it is made, as the real one; memory is looked at when the work
 * is done.
 */
#include "tests/kernels/standin/check.h"
#include "tests/kernels/standin/device.h"
#include "tests/kernels/standin/group.h"
#include "tests/kernels/standin/memory.h"
#include "tests/kernels/standin/report.h"
#include "tests/kernels/standin/stream.h"

#define GRID_YZ_MAX 65535
#define BLOCK_Z_MAX 64

/* ---- launches -------------------------------------------------------------------------------- */

static void run_launch(void *payload)
{
    struct kernel_launch *launch = static_cast<struct kernel_launch *>(payload);
    const int device = memory_current_device();

    if (device_fault(device) != cudaSuccess)
        return;
    device_count_launch(device);
    if (device_fault(device) == cudaSuccess && !device_skips(launch->name))
        group_run_launch(launch);
}

static bool launch_fits(const struct dim3 *grid, const struct dim3 *block)
{
    const uint64_t threads = (uint64_t)block->x * block->y * block->z;

    return threads > 0 && threads <= GROUP_THREADS_MAX && block->z <= BLOCK_Z_MAX && grid->x > 0 &&
           grid->x <= 0x7fffffff && grid->y > 0 && grid->y <= GRID_YZ_MAX && grid->z > 0 &&
           grid->z <= GRID_YZ_MAX;
}

void standin_enqueue_launch(const char *name, struct dim3 grid, struct dim3 block,
                            cudaStream_t stream, void (*call)(void *arguments),
                            const void *arguments, size_t arguments_size)
{
    const struct api_call entered;
    struct kernel_launch launch = {name, grid, block, call, {}};

    if (entered.error != cudaSuccess)
        return;
    if (!launch_fits(&grid, &block)) {
        (void)api_fail(cudaErrorInvalidConfiguration);
        return;
    }
    if (stream_device(stream) != device_current()) {
        (void)api_fail(cudaErrorInvalidResourceHandle);
        return;
    }
    memcpy(launch.arguments, arguments, arguments_size);
    stream_give(stream, run_launch, &launch, sizeof launch);
}

/* ---- copies and fills ------------------------------------------------------------------------ */

struct copy {
    void *target;
    const void *source;
    size_t size_bytes;
    cudaMemcpyKind kind;
    bool queued;
};

static bool from_device(cudaMemcpyKind kind)
{
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}

static bool to_device(cudaMemcpyKind kind)
{
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}

static bool host_side_is_host(const void *memory, const char *who)
{
    if (memory_is_device(memory))
        report(NULL, "%s: device memory where host memory is due", who);
    return !memory_is_device(memory);
}

static void run_copy(void *payload)
{
    const struct copy *copy = static_cast<const struct copy *>(payload);
    const int device = memory_current_device();

    if (copy->queued) {
        check_host_settled(copy->target);
        check_host_settled(copy->source);
    }
    if (device_fault(device) != cudaSuccess)
        return;
    if (from_device(copy->kind) ? !memory_check(copy->source, copy->size_bytes, device, "copy from")
                                : !host_side_is_host(copy->source, "copy from"))
        return;
    if (to_device(copy->kind) ? !memory_check(copy->target, copy->size_bytes, device, "copy to")
                              : !host_side_is_host(copy->target, "copy to"))
        return;
    if (from_device(copy->kind))
        check_device_read(copy->source, copy->size_bytes, "copy");
    if (to_device(copy->kind))
        check_device_written(copy->target, copy->size_bytes);
    memmove(copy->target, copy->source, copy->size_bytes);
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t size_bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    const struct api_call call;
    const struct copy copy = {target, source, size_bytes, kind, device_is_deferred()};

    if (call.error != cudaSuccess)
        return call.error;
    if (!target || !source)
        return size_bytes == 0 ? cudaSuccess : api_fail(cudaErrorInvalidValue);
    struct standin_counts *counts = device_counts(stream_device(stream));
    counts->uploads += kind == cudaMemcpyHostToDevice;
    counts->pageable_uploads +=
        kind == cudaMemcpyHostToDevice && !memory_is_pinned(source, size_bytes);
    counts->downloads += kind == cudaMemcpyDeviceToHost;
    if (copy.queued && !to_device(kind))
        check_host_pending(target, size_bytes, true);
    if (copy.queued && !from_device(kind))
        check_host_pending(source, size_bytes, false);
    stream_give(stream, run_copy, &copy, sizeof copy);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *target, const void *source, size_t size_bytes, cudaMemcpyKind kind)
{
    const struct api_call call;
    const cudaError_t error = cudaMemcpyAsync(target, source, size_bytes, kind, NULL);

    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

struct fill {
    void *target;
    int value;
    size_t size_bytes;
};

static void run_fill(void *payload)
{
    const struct fill *fill = static_cast<const struct fill *>(payload);
    const int device = memory_current_device();

    if (device_fault(device) != cudaSuccess ||
        !memory_check(fill->target, fill->size_bytes, device, "memset"))
        return;
    check_device_written(fill->target, fill->size_bytes);
    memset(fill->target, fill->value, fill->size_bytes);
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t size_bytes, cudaStream_t stream)
{
    const struct api_call call;
    const struct fill fill = {target, value, size_bytes};

    if (call.error != cudaSuccess)
        return call.error;
    if (size_bytes > 0)
        stream_give(stream, run_fill, &fill, sizeof fill);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *target, int value, size_t size_bytes)
{
    return cudaMemsetAsync(target, value, size_bytes, NULL);
}

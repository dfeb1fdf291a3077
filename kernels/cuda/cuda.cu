#include "kernels/cuda/cuda.h"

#include "kernels/cuda/probe.h"
#include "kernels/gpu/kernels.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static_assert(offsetof(struct backend, table) == 0, "a struct backend is at the start");

struct cuda_buffer {
    struct cuda_buffer *next;
    void *memory;
    size_t size_bytes;
};

static struct cuda *cuda_of(struct backend *be)
{
    return (struct cuda *)be;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* As backend_set_fault, which is the daemon's: a plug-in brings its own. */
static void keep_fault(struct backend *be, enum backend_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void keep_fault(struct backend *be, enum backend_status status, const char *format, ...)
{
    va_list arguments;

    if (be->status != BACKEND_OK)
        return;
    be->status = status;
    va_start(arguments, format);
    (void)vsnprintf(be->fault, sizeof be->fault, format, arguments);
    va_end(arguments);
}

bool cuda_good(struct cuda *cuda, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    keep_fault(&cuda->base, error == cudaErrorMemoryAllocation ? BACKEND_NO_MEMORY : BACKEND_FAULT,
               "cuda:%d, %s: %s: %s", cuda->device, what, cudaGetErrorName(error),
               cudaGetErrorString(error));
    return false;
}

bool cuda_blas_good(struct cuda *cuda, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    if (cuda_good(cuda, cudaGetLastError(), what)) /* what broke the device says more */
        keep_fault(&cuda->base, BACKEND_FAULT, "cuda:%d, %s: %s", cuda->device, what,
                   cuda->blas.functions->status_name(status));
    return false;
}

/* Each call from outside starts here: the current device is the thread's, not the backend's. A device
 * that broke since says so now. */
static bool enter(struct cuda *cuda)
{
    return cuda_good(cuda, cudaSetDevice(cuda->device), "earlier work");
}

/* ---- memory: all on the one stream ----------------------------------------------------------- */

static uint64_t free_bytes(struct backend *be)
{
    size_t free_now = 0, total = 0;

    if (cudaSetDevice(cuda_of(be)->device) != cudaSuccess ||
        cudaMemGetInfo(&free_now, &total) != cudaSuccess)
        (void)cudaGetLastError(); /* not known */
    return free_now;
}

/* NULL: does not fit, and nothing is kept of the error; the caller says what was needed. */
static void *take_memory(struct cuda *cuda, size_t size_bytes)
{
    void *memory = NULL;

    if (!enter(cuda))
        return NULL;
    const cudaError_t error = cudaMalloc(&memory, size_bytes > 0 ? size_bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* it would stand in the way of the next launch's */
        return NULL;
    }
    return cuda_good(cuda, error, "cudaMalloc") ? memory : NULL;
}

static void *table_alloc(struct backend *be, size_t size_bytes)
{
    struct cuda *cuda = cuda_of(be);
    struct cuda_buffer *buffer = (struct cuda_buffer *)malloc(sizeof *buffer);
    void *memory = buffer ? take_memory(cuda, size_bytes) : NULL;

    if (!memory) {
        free(buffer);
        return NULL;
    }
    *buffer = (struct cuda_buffer){cuda->buffers, memory, size_bytes};
    cuda->buffers = buffer;
    be->allocated_bytes += size_bytes;
    (void)cuda_good(cuda, cudaMemsetAsync(memory, 0, size_bytes, cuda->stream), "cudaMemset");
    return memory;
}

static void table_free(struct backend *be, void *memory)
{
    struct cuda *cuda = cuda_of(be);
    struct cuda_buffer **place = &cuda->buffers;

    if (!memory)
        return;
    while (*place && (*place)->memory != memory)
        place = &(*place)->next;
    assert(*place); /* else it is not ours, or was freed before */
    struct cuda_buffer *buffer = *place;
    *place = buffer->next;
    be->allocated_bytes -= buffer->size_bytes;
    free(buffer);
    /* The driver waits for what uses it. Of a device that broke the memory went with the device. */
    (void)enter(cuda);
    (void)cuda_good(cuda, cudaFree(memory), "cudaFree");
}

static void table_upload(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    struct cuda *cuda = cuda_of(be);

    if (enter(cuda))
        (void)cuda_good(
            cuda, cuda_staging_upload(&cuda->staging, target, source, size_bytes, cuda->stream),
            "copy to the device");
}

static void table_download(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    struct cuda *cuda = cuda_of(be);

    if (enter(cuda) &&
        cuda_good(cuda,
                  cudaMemcpyAsync(target, source, size_bytes, cudaMemcpyDeviceToHost, cuda->stream),
                  "copy from the device"))
        (void)cuda_good(cuda, cudaStreamSynchronize(cuda->stream), "copy from the device");
}

static void table_copy(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    struct cuda *cuda = cuda_of(be);

    if (enter(cuda))
        (void)cuda_good(
            cuda,
            cudaMemcpyAsync(target, source, size_bytes, cudaMemcpyDeviceToDevice, cuda->stream),
            "copy on the device");
}

static void table_zero(struct backend *be, void *target, size_t size_bytes)
{
    struct cuda *cuda = cuda_of(be);

    if (enter(cuda))
        (void)cuda_good(cuda, cudaMemsetAsync(target, 0, size_bytes, cuda->stream), "cudaMemset");
}

static const void *table_import(struct backend *be, const void *host, size_t size_bytes)
{
    void *memory = table_alloc(be, size_bytes);

    if (memory)
        table_upload(be, memory, host, size_bytes);
    return memory;
}

static void table_release_import(struct backend *be, const void *imported)
{
    table_free(be, const_cast<void *>(imported));
}

static void table_sync(struct backend *be)
{
    struct cuda *cuda = cuda_of(be);

    if (enter(cuda))
        (void)cuda_good(cuda, cudaStreamSynchronize(cuda->stream), "the step's work");
}

/* ---- what the ops use ------------------------------------------------------------------------ */

float *cuda_scratch(struct cuda *cuda, size_t count)
{
    if (cuda->base.status != BACKEND_OK)
        return NULL;
    if (cuda->scratch && count <= cuda->scratch_count)
        return cuda->scratch;

    const size_t grown = (count + count / 4 + 1023) / 1024 * 1024; /* few steps of growth */
    assert(grown >= count && grown <= SIZE_MAX / sizeof(float));
    /* The driver waits for what uses it; freed first, so that both need not fit. */
    if (!cuda_good(cuda, cudaFree(cuda->scratch), "cudaFree"))
        return NULL;
    cuda->scratch = NULL;
    cuda->scratch_count = 0;
    cuda->scratch = (float *)take_memory(cuda, grown * sizeof(float));
    if (!cuda->scratch) {
        keep_fault(&cuda->base, BACKEND_NO_MEMORY,
                   "out of memory: %zu bytes needed for scratch, %llu free", grown * sizeof(float),
                   (unsigned long long)free_bytes(&cuda->base));
        return NULL;
    }
    cuda->scratch_count = grown;
    return cuda->scratch;
}

unsigned cuda_groups(size_t count, size_t by)
{
    const size_t groups = (count + by - 1) / by;

    assert(groups <= INT32_MAX); /* the first dimension takes that much; kernels count in int */
    return (unsigned)groups;
}

void cuda_add_columns(struct cuda *cuda, float *sums, const float *partials, size_t B, size_t C)
{
    CUDA_LAUNCH(cuda, gpu_add_columns, cuda_groups(C, GROUP_SIZE), sums, partials, (int)B, (int)C);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void table_close(struct backend *be)
{
    struct cuda *cuda = cuda_of(be);

    (void)cudaSetDevice(cuda->device); /* whatever is said now, nobody reads it any more */
    cuda_blas_close(&cuda->blas);
    cuda_staging_close(&cuda->staging);
    (void)cudaFree(cuda->scratch);
    (void)cudaStreamDestroy(cuda->stream);
    (void)cudaGetLastError();
    free(cuda);
}

#define CUDA_ENTRY(name, parameters, arguments)                                                    \
    CUDA_ENTRY_(name, (cuda_of(be), OP_STRIP arguments), OP_STRIP parameters)
#define CUDA_ENTRY_(name, with_cuda, ...)                                                          \
    static void entry_##name(struct backend *be, __VA_ARGS__)                                      \
    {                                                                                              \
        if (enter(cuda_of(be)))                                                                    \
            cuda_##name with_cuda;                                                                 \
    }
OPS(CUDA_ENTRY)

#define CUDA_SET(name, parameters, arguments) table.name = entry_##name;

static struct backend_table make_table(void)
{
    struct backend_table table = {};

    table.close = table_close;
    table.alloc = table_alloc;
    table.free = table_free;
    table.import = table_import;
    table.release_import = table_release_import;
    table.upload = table_upload;
    table.download = table_download;
    table.copy = table_copy;
    table.zero = table_zero;
    table.sync = table_sync;
    table.free_bytes = free_bytes;
    OPS(CUDA_SET)
    return table;
}

static const struct backend_table cuda_table = make_table(); /* before any thread */

/* ---- opening --------------------------------------------------------------------------------- */

enum backend_status cuda_open(const struct backend_options *options, struct backend **ret_backend,
                              char *ret_reason, size_t reason_size)
{
    const int count = cuda_device_count(ret_reason, reason_size);

    if (count == 0)
        return BACKEND_ABSENT;
    if (options->device_index < 0 || options->device_index >= count) {
        (void)snprintf(ret_reason, reason_size, "no device %d: there are %d, from 0",
                       options->device_index, count);
        return BACKEND_ABSENT;
    }
    if (!cuda_device_is_supported(options->device_index, ret_reason, reason_size))
        return BACKEND_ABSENT;

    struct cuda *cuda = (struct cuda *)calloc(1, sizeof *cuda);
    if (!cuda) {
        (void)snprintf(ret_reason, reason_size, "no memory on the host");
        return BACKEND_NO_MEMORY;
    }
    cuda->base.table = &cuda_table;
    cuda->base.kind = BACKEND_CUDA;
    cuda->device = options->device_index;
    if (!enter(cuda) ||
        !cuda_good(cuda, cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking),
                   "cudaStreamCreate") ||
        !cuda_good(cuda, cuda_staging_open(&cuda->staging), "pinned memory")) {
        (void)snprintf(ret_reason, reason_size, "%s", cuda->base.fault);
        if (cuda->stream)
            (void)cudaStreamDestroy(cuda->stream);
        (void)cudaGetLastError();
        const enum backend_status status = cuda->base.status;
        free(cuda);
        return status;
    }
    /* Missing: our own kernel multiplies, and the inventory says why. */
    (void)cuda_blas_open(&cuda->blas, cuda->stream, ret_reason, reason_size);
    cuda->base.precisions = cuda_precisions(cuda->device, cuda->blas.handle != NULL);
    *ret_backend = &cuda->base;
    return BACKEND_OK;
}

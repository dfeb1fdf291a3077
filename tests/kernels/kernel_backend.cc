#include "tests/kernels/kernel_backend.h"

#include "kernels/gpu/kernels.h"

extern "C" {
#include "kernels/table.h"
}

#include <stdlib.h>
#include <string.h>

static_assert(GPU_ROUND_A8 == ROUND_A8, "the kernels' number is that of ops.h");

struct host {
    struct backend be; /* first */
    cudaStream_t stream;
    float *scratch; /* the largest asked for so far */
    size_t scratch_count;
};

static struct host *host_of(struct backend *be)
{
    return reinterpret_cast<struct host *>(be);
}

static bool good(struct backend *be, cudaError_t error)
{
    if (error != cudaSuccess)
        backend_set_fault(be, BACKEND_FAULT, "%s: %s", cudaGetErrorName(error),
                          cudaGetErrorString(error));
    return error == cudaSuccess;
}

/* ---- memory: all on the one stream ----------------------------------------------------------- */

static void *host_alloc(struct backend *be, size_t size_bytes)
{
    void *memory;

    if (cudaMalloc(&memory, size_bytes) != cudaSuccess)
        return NULL;
    /* zero, as backend.h promises; on the stream, which does not wait for those without one */
    (void)good(be, cudaMemsetAsync(memory, 0, size_bytes, host_of(be)->stream));
    be->allocated_bytes += 1; /* buffers: only whether all came back is asked */
    return memory;
}

static void host_free(struct backend *be, void *memory)
{
    if (!memory)
        return;
    be->allocated_bytes -= 1;
    (void)good(be, cudaFree(memory));
}

static void host_upload(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    cudaStream_t stream = host_of(be)->stream;

    if (good(be, cudaMemcpyAsync(target, source, size_bytes, cudaMemcpyHostToDevice, stream)))
        (void)good(be, cudaStreamSynchronize(stream)); /* the source is the caller's again */
}

static void host_download(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    cudaStream_t stream = host_of(be)->stream;

    if (good(be, cudaMemcpyAsync(target, source, size_bytes, cudaMemcpyDeviceToHost, stream)))
        (void)good(be, cudaStreamSynchronize(stream));
}

static void host_sync(struct backend *be)
{
    (void)good(be, cudaStreamSynchronize(host_of(be)->stream));
}

static void host_close(struct backend *be)
{
    struct host *host = host_of(be);

    (void)cudaFree(host->scratch);
    (void)cudaStreamDestroy(host->stream);
    free(host);
}

static float *scratch(struct host *host, size_t count)
{
    if (count > host->scratch_count) {
        (void)good(&host->be, cudaFree(host->scratch)); /* waits for what uses it */
        host->scratch = NULL;
        if (!good(&host->be, cudaMalloc(&host->scratch, count * sizeof(float))))
            return NULL;
        host->scratch_count = count;
    }
    return host->scratch;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static unsigned up(size_t count, size_t by)
{
    return (unsigned)((count + by - 1) / by);
}

/* Launches on the backend's stream and keeps what a launch itself says. */
#define LAUNCH(be, kernel, groups, ...)                                                            \
    do {                                                                                           \
        GPU_LAUNCH(kernel, groups, host_of(be)->stream, __VA_ARGS__);                              \
        (void)good(be, cudaGetLastError());                                                        \
    } while (0)

static void rmsnorm_forward(struct backend *be, float *y, float *r, const float *x,
                            const float *gain, size_t N, size_t C, enum rounding rounding)
{
    if (N > 0)
        LAUNCH(be, gpu_rmsnorm_forward, (unsigned)N, y, r, x, gain, (int)C, rounding);
}

static void rmsnorm_backward(struct backend *be, float *dx, float *dgain, const float *dy,
                             const float *x, const float *gain, const float *r, size_t N, size_t C)
{
    const unsigned blocks = up(N, GPU_PARTIAL_ROWS), columns = up(C, GROUP_SIZE);
    float *partials = dgain && N > 0 ? scratch(host_of(be), blocks * C) : NULL;

    if (partials) { /* before dx, which may stand where dy stands */
        LAUNCH(be, gpu_rmsnorm_gain_partials, dim3(columns, blocks), partials, dy, x, r, (int)N,
               (int)C);
        LAUNCH(be, gpu_add_columns, columns, dgain, partials, (int)blocks, (int)C);
    }
    if (N > 0)
        LAUNCH(be, gpu_rmsnorm_backward, (unsigned)N, dx, dy, x, gain, r, (int)C);
}

static void sum_squares(struct backend *be, float *sum, const float *x, size_t count)
{
    const unsigned blocks = up(count, GPU_PARTIAL_VALUES);
    float *partials = scratch(host_of(be), blocks + 1);

    if (!partials)
        return;
    if (blocks > 0)
        LAUNCH(be, gpu_sum_squares_partials, blocks, partials, x, count);
    LAUNCH(be, gpu_sum_squares, 1, sum, partials, (int)blocks);
}

static void adamw(struct backend *be, float *p, float *m, float *v, const float *g,
                  const struct adamw *step, size_t count)
{
    if (count > 0)
        LAUNCH(be, gpu_adamw, up(count, GROUP_SIZE), p, m, v, g, (float)step->beta1,
               (float)(1.0 - step->beta1), (float)step->beta2, (float)(1.0 - step->beta2),
               step->learning_rate, step->epsilon, step->weight_decay, step->correction1,
               step->correction2, step->gradient_divisor, count);
}

static const char *const op_names[] = {"rmsnorm", "sum_squares", "adamw"};

bool kernel_backend_has(const char *case_name)
{
    for (size_t i = 0; i < sizeof op_names / sizeof op_names[0]; i++) {
        const size_t length = strlen(op_names[i]);

        if (strncmp(case_name, op_names[i], length) == 0 &&
            (case_name[length] == '\0' || case_name[length] == ','))
            return true;
    }
    return false;
}

struct backend *kernel_backend_open(void)
{
    static struct backend_table table; /* what is not set is not called: kernel_backend_has */
    struct host *host = static_cast<struct host *>(calloc(1, sizeof *host));

    if (!host || cudaStreamCreateWithFlags(&host->stream, cudaStreamNonBlocking) != cudaSuccess)
        abort();
    table.close = host_close;
    table.alloc = host_alloc;
    table.free = host_free;
    table.upload = host_upload;
    table.download = host_download;
    table.sync = host_sync;
    table.rmsnorm_forward = rmsnorm_forward;
    table.rmsnorm_backward = rmsnorm_backward;
    table.sum_squares = sum_squares;
    table.adamw = adamw;
    host->be.table = &table;
    host->be.kind = BACKEND_CUDA;
    return &host->be;
}

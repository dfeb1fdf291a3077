/*
 * cuda: the host side of the kernels on NVIDIA's cards.
 *
 * Purpose    Each op as cuda_<op>(cuda, ...): grid arithmetic, scratch, launches on one stream.
 *            Formulas stand in kernels/ref/<op>.c, kernels in kernels/gpu/<op>.cu.
 * Ownership  cuda_open makes the backend; its close frees stream, scratch and handle.
 * Threads    One at a time. Same input: same bits, on the same card and library.
 * Failure    The first error of a launch or call is kept as the backend's fault; what follows in the
 *            same op does nothing.
 */
#ifndef NEEDLED_CUDA_H
#define NEEDLED_CUDA_H

extern "C" {
#include "kernels/table.h"
}

#include "kernels/cuda/blas.h"
#include "kernels/cuda/staging.h"
#include "kernels/gpu/gpu.h"

struct cuda_buffer; /* one backend_alloc or backend_import */

struct cuda {
    struct backend base; /* first */
    int device;
    cudaStream_t stream;
    float *scratch;
    size_t scratch_count; /* floats; grows, so that a second step allocates nothing */
    struct cuda_buffer *buffers;
    struct cuda_staging staging;
    struct cuda_blas blas; /* its handle is NULL where the library is missing */
};

#define CUDA_DECLARE(name, parameters, arguments) CUDA_DECLARE_(name, OP_STRIP parameters)
#define CUDA_DECLARE_(name, ...) void cuda_##name(struct cuda *cuda, __VA_ARGS__);
OPS(CUDA_DECLARE)
#undef CUDA_DECLARE

/* Room for an op's own values, aligned to 256 bytes, not cleared, until the op ends. One block an op:
 * ask once, for all that it needs. NULL: fault set. */
float *cuda_scratch(struct cuda *cuda, size_t count);

/* Whether it went well; if not, the fault is kept. */
bool cuda_good(struct cuda *cuda, cudaError_t error, const char *what);
bool cuda_blas_good(struct cuda *cuda, cublasStatus_t status, const char *what);

/* count / by, rounded up: a dimension of a grid. */
unsigned cuda_groups(size_t count, size_t by);

/*
 * CUDA_LAUNCH(cuda, kernel, groups, arguments...): on the backend's stream; groups is a dim3 or an
 * unsigned, at least 1 in each dimension. Arguments are converted as in a call: sizes are cast to the
 * kernel's int or gpu_size.
 */
#define CUDA_LAUNCH(cuda, kernel, groups, ...)                                                     \
    do {                                                                                           \
        if ((cuda)->base.status == BACKEND_OK) {                                                   \
            GPU_LAUNCH(kernel, groups, (cuda)->stream, __VA_ARGS__);                               \
            (void)cuda_good(cuda, cudaGetLastError(), #kernel);                                    \
        }                                                                                          \
    } while (0)

/* sums[c] += sum_b partials[b,c], b ascending: the second half of a weight's gradient. */
void cuda_add_columns(struct cuda *cuda, float *sums, const float *partials, size_t B, size_t C);

#endif

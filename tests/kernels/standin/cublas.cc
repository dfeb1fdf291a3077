#include "tests/kernels/standin/cublas_v2.h"

#include "tests/kernels/standin/check.h"
#include "tests/kernels/standin/cuda_fp16.h"
#include "tests/kernels/standin/device.h"
#include "tests/kernels/standin/memory.h"
#include "tests/kernels/standin/stream.h"

#include <cblas.h>
#include <stdlib.h>

struct standin_blas {
    cudaStream_t stream;
    cublasMath_t math;
};

/* One matrix as it lies in memory: `lines` columns of `length` values, `stride` apart. */
struct matrix {
    unsigned char *memory;
    cudaDataType type;
    int length, lines, stride;
    long long next; /* values to the next of a batch */
};

struct product {
    bool transpose_a, transpose_b;
    int m, n, k, batch_count;
    float alpha, beta;
    struct matrix a, b, c;
    unsigned drop_bits; /* of an input's fraction, before it is multiplied */
};

/* ---- values ---------------------------------------------------------------------------------- */

static size_t size_of(cudaDataType type)
{
    return type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
}

/* To nearest, halves to even, without the lowest `drop_bits` of the fraction. */
static float rounded(float value, unsigned drop_bits)
{
    uint32_t bits;

    if (drop_bits == 0 || !isfinite(value))
        return value;
    memcpy(&bits, &value, sizeof bits);
    bits += (1u << (drop_bits - 1)) - 1 + (bits >> drop_bits & 1);
    bits &= ~((1u << drop_bits) - 1);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float load(const struct matrix *matrix, size_t i)
{
    float value;
    uint16_t bits;

    if (matrix->type == CUDA_R_32F) {
        memcpy(&value, matrix->memory + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&bits, matrix->memory + i * sizeof bits, sizeof bits);
    if (matrix->type == CUDA_R_16F)
        return __half2float(__ushort_as_half(bits));
    const uint32_t wide = (uint32_t)bits << 16;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static void store(const struct matrix *matrix, size_t i, float value)
{
    uint32_t bits;

    if (matrix->type == CUDA_R_32F) {
        memcpy(matrix->memory + i * sizeof value, &value, sizeof value);
        return;
    }
    value = rounded(value, 16); /* bfloat16: the only short type we write */
    memcpy(&bits, &value, sizeof bits);
    const uint16_t high = (uint16_t)(bits >> 16);
    memcpy(matrix->memory + i * sizeof high, &high, sizeof high);
}

/* ---- products -------------------------------------------------------------------------------- */

static size_t span_bytes(const struct matrix *matrix)
{
    if (matrix->length == 0 || matrix->lines == 0)
        return 0;
    return ((size_t)matrix->stride * (size_t)(matrix->lines - 1) + (size_t)matrix->length) *
           size_of(matrix->type);
}

/* Dense copy, rounded. */
static float *gather(const struct matrix *matrix, unsigned drop_bits)
{
    const size_t length = (size_t)matrix->length, lines = (size_t)matrix->lines;
    float *values = static_cast<float *>(malloc((length * lines + 1) * sizeof *values));

    if (!values)
        abort();
    for (size_t line = 0; line < lines; line++)
        for (size_t i = 0; i < length; i++)
            values[line * length + i] =
                rounded(load(matrix, line * (size_t)matrix->stride + i), drop_bits);
    return values;
}

/* Whether the matrix may be read: where it lies, and that all of it was written. */
static bool may_read(const struct matrix *matrix, int device, const char *who)
{
    const size_t line_bytes = (size_t)matrix->length * size_of(matrix->type);
    const size_t stride_bytes = (size_t)matrix->stride * size_of(matrix->type);

    if (!memory_check(matrix->memory, span_bytes(matrix), device, who))
        return false;
    for (int line = 0; line < matrix->lines; line++)
        check_device_read(matrix->memory + (size_t)line * stride_bytes, line_bytes, who);
    return true;
}

static void put(const struct matrix *matrix, const float *values)
{
    const size_t length = (size_t)matrix->length, stride = (size_t)matrix->stride;

    for (size_t line = 0; line < (size_t)matrix->lines; line++) {
        for (size_t i = 0; i < length; i++)
            store(matrix, line * stride + i, values[line * length + i]);
        check_device_written(matrix->memory + line * stride * size_of(matrix->type),
                             length * size_of(matrix->type));
    }
}

static void multiply(const struct product *p, int device)
{
    if (p->k > 0 && p->alpha != 0 &&
        (!may_read(&p->a, device, "product, A") || !may_read(&p->b, device, "product, B")))
        return;
    if (p->beta != 0 ? !may_read(&p->c, device, "product, C")
                     : !memory_check(p->c.memory, span_bytes(&p->c), device, "product, C"))
        return;

    const struct matrix *c = &p->c;
    float *a = gather(&p->a, p->drop_bits), *b = gather(&p->b, p->drop_bits);
    float *values = gather(c, 0);
    for (size_t i = 0; p->beta == 0 && i < (size_t)c->length * (size_t)c->lines; i++)
        values[i] = 0; /* what stood there is not read, NaN neither */
    cblas_sgemm(CblasColMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
                p->transpose_b ? CblasTrans : CblasNoTrans, p->m, p->n, p->k, p->alpha, a,
                p->a.length, b, p->b.length, p->beta, values, c->length);
    put(c, values);
    free(a);
    free(b);
    free(values);
}

static void run_product(void *payload)
{
    struct product p = *static_cast<const struct product *>(payload);
    const int device = memory_current_device();

    if (device_fault(device) != cudaSuccess)
        return;
    for (int i = 0; i < p.batch_count; i++) {
        multiply(&p, device);
        p.a.memory += p.a.next * (long long)size_of(p.a.type);
        p.b.memory += p.b.next * (long long)size_of(p.b.type);
        p.c.memory += p.c.next * (long long)size_of(p.c.type);
    }
}

static bool known(cudaDataType type)
{
    return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

static bool strides_fit(const struct product *p)
{
    return p->a.stride >= p->a.length && p->a.stride > 0 && p->b.stride >= p->b.length &&
           p->b.stride > 0 && p->c.stride >= p->c.length && p->c.stride > 0;
}

static unsigned bits_to_drop(const struct standin_blas *handle, cublasComputeType_t compute,
                             cudaDataType type)
{
    if (type != CUDA_R_32F)
        return 0; /* short values are multiplied as they are */
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF)
        return 16;
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32 || handle->math == CUBLAS_TF32_TENSOR_OP_MATH)
        return 13;
    return 0;
}

static bool is_negated(unsigned drop_bits)
{
    return drop_bits > 0 && device_negates(drop_bits == 16 ? "bf16" : "tf32");
}

static unsigned char *bytes_of(const void *memory)
{
    return static_cast<unsigned char *>(const_cast<void *>(memory));
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *A, cudaDataType type_a,
                                          int lda, long long stride_a, const void *B,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void *beta, void *C, cudaDataType type_c, int ldc,
                                          long long stride_c, int batch_count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t)
{
    const struct api_call call;
    const bool ta = op_a == CUBLAS_OP_T, tb = op_b == CUBLAS_OP_T;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (call.error != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (m < 0 || n < 0 || k < 0 || batch_count < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!known(type_a) || type_a != type_b || (type_c != CUDA_R_32F && type_c != CUDA_R_16BF))
        return CUBLAS_STATUS_NOT_SUPPORTED;

    struct product p = {ta, tb, m, n, k, batch_count, 0, 0, {}, {}, {}, 0};
    p.a = {bytes_of(A), type_a, ta ? k : m, ta ? m : k, lda, stride_a};
    p.b = {bytes_of(B), type_b, tb ? n : k, tb ? k : n, ldb, stride_b};
    p.c = {bytes_of(C), type_c, m, n, ldc, stride_c};
    p.drop_bits = bits_to_drop(handle, compute, type_a);
    if (!strides_fit(&p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (m == 0 || n == 0 || batch_count == 0)
        return CUBLAS_STATUS_SUCCESS;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    if (is_negated(p.drop_bits))
        p.alpha = -p.alpha;
    memcpy(&p.beta, beta, sizeof p.beta);
    device_counts(stream_device(handle->stream))->products++;
    stream_give(handle->stream, run_product, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *A,
                            cudaDataType type_a, int lda, const void *B, cudaDataType type_b,
                            int ldb, const void *beta, void *C, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, A, type_a, lda, 0, B,
                                      type_b, ldb, 0, beta, C, type_c, ldc, 0, 1, compute,
                                      algorithm);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const float *alpha, const float *A, int lda,
                                         long long stride_a, const float *B, int ldb,
                                         long long stride_b, const float *beta, float *C, int ldc,
                                         long long stride_c, int batch_count)
{
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, A, CUDA_R_32F, lda,
                                      stride_a, B, CUDA_R_32F, ldb, stride_b, beta, C, CUDA_R_32F,
                                      ldc, stride_c, batch_count, CUBLAS_COMPUTE_32F,
                                      CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                           int m, int n, int k, const float *alpha, const float *A, int lda,
                           const float *B, int ldb, const float *beta, float *C, int ldc)
{
    return cublasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta,
                                     C, ldc, 0, 1);
}

/* ---- handles --------------------------------------------------------------------------------- */

static const struct {
    cublasStatus_t status;
    const char *name;
} names[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED"},
};

const char *cublasGetStatusName(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].status == status)
            return names[i].name;
    return "unknown status";
}

cublasStatus_t cublasCreate(cublasHandle_t *ret_handle)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    openblas_set_num_threads(1);
    *ret_handle = static_cast<struct standin_blas *>(calloc(1, sizeof **ret_handle));
    return *ret_handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t, int *ret_version)
{
    *ret_version = 130000;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType part, int *ret_value)
{
    *ret_value = part == MAJOR_VERSION ? 13 : 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

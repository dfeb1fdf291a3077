/*
 * round: ops that put rows and matrices on a grid.
 *
 * The formulas stand at the top of kernels/gpu/quant.cu, gather.cu and merge.cu, the grids in
 * kernels/gpu/rows.h.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/storage.h"

#include <assert.h>

static_assert(GPU_ROUND_A8 == ROUND_A8, "the kernels' number is that of ops.h");
static_assert(GPU_STORAGE_F32 == STORAGE_F32, "the kernels' number is that of ops.h");
static_assert(GPU_STORAGE_F16 == STORAGE_F16, "the kernels' number is that of ops.h");
static_assert(GPU_STORAGE_BF16 == STORAGE_BF16, "the kernels' number is that of ops.h");

static int as_int(size_t size)
{
    assert(size <= INT32_MAX);
    return (int)size;
}

static dim3 code_groups(size_t outputs, size_t inputs)
{
    return dim3(cuda_groups(outputs, GPU_CODE_OUTPUTS), cuda_groups(inputs, GPU_CODE_INPUTS));
}

static int is_aligned(const struct table *table)
{
    return (uintptr_t)table->values % (table->storage == STORAGE_F32 ? 4 : 2) == 0;
}

void cuda_round_a8(struct cuda *cuda, float *y, const float *x, size_t N, size_t C)
{
    if (N > 0)
        CUDA_LAUNCH(cuda, gpu_round_a8, cuda_groups(N, 1), y, x, as_int(C));
}

void cuda_round_code(struct cuda *cuda, float *y, uint8_t *index, float *norm, const float *w,
                     const struct codebook *codebook, size_t rows, size_t cols, bool columns)
{
    if (rows > 0)
        CUDA_LAUNCH(cuda, gpu_round_code, code_groups(columns ? cols : rows, columns ? rows : cols),
                    y, index, norm, w, codebook->values, as_int(codebook->count),
                    as_int(codebook->group), as_int(rows), as_int(cols), (int)columns);
}

void cuda_gather_forward(struct cuda *cuda, float *y, const struct table *table,
                         const int32_t *index, size_t N, size_t tables, size_t slots, size_t sub,
                         enum rounding rounding)
{
    const gpu_u8 *values = (const gpu_u8 *)table->values;
    const struct codebook *codebook = table->codebook;

    if (N == 0)
        return;
    if (codebook)
        CUDA_LAUNCH(cuda, gpu_gather_code, code_groups(N * tables, sub), y, values, index,
                    codebook->values, as_int(codebook->count), as_int(codebook->group),
                    (int)table->storage, is_aligned(table), as_int(N), as_int(tables),
                    as_int(slots), as_int(sub));
    else
        CUDA_LAUNCH(cuda, gpu_gather_forward, dim3(cuda_groups(N, 1), cuda_groups(tables, 1)), y,
                    values, index, (int)table->storage, is_aligned(table), as_int(tables),
                    as_int(slots), as_int(sub));
    if (rounding == ROUND_A8)
        cuda_round_a8(cuda, y, y, N, tables * sub);
}

void cuda_merge(struct cuda *cuda, float *y, const struct table *base, const float *A,
                const float *B, float scale, size_t rows, size_t cols, size_t rank, bool columns)
{
    const gpu_u8 *values = (const gpu_u8 *)base->values;
    const struct codebook *codebook = base->codebook;

    if (rows > 0)
        CUDA_LAUNCH(cuda, gpu_merge, code_groups(columns ? cols : rows, columns ? rows : cols), y,
                    values, A, B, codebook ? codebook->values : NULL,
                    codebook ? as_int(codebook->count) : 0, codebook ? as_int(codebook->group) : 0,
                    (int)base->storage, is_aligned(base), scale, as_int(rows), as_int(cols),
                    as_int(rank), (int)columns);
}

#include "kernels/cuda/staging.h"

#include <string.h>

#define ALIGNMENT ((size_t)64)

cudaError_t cuda_staging_open(struct cuda_staging *ret_staging)
{
    struct cuda_staging staging = {};
    cudaError_t error =
        cudaMallocHost(&staging.memory, CUDA_STAGING_PIECES * CUDA_STAGING_PIECE_BYTES);

    for (size_t i = 0; i < CUDA_STAGING_PIECES && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&staging.copied[i], cudaEventDisableTiming);
    if (error != cudaSuccess)
        cuda_staging_close(&staging);
    else
        *ret_staging = staging;
    return error;
}

void cuda_staging_close(struct cuda_staging *staging)
{
    for (size_t i = 0; i < CUDA_STAGING_PIECES; i++)
        if (staging->copied[i])
            (void)cudaEventDestroy(staging->copied[i]); /* of a device that broke, too */
    if (staging->memory)
        (void)cudaFreeHost(staging->memory); /* waits for the copies out of it */
    *staging = {};
}

/* On to the next piece, waiting for the copies that were made from it a round ago. */
static cudaError_t next_piece(struct cuda_staging *staging, cudaStream_t stream)
{
    const cudaError_t error = cudaEventRecord(staging->copied[staging->piece], stream);

    if (error != cudaSuccess)
        return error;
    staging->piece = (staging->piece + 1) % CUDA_STAGING_PIECES;
    staging->used_bytes = 0;
    return cudaEventSynchronize(staging->copied[staging->piece]); /* never recorded: no wait */
}

cudaError_t cuda_staging_upload(struct cuda_staging *staging, void *target, const void *source,
                                size_t size_bytes, cudaStream_t stream)
{
    char *to = static_cast<char *>(target);
    const char *from = static_cast<const char *>(source);
    cudaError_t error = cudaSuccess;

    while (size_bytes > 0 && error == cudaSuccess) {
        if (staging->used_bytes == CUDA_STAGING_PIECE_BYTES)
            error = next_piece(staging, stream);
        if (error != cudaSuccess)
            break;
        const size_t room = CUDA_STAGING_PIECE_BYTES - staging->used_bytes;
        const size_t part = size_bytes < room ? size_bytes : room;
        char *piece = staging->memory + staging->piece * CUDA_STAGING_PIECE_BYTES;

        memcpy(piece + staging->used_bytes, from, part);
        error =
            cudaMemcpyAsync(to, piece + staging->used_bytes, part, cudaMemcpyHostToDevice, stream);
        staging->used_bytes += (part + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        to += part;
        from += part;
        size_bytes -= part;
    }
    return error;
}

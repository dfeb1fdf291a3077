/*
 * staging: the way of host memory to the card, through pinned memory.
 *
 * Purpose    A copy from ordinary memory makes the host wait for the card; one from pinned memory is
 *            queued like a kernel. What is uploaded goes into one of a few pinned pieces first, so the
 *            caller has its memory back at once and nobody waits until the pieces are used up.
 * Ownership  cuda_staging_open / cuda_staging_close; to be closed before its stream.
 * Threads    Its backend's.
 * Failure    The runtime's error, for the caller to keep.
 */
#ifndef NEEDLED_CUDA_STAGING_H
#define NEEDLED_CUDA_STAGING_H

#include <cuda_runtime.h>
#include <stddef.h>

/* A step's indices of 32,768 tokens take 6 MB: a few steps' worth, so that a piece is free again long
 * before its turn comes. */
#define CUDA_STAGING_PIECES 4
#if !defined(CUDA_STAGING_PIECE_BYTES) /* tests make it small */
#define CUDA_STAGING_PIECE_BYTES ((size_t)4 << 20)
#endif

struct cuda_staging {
    char *memory;                            /* pinned: all pieces */
    cudaEvent_t copied[CUDA_STAGING_PIECES]; /* the last copy out of the piece is done */
    size_t piece, used_bytes;                /* the one being filled, and how far */
};

cudaError_t cuda_staging_open(struct cuda_staging *ret_staging);
void cuda_staging_close(struct cuda_staging *staging); /* waits; half opened is fine */

/* Queues the copy; the source may change when this returns. */
cudaError_t cuda_staging_upload(struct cuda_staging *staging, void *target, const void *source,
                                size_t size_bytes, cudaStream_t stream);

#endif

/*
 * host: memory calls of the backends that compute in the host's own memory (ref, cpu).
 *
 * Purpose    The memory half of a backend_table: aligned, zeroed, counted.
 * Ownership  host_alloc hands memory over, host_free takes it back; `allocated_bytes` of the
 *            backend follows.
 * Threads    The backend's worker.
 * Failure    host_alloc returns NULL; backend.c keeps the fault.
 */
#ifndef NEEDLED_HOST_H
#define NEEDLED_HOST_H

#include "kernels/backend.h"

void *host_alloc(struct backend *be, size_t size_bytes);
void host_free(struct backend *be, void *memory);                                 /* NULL is fine */
const void *host_import(struct backend *be, const void *host, size_t size_bytes); /* itself */
void host_release_import(struct backend *be, const void *imported);
void host_copy(struct backend *be, void *target, const void *source, size_t size_bytes);
void host_zero(struct backend *be, void *target, size_t size_bytes);
void host_sync(struct backend *be); /* nothing is in flight */

/* Name of the processor and the machine's memory; the SIMD level and the library are cpu's to add.
 */
void host_describe(struct backend_device *ret_device);

#endif

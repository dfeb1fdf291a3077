/*
 * probe: which cards there are, and if none, why.
 *
 * Purpose    The count, what the inventory shows of each, opening: what the plug-in offers.
 * Ownership  None; NVML and cuBLAS, once loaded, stay loaded.
 * Threads    Any.
 * Failure    A reason in words; never an error: without a card the daemon computes elsewhere.
 */
#ifndef NEEDLED_CUDA_PROBE_H
#define NEEDLED_CUDA_PROBE_H

#include <stddef.h>

extern "C" {
#include "kernels/backend.h"
}

#define CUDA_CAPABILITY_MIN 75 /* the oldest target of `make cuda` */

/* 0: none that can be used, and the reason is written. CUDA_VISIBLE_DEVICES holds. */
int cuda_device_count(char *ret_reason, size_t reason_size);
/* Whether the device can run what we compile; if not, the reason is written. */
bool cuda_device_is_supported(int device_index, char *ret_reason, size_t reason_size);
enum backend_status cuda_describe(int device_index, struct backend_device *ret_device);
/* What the device's products may read their factors in: bits as in backend.h. */
unsigned cuda_precisions(int device_index, bool has_library);
/* On failure *ret_backend is untouched and the reason is written. */
enum backend_status cuda_open(const struct backend_options *options, struct backend **ret_backend,
                              char *ret_reason, size_t reason_size);

#endif

/*
 * kernel_backend: a backend of the ops that have kernels, over the stand-in's CUDA.
 *
 * Purpose    Lets the op tests run kernels that have no host side of their own yet; it launches, and
 *            does nothing else.
 * Ownership  kernel_backend_open hands over; backend_close takes back.
 * Threads    One.
 * Failure    As backend.h: the first fault is kept.
 */
#ifndef NEEDLED_KERNEL_BACKEND_H
#define NEEDLED_KERNEL_BACKEND_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct backend *kernel_backend_open(void);
/* Whether it has the op that a case of this name runs. */
bool kernel_backend_has(const char *case_name);

#ifdef __cplusplus
}
#endif

#endif

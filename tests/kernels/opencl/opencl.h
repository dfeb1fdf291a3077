/*
 * opencl: the runtime that kernels/cuda is linked with, over an OpenCL device.
 *
 * Purpose    The kernels of kernels/gpu as OpenCL C 1.2, launched by the host side there is: all ops
 *            run on PoCL (whose numbers are compared with ref) and on Oclgrind (which looks on).
 * Ownership  Device, programs and queue are made at the first call and stay.
 * Threads    One.
 * Failure    What OpenCL refuses is an error of the runtime's API, with its words on stderr.
 *
 * The kernels are read from kernels/gpu in the working directory: a test may stand in a copy with a
 * fault in it.
 */
#ifndef NEEDLED_OPENCL_H
#define NEEDLED_OPENCL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device's name, or NULL without one: the reason is written. Builds the kernels. */
const char *opencl_open(char *ret_reason, size_t reason_size);
size_t opencl_allocation_count(void); /* not yet freed */

/* The name of the index-th kernel, NULL past the last; how often it was launched. */
const char *opencl_kernel(size_t index, size_t *ret_launch_count);

#ifdef __cplusplus
}
#endif

#endif

/*
 * cuda_runtime: the stand-in's header, but that launches go to an OpenCL device.
 *
 * Purpose    The host side of kernels/cuda is compiled as it is; its kernels run as OpenCL C 1.2.
 * Ownership  As the real API.
 * Threads    One.
 * Failure    As the real API; opencl.cc says on stderr what OpenCL said.
 */
#ifndef NEEDLED_OPENCL_CUDA_RUNTIME_H
#define NEEDLED_OPENCL_CUDA_RUNTIME_H

/* Of the kernel only the type is used: nothing by that name is linked. */
#define STANDIN_LAUNCH(kernel, grid, block, stream, ...)                                           \
    opencl_launch(#kernel, static_cast<decltype(&kernel)>(nullptr), grid, block, __VA_ARGS__)

#include "tests/kernels/standin/cuda_runtime.h"

struct opencl_argument {
    const void *value; /* where it stands */
    size_t size_bytes;
    bool is_pointer; /* to device memory */
};

extern "C" void opencl_run(const char *kernel, struct dim3 grid, struct dim3 block,
                           const struct opencl_argument *arguments, size_t count);

template <class T> static struct opencl_argument opencl_argument_of(const T &value)
{
    return {&value, sizeof value, std::is_pointer<T>::value};
}

/* Arguments are converted as a call converts them. */
template <class... Parameters>
static void opencl_launch(const char *name, void (*)(Parameters...), struct dim3 grid,
                          struct dim3 block, std::common_type_t<Parameters>... values)
{
    const struct opencl_argument arguments[] = {opencl_argument_of(values)...};

    opencl_run(name, grid, block, arguments, sizeof...(Parameters));
}

#endif

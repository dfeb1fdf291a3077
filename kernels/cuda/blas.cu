#include "kernels/cuda/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cuda_blas_functions functions;
static bool loaded;
static char reason[200];

#if defined(STANDIN_LAUNCH)

/* The stand-in's products are in the same file as we are. */
static bool load_functions(const char *given)
{
    (void)given;
    functions = (struct cuda_blas_functions){
        cublasCreate,    cublasDestroy, cublasGetVersion,
        cublasSetStream, cublasGemmEx,  cublasGetStatusName,
    };
    return true;
}

#else

static void *open_library(const char *given)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                        "/usr/local/cuda/lib64/libcublas.so.13",
                                        "/usr/local/cuda/lib64/libcublas.so.12"};
    void *library = NULL;

    if (given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool load_functions(const char *given)
{
    static const struct {
        const char *name;
        size_t offset;
    } wanted[] = {
        {"cublasCreate_v2", offsetof(struct cuda_blas_functions, create)},
        {"cublasDestroy_v2", offsetof(struct cuda_blas_functions, destroy)},
        {"cublasGetVersion_v2", offsetof(struct cuda_blas_functions, get_version)},
        {"cublasSetStream_v2", offsetof(struct cuda_blas_functions, set_stream)},
        {"cublasGemmEx", offsetof(struct cuda_blas_functions, gemm)},
        {"cublasGetStatusName", offsetof(struct cuda_blas_functions, status_name)},
    };
    void *library = open_library(given);

    if (!library) {
        (void)snprintf(reason, sizeof reason, "%s", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *symbol = dlsym(library, wanted[i].name);

        if (!symbol) {
            (void)snprintf(reason, sizeof reason, "cuBLAS has no function %s", wanted[i].name);
            return false;
        }
        memcpy((char *)&functions + wanted[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

#endif

/* NEEDLED_CUBLAS names the library, or is "none": our own kernel multiplies. */
static void load(void)
{
    const char *given = getenv("NEEDLED_CUBLAS");

    if (given && strcmp(given, "none") == 0)
        (void)snprintf(reason, sizeof reason, "NEEDLED_CUBLAS is 'none'");
    else
        loaded = load_functions(given && given[0] ? given : NULL);
}

const struct cuda_blas_functions *cuda_blas_load(char *ret_reason, size_t reason_size)
{
    (void)pthread_once(&once, load);
    if (loaded)
        return &functions;
    (void)snprintf(ret_reason, reason_size, "%s", reason);
    return NULL;
}

bool cuda_blas_open(struct cuda_blas *ret_blas, cudaStream_t stream, char *ret_reason,
                    size_t reason_size)
{
    struct cuda_blas blas = {NULL, cuda_blas_load(ret_reason, reason_size)};

    if (!blas.functions)
        return false;
    cublasStatus_t status = blas.functions->create(&blas.handle);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas.functions->set_stream(blas.handle, stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
        (void)snprintf(ret_reason, reason_size, "cuBLAS does not start: %s",
                       blas.functions->status_name(status));
        cuda_blas_close(&blas);
        return false;
    }
    *ret_blas = blas;
    return true;
}

void cuda_blas_close(struct cuda_blas *blas)
{
    if (blas->handle)
        (void)blas->functions->destroy(blas->handle); /* nobody asks any more */
    blas->handle = NULL;
}

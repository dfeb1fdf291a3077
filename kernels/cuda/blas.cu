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

static const char *const library_names[] = {"libcublas.so.13", "libcublas.so.12",
                                            "/usr/local/cuda/lib64/libcublas.so.13",
                                            "/usr/local/cuda/lib64/libcublas.so.12"};

/* The reason is that of the first name, which is the one wanted. */
static void *open_library(const char *given)
{
    const char *const first = given ? given : library_names[0];
    void *library = dlopen(first, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *why = dlerror();

        if (strstr(why, "No such file"))
            (void)snprintf(reason, sizeof reason, "%.100s was not found", first);
        else
            (void)snprintf(reason, sizeof reason, "%.160s", why);
    }
    for (size_t i = 1; i < sizeof library_names / sizeof library_names[0] && !library && !given;
         i++)
        library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool load_library(const char *given)
{
    static const struct {
        const char *name;
        size_t offset;
    } wanted[] = {
        {"cublasCreate_v2", offsetof(struct cuda_blas_functions, create)},
        {"cublasDestroy_v2", offsetof(struct cuda_blas_functions, destroy)},
        {"cublasGetProperty", offsetof(struct cuda_blas_functions, get_property)},
        {"cublasSetStream_v2", offsetof(struct cuda_blas_functions, set_stream)},
        {"cublasGemmEx", offsetof(struct cuda_blas_functions, gemm)},
        {"cublasGetStatusName", offsetof(struct cuda_blas_functions, status_name)},
    };
    void *library = open_library(given);

    if (!library)
        return false;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *symbol = dlsym(library, wanted[i].name);

        if (!symbol) {
            (void)snprintf(reason, sizeof reason, "%.100s has no function %s",
                           given ? given : "cuBLAS", wanted[i].name);
            return false;
        }
        memcpy((char *)&functions + wanted[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

static bool load_functions(const char *given)
{
#if defined(STANDIN_LAUNCH) /* its products are in the same file as we are */
    if (!given) {
        functions = (struct cuda_blas_functions){
            cublasCreate,    cublasDestroy, cublasGetProperty,
            cublasSetStream, cublasGemmEx,  cublasGetStatusName,
        };
        return true;
    }
#endif
    return load_library(given);
}

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

void cuda_blas_describe(char *ret_library, size_t library_size, char *ret_warning,
                        size_t warning_size)
{
    static const libraryPropertyType parts[] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    char why[sizeof reason];
    int version[3] = {};

    ret_library[0] = 0;
    ret_warning[0] = 0;
    if (!cuda_blas_load(why, sizeof why)) {
        (void)snprintf(ret_warning, warning_size, "needled-cuda: %s: own kernels multiply", why);
        return;
    }
    for (int i = 0; i < 3; i++)
        (void)functions.get_property(parts[i], &version[i]); /* else 0 */
    (void)snprintf(ret_library, library_size, "cuBLAS %d.%d.%d", version[0], version[1],
                   version[2]);
}

void cuda_blas_close(struct cuda_blas *blas)
{
    if (blas->handle)
        (void)blas->functions->destroy(blas->handle); /* nobody asks any more */
    blas->handle = NULL;
}

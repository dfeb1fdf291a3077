#include "tests/kernels/opencl/opencl.h"

#include "kernels/cuda/blas.h"
#include "tests/kernels/opencl/cuda_runtime.h"

#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* their successors are missing in Oclgrind */
#define CL_TARGET_OPENCL_VERSION 200      /* shared memory below; the kernels are of 1.2 */
#include <CL/cl.h>
#include <assert.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define KERNELS_MAX 256
#define NAME_SIZE 64
#define ARGUMENTS_MAX 32

/* One cudaMalloc. PoCL has memory that host and device share, so that addresses are the device's own;
 * others get a buffer and an address that only stands for it. */
struct memory {
    struct memory *next;
    unsigned char *start;
    size_t size_bytes;
    cl_mem buffer; /* NULL: shared */
};

struct kernel {
    char name[NAME_SIZE];
    cl_kernel kernel;
    size_t launch_count;
};

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static bool is_shared;
static char device_name[200], open_reason[300];
static struct kernel kernels[KERNELS_MAX];
static size_t kernel_count;
static cl_kernel unset_kernel, fill_kernel, copy_kernel; /* of `helpers` below */
static struct memory *memories;
static cudaError_t last_error;

static bool good(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return true;
    (void)fprintf(stderr, "opencl: %s: error %d\n", what, error);
    last_error = cudaErrorLaunchFailure;
    return false;
}

static cudaError_t said(cl_int error, const char *what)
{
    return good(error, what) ? cudaSuccess : cudaErrorLaunchFailure;
}

/* ---- device and programs --------------------------------------------------------------------- */

static bool keep_kernels(cl_program program, const char *path)
{
    cl_kernel made[KERNELS_MAX];
    cl_uint count = 0;

    if (!good(clCreateKernelsInProgram(program, KERNELS_MAX, made, &count), path))
        return false;
    assert(kernel_count + count <= KERNELS_MAX);
    for (cl_uint i = 0; i < count; i++) {
        struct kernel *kernel = &kernels[kernel_count++];

        kernel->kernel = made[i];
        if (!good(clGetKernelInfo(made[i], CL_KERNEL_FUNCTION_NAME, sizeof kernel->name,
                                  kernel->name, NULL),
                  path))
            return false;
    }
    return true;
}

/*
 * The text only includes the file, so that findings name its lines. Without optimisation: with it
 * PoCL 3.1 loses the bounds of loops after a barrier in a branch (tests/kernels/README.md); and
 * Oclgrind follows values that were never set only through plain code.
 */
static bool build(const char *path)
{
    static const char options[] = "-cl-std=CL1.2 -cl-opt-disable -DGPU_OPENCL -I.";
    char text[600], log[8000] = "";
    const char *source = text;
    cl_int error = CL_SUCCESS;

    (void)snprintf(text, sizeof text, "#include \"%s\"\n", path);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
    if (!good(error, path))
        return false;
    if (good(clBuildProgram(program, 1, &device, options, NULL, NULL), path))
        return keep_kernels(program, path);
    (void)clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
    (void)fprintf(stderr, "%s\n", log);
    return false;
}

/*
 * Oclgrind 21.10 keeps which bytes of a buffer are set from the last write of the host alone: as many
 * bytes as that wrote, at the start. What the host writes behind another write, and what kernels write
 * into memory the host never wrote, stays unset to it (a fill is a write a byte). So memory is written
 * by the host once, whole, and from then on by these kernels, which it follows.
 *   unset  one byte in four of fresh memory: the hole in the struct, which it never reports by itself
 */
static const char helpers[] =
    "struct with_hole { char first; short second; };\n"
    "__kernel void unset(__global struct with_hole *to)\n"
    "{\n"
    "    struct with_hole value;\n"
    "    value.first = -1;\n"
    "    value.second = -1;\n"
    "    to[get_global_id(0)] = value;\n"
    "}\n"
    "__kernel void fill(__global uchar *to, ulong first, uchar value)\n"
    "{\n"
    "    to[first + get_global_id(0)] = value;\n"
    "}\n"
    "__kernel void copy(__global uchar *to, ulong to_first, __global const uchar *from,\n"
    "                   ulong from_first)\n"
    "{\n"
    "    to[to_first + get_global_id(0)] = from[from_first + get_global_id(0)];\n"
    "}\n";

static bool build_helpers(void)
{
    const char *source = helpers;
    cl_int error = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);

    if (!good(error, "helpers") ||
        !good(clBuildProgram(program, 1, &device, "-cl-std=CL1.2 -cl-opt-disable", NULL, NULL),
              "helpers"))
        return false;
    unset_kernel = clCreateKernel(program, "unset", &error);
    if (error == CL_SUCCESS)
        fill_kernel = clCreateKernel(program, "fill", &error);
    if (error == CL_SUCCESS)
        copy_kernel = clCreateKernel(program, "copy", &error);
    return good(error, "helpers");
}

static bool build_all(void)
{
    glob_t files = {};
    bool ok = build_helpers() && glob("kernels/gpu/*.cu", 0, NULL, &files) == 0;

    for (size_t i = 0; ok && i < files.gl_pathc; i++)
        ok = build(files.gl_pathv[i]);
    globfree(&files);
    return ok;
}

static const char *open_device(void)
{
    cl_platform_id platform = NULL;
    cl_uint count = 0;
    cl_device_svm_capabilities shared = 0;
    cl_int error = CL_SUCCESS;

    if (clGetPlatformIDs(1, &platform, &count) != CL_SUCCESS || count == 0)
        return "no OpenCL platform is installed";
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, &count) != CL_SUCCESS ||
        count == 0)
        return "the OpenCL platform has no device";
    (void)clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof device_name, device_name, NULL);
    if (clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof shared, &shared, NULL) ==
        CL_SUCCESS)
        is_shared = shared & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (error != CL_SUCCESS)
        return "the OpenCL context was refused";
    queue = clCreateCommandQueue(context, device, 0, &error);
    if (error != CL_SUCCESS)
        return "the OpenCL queue was refused";
    return build_all() ? NULL : "the kernels do not build";
}

const char *opencl_open(char *ret_reason, size_t reason_size)
{
    if (!device_name[0] && !open_reason[0]) {
        const char *reason = open_device();

        (void)snprintf(open_reason, sizeof open_reason, "%s", reason ? reason : "");
    }
    (void)snprintf(ret_reason, reason_size, "%s", open_reason);
    return open_reason[0] ? NULL : device_name;
}

const char *opencl_kernel(size_t index, size_t *ret_launch_count)
{
    if (index >= kernel_count)
        return NULL;
    *ret_launch_count = kernels[index].launch_count;
    return kernels[index].name;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The allocation an address lies in, or NULL. */
static struct memory *memory_of(const void *address)
{
    const unsigned char *byte = static_cast<const unsigned char *>(address);
    struct memory *memory = memories;

    while (memory && (byte < memory->start || byte >= memory->start + memory->size_bytes))
        memory = memory->next;
    return memory;
}

static size_t offset_of(const struct memory *memory, const void *address)
{
    return (size_t)(static_cast<const unsigned char *>(address) - memory->start);
}

size_t opencl_allocation_count(void)
{
    size_t count = 0;

    for (const struct memory *memory = memories; memory; memory = memory->next)
        count++;
    return count;
}

static cudaError_t run_helper(cl_kernel kernel, size_t count)
{
    const cudaError_t error =
        said(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL), "helper");

    return error == cudaSuccess ? said(clFinish(queue), "clFinish") : error;
}

static bool set_offset(cl_kernel kernel, cl_uint index, size_t offset)
{
    const cl_ulong value = offset;

    return good(clSetKernelArg(kernel, index, sizeof value, &value), "helper");
}

static bool set_buffer(cl_kernel kernel, cl_uint index, cl_mem buffer)
{
    return good(clSetKernelArg(kernel, index, sizeof(cl_mem), &buffer), "helper");
}

static cudaError_t fill_buffer(cl_mem buffer, size_t offset, unsigned char byte, size_t size_bytes)
{
    if (!set_buffer(fill_kernel, 0, buffer) || !set_offset(fill_kernel, 1, offset) ||
        !good(clSetKernelArg(fill_kernel, 2, sizeof byte, &byte), "helper"))
        return cudaErrorLaunchFailure;
    return run_helper(fill_kernel, size_bytes);
}

static cudaError_t copy_buffer(cl_mem to, size_t to_offset, cl_mem from, size_t from_offset,
                               size_t size_bytes)
{
    if (!set_buffer(copy_kernel, 0, to) || !set_offset(copy_kernel, 1, to_offset) ||
        !set_buffer(copy_kernel, 2, from) || !set_offset(copy_kernel, 3, from_offset))
        return cudaErrorLaunchFailure;
    return run_helper(copy_kernel, size_bytes);
}

/* Set as a whole, by the host. */
static cl_mem make_buffer(const void *bytes, size_t size_bytes)
{
    cl_int error = CL_SUCCESS;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, size_bytes, NULL, &error);

    if (!good(error, "clCreateBuffer"))
        return NULL;
    if (good(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size_bytes, bytes, 0, NULL, NULL),
             "copy to the device"))
        return buffer;
    (void)clReleaseMemObject(buffer);
    return NULL;
}

/* Nobody has set its bytes. */
static cl_mem make_unset_buffer(size_t size_bytes)
{
    void *bytes = calloc(1, size_bytes);
    cl_mem buffer = bytes ? make_buffer(bytes, size_bytes) : NULL;

    free(bytes);
    if (buffer && size_bytes >= 4 && set_buffer(unset_kernel, 0, buffer))
        (void)run_helper(unset_kernel, size_bytes / 4);
    return buffer;
}

static cudaError_t write_buffer(cl_mem to, size_t offset, const void *source, size_t size_bytes)
{
    cl_mem from = make_buffer(source, size_bytes);
    const cudaError_t result =
        from ? copy_buffer(to, offset, from, 0, size_bytes) : cudaErrorLaunchFailure;

    if (from)
        (void)clReleaseMemObject(from);
    return result;
}

cudaError_t cudaMalloc(void **ret_memory, size_t size_bytes)
{
    struct memory *memory = static_cast<struct memory *>(calloc(1, sizeof *memory));

    if (!memory)
        return cudaErrorMemoryAllocation;
    memory->size_bytes = size_bytes;
    if (is_shared) {
        memory->start =
            static_cast<unsigned char *>(clSVMAlloc(context, CL_MEM_READ_WRITE, size_bytes, 0));
        if (memory->start)
            memset(memory->start, 0xff, size_bytes); /* NaN: nobody wrote it */
    } else {
        memory->buffer = make_unset_buffer(size_bytes);
        void *address = mmap(NULL, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory->buffer && address != MAP_FAILED)
            memory->start = static_cast<unsigned char *>(address);
    }
    if (!memory->start) {
        free(memory);
        return cudaErrorMemoryAllocation;
    }
    memory->next = memories;
    memories = memory;
    *ret_memory = memory->start;
    return cudaSuccess;
}

cudaError_t cudaFree(void *address)
{
    struct memory **place = &memories;

    if (!address)
        return cudaSuccess;
    while (*place && (*place)->start != address)
        place = &(*place)->next;
    struct memory *memory = *place;
    if (!memory)
        return cudaErrorInvalidValue;
    *place = memory->next;
    const cudaError_t result = said(clFinish(queue), "clFinish");
    if (memory->buffer) {
        (void)clReleaseMemObject(memory->buffer);
        (void)munmap(memory->start, memory->size_bytes);
    } else {
        clSVMFree(context, memory->start);
    }
    free(memory);
    return result;
}

cudaError_t cudaMallocHost(void **ret_memory, size_t size_bytes)
{
    *ret_memory = malloc(size_bytes);
    return *ret_memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    *ret_free = *ret_total = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t size_bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    const struct memory *from = kind == cudaMemcpyHostToDevice ? NULL : memory_of(source);
    const struct memory *to = kind == cudaMemcpyDeviceToHost ? NULL : memory_of(target);

    (void)stream;
    if (size_bytes == 0)
        return cudaSuccess;
    if ((kind != cudaMemcpyHostToDevice && !from) || (kind != cudaMemcpyDeviceToHost && !to))
        return cudaErrorInvalidValue;
    if (is_shared)
        return said(clEnqueueSVMMemcpy(queue, CL_TRUE, target, source, size_bytes, 0, NULL, NULL),
                    "copy");
    if (from && to)
        return copy_buffer(to->buffer, offset_of(to, target), from->buffer, offset_of(from, source),
                           size_bytes);
    if (from)
        return said(clEnqueueReadBuffer(queue, from->buffer, CL_TRUE, offset_of(from, source),
                                        size_bytes, target, 0, NULL, NULL),
                    "copy from the device");
    return write_buffer(to->buffer, offset_of(to, target), source, size_bytes);
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t size_bytes, cudaStream_t stream)
{
    const struct memory *memory = memory_of(target);
    const unsigned char byte = (unsigned char)value;

    (void)stream;
    if (size_bytes == 0)
        return cudaSuccess;
    if (!memory)
        return cudaErrorInvalidValue;
    if (is_shared)
        return said(clEnqueueSVMMemFill(queue, target, &byte, 1, size_bytes, 0, NULL, NULL),
                    "fill");
    return fill_buffer(memory->buffer, offset_of(memory, target), byte, size_bytes);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* A pointer into a buffer becomes the rest of that buffer; *ret_part lives until the launch. */
static cl_int set_pointer(cl_kernel kernel, cl_uint index, const void *address, cl_mem *ret_part)
{
    const struct memory *memory = memory_of(address);
    cl_int error = CL_SUCCESS;

    if (!address)
        return clSetKernelArg(kernel, index, sizeof(cl_mem), NULL);
    if (!memory)
        return CL_INVALID_MEM_OBJECT; /* of the host */
    if (is_shared)
        return clSetKernelArgSVMPointer(kernel, index, address);
    if (memory->start == address)
        return clSetKernelArg(kernel, index, sizeof(cl_mem), &memory->buffer);

    const size_t offset = offset_of(memory, address);
    const cl_buffer_region rest = {offset, memory->size_bytes - offset};
    *ret_part = clCreateSubBuffer(memory->buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &rest, &error);
    return error == CL_SUCCESS ? clSetKernelArg(kernel, index, sizeof(cl_mem), ret_part) : error;
}

void opencl_run(const char *name, struct dim3 grid, struct dim3 block,
                const struct opencl_argument *arguments, size_t count)
{
    const size_t local[] = {block.x, 1};
    const size_t global[] = {(size_t)grid.x * block.x, grid.y};
    cl_mem parts[ARGUMENTS_MAX] = {};
    struct kernel *kernel = kernels;
    bool ok = true;

    while (kernel < kernels + kernel_count && strcmp(kernel->name, name) != 0)
        kernel++;
    assert(kernel < kernels + kernel_count && count <= ARGUMENTS_MAX);
    assert(grid.z == 1 && block.y == 1 && block.z == 1);
    kernel->launch_count++;
    for (cl_uint i = 0; ok && i < count; i++) {
        const struct opencl_argument *argument = &arguments[i];

        ok = good(argument->is_pointer
                      ? set_pointer(kernel->kernel, i,
                                    *static_cast<const void *const *>(argument->value), &parts[i])
                      : clSetKernelArg(kernel->kernel, i, argument->size_bytes, argument->value),
                  name);
    }
    ok = ok &&
         good(clEnqueueNDRangeKernel(queue, kernel->kernel, 2, NULL, global, local, 0, NULL, NULL),
              name);
    if (ok)
        (void)good(clFinish(queue), name);
    for (size_t i = 0; i < count; i++)
        if (parts[i])
            (void)clReleaseMemObject(parts[i]);
}

/* ---- the rest of the runtime ----------------------------------------------------------------- */

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "an error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "OpenCL's words are on stderr";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaDriverGetVersion(int *ret_version)
{
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *ret_count)
{
    char reason[300];

    if (!opencl_open(reason, sizeof reason))
        return cudaErrorNoDevice;
    *ret_count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
    return index == 0 ? last_error : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *ret_device)
{
    *ret_device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_properties, int index)
{
    if (index != 0)
        return cudaErrorInvalidDevice;
    *ret_properties = {};
    ret_properties->major = 9; /* recent enough for the host side */
    (void)snprintf(ret_properties->name, sizeof ret_properties->name, "%s", device_name);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags)
{
    (void)flags;
    *ret_stream = reinterpret_cast<cudaStream_t>(&queue); /* the one there is */
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return said(clFinish(queue), "clFinish");
}

/* Copies wait for the queue, so that nothing is left to wait for. */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags)
{
    (void)flags;
    *ret_event = reinterpret_cast<cudaEvent_t>(&queue);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

/* ---- in place of kernels/cuda/blas.cu: our own kernel multiplies ----------------------------- */

const struct cuda_blas_functions *cuda_blas_load(char *ret_reason, size_t reason_size)
{
    (void)snprintf(ret_reason, reason_size, "not over OpenCL");
    return NULL;
}

bool cuda_blas_open(struct cuda_blas *ret_blas, cudaStream_t stream, char *ret_reason,
                    size_t reason_size)
{
    (void)stream;
    ret_blas->functions = cuda_blas_load(ret_reason, reason_size);
    return false;
}

void cuda_blas_describe(char *ret_library, size_t library_size, char *ret_warning,
                        size_t warning_size)
{
    (void)snprintf(ret_library, library_size, "%s", "");
    (void)cuda_blas_load(ret_warning, warning_size);
}

void cuda_blas_close(struct cuda_blas *blas)
{
    (void)blas;
}

#include "kernels/cuda/probe.h"

#include "kernels/cuda/blas.h"
#include "kernels/cuda/nvml.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define VERSION_MAJOR(version) ((version) / 1000) /* CUDA counts 13.1 as 13010 */
#define VERSION_MINOR(version) ((version) % 1000 / 10)

/* Words for what a count without devices came to. */
static void explain(cudaError_t error, char *ret_reason, size_t size)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0;

    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    switch ((int)error) {
    case cudaErrorInsufficientDriver: /* one code for two things: the version tells them apart */
        if (driver == 0)
            (void)snprintf(ret_reason, size, "no NVIDIA driver: libcuda.so.1 was not found");
        else
            (void)snprintf(ret_reason, size, "the NVIDIA driver is for CUDA %d.%d, needed is %d.%d",
                           VERSION_MAJOR(driver), VERSION_MINOR(driver),
                           VERSION_MAJOR(CUDART_VERSION), VERSION_MINOR(CUDART_VERSION));
        return;
    case cudaErrorStubLibrary:
        (void)snprintf(ret_reason, size, "libcuda.so.1 is the toolkit's stub, not a driver");
        return;
    case cudaErrorNoDevice:
    case cudaSuccess:
        if (visible)
            (void)snprintf(ret_reason, size, "no device: CUDA_VISIBLE_DEVICES is '%.100s'",
                           visible);
        else
            (void)snprintf(ret_reason, size, "an NVIDIA driver, but no device");
        return;
    case cudaErrorSystemDriverMismatch:
        (void)snprintf(
            ret_reason, size,
            "NVIDIA's driver and its kernel module differ in version: restart the machine");
        return;
    case cudaErrorSystemNotReady:
        (void)snprintf(ret_reason, size,
                       "the NVIDIA driver is not ready: are its services running?");
        return;
    default:
        (void)snprintf(ret_reason, size, "%s: %s", cudaGetErrorName(error),
                       cudaGetErrorString(error));
    }
}

int cuda_device_count(char *ret_reason, size_t reason_size)
{
    int count = 0; /* untouched on errors */
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaSuccess && count > 0)
        return count;
    (void)cudaGetLastError(); /* told here, not by the next call */
    explain(error, ret_reason, reason_size);
    return 0;
}

static bool is_recent(const struct cudaDeviceProp *device, char *ret_reason, size_t reason_size)
{
    if (device->major * 10 + device->minor >= CUDA_CAPABILITY_MIN)
        return true;
    (void)snprintf(ret_reason, reason_size, "%.64s has capability %d.%d, needed is %d.%d",
                   device->name, device->major, device->minor, CUDA_CAPABILITY_MIN / 10,
                   CUDA_CAPABILITY_MIN % 10);
    return false;
}

static bool read_properties(int device_index, struct cudaDeviceProp *ret_known, char *ret_reason,
                            size_t reason_size)
{
    const cudaError_t error = cudaGetDeviceProperties(ret_known, device_index);

    if (error == cudaSuccess)
        return true;
    (void)cudaGetLastError();
    (void)snprintf(ret_reason, reason_size, "the device does not answer: %s: %s",
                   cudaGetErrorName(error), cudaGetErrorString(error));
    return false;
}

bool cuda_device_is_supported(int device_index, char *ret_reason, size_t reason_size)
{
    struct cudaDeviceProp known;

    return read_properties(device_index, &known, ret_reason, reason_size) &&
           is_recent(&known, ret_reason, reason_size);
}

/* Free memory is the driver's word, of a slice of a card (MIG) the slice's own; asking makes the
 * device's context, which its worker has anyway. Others may leave no memory for that: nothing is wrong
 * with the card, and how much is free is not known then. */
static bool read_memory(int device_index, const struct cudaDeviceProp *known,
                        struct backend_device *device)
{
    size_t free_now = 0, total = 0;
    int before = 0;

    (void)cudaGetDevice(&before); /* of this thread, which may have work elsewhere */
    cudaError_t error = cudaSetDevice(device_index);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&free_now, &total);
    (void)cudaSetDevice(before);
    (void)cudaGetLastError();
    if (error == cudaErrorMemoryAllocation) {
        total = known->totalGlobalMem;
        free_now = 0;
    } else if (error != cudaSuccess) {
        (void)snprintf(device->trouble, sizeof device->trouble,
                       "the device does not answer: %s: %s", cudaGetErrorName(error),
                       cudaGetErrorString(error));
        return false;
    }
    device->memory_total_bytes = total;
    device->memory_free_bytes = free_now;
    return true;
}

static void name_driver(const struct nvml_reading *reading, char *ret_text, size_t size)
{
    int version = 0;

    (void)cudaDriverGetVersion(&version); /* else 0 */
    (void)snprintf(ret_text, size, "%s%sCUDA %d.%d", reading->driver,
                   reading->driver[0] ? ", " : "", VERSION_MAJOR(version), VERSION_MINOR(version));
}

/* The faster factors are tensor cores' of the library's products: our own kernel has float32. */
static unsigned precisions_of(const struct cudaDeviceProp *known, bool has_library)
{
    unsigned set = BACKEND_PRECISION_BIT(BACKEND_FLOAT32);

    if (has_library && known->major >= 8)
        set |= BACKEND_PRECISION_BIT(BACKEND_TF32) | BACKEND_PRECISION_BIT(BACKEND_BF16);
    return set;
}

unsigned cuda_precisions(int device_index, bool has_library)
{
    struct cudaDeviceProp known;
    char reason[200];

    if (!read_properties(device_index, &known, reason, sizeof reason))
        return BACKEND_PRECISION_BIT(BACKEND_FLOAT32);
    return precisions_of(&known, has_library);
}

enum backend_status cuda_describe(int device_index, struct backend_device *ret_device)
{
    struct backend_device device = {};
    struct cudaDeviceProp known;
    struct nvml_reading reading = {};
    enum backend_status status = BACKEND_OK;

    if (!read_properties(device_index, &known, device.trouble, sizeof device.trouble)) {
        *ret_device = device;
        return BACKEND_FAULT;
    }
    nvml_read((const unsigned char *)known.uuid.bytes, &reading);
    (void)snprintf(device.name, sizeof device.name, "%.*s", (int)sizeof device.name - 1,
                   known.name);
    (void)snprintf(device.uuid, sizeof device.uuid, "%s", reading.uuid);
    (void)snprintf(device.capability, sizeof device.capability, "%d.%d", known.major, known.minor);
    name_driver(&reading, device.driver, sizeof device.driver);
    cuda_blas_describe(device.library, sizeof device.library, device.library_warning,
                       sizeof device.library_warning);
    device.precisions = precisions_of(&known, device.library[0] != 0);
    device.core_count = known.multiProcessorCount;
    device.temperature_celsius = reading.temperature_celsius;
    device.power_watts = reading.power_watts;
    if (!is_recent(&known, device.trouble, sizeof device.trouble))
        status = BACKEND_ABSENT;
    else if (!read_memory(device_index, &known, &device))
        status = BACKEND_FAULT;
    *ret_device = device;
    return status;
}

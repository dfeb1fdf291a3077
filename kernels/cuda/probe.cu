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

bool cuda_device_is_supported(int device_index, char *ret_reason, size_t reason_size)
{
    struct cudaDeviceProp device;
    const cudaError_t error = cudaGetDeviceProperties(&device, device_index);

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)snprintf(ret_reason, reason_size, "%s", cudaGetErrorString(error));
        return false;
    }
    if (device.major * 10 + device.minor >= CUDA_CAPABILITY_MIN)
        return true;
    (void)snprintf(ret_reason, reason_size, "%.64s has capability %d.%d, needed is %d.%d",
                   device.name, device.major, device.minor, CUDA_CAPABILITY_MIN / 10,
                   CUDA_CAPABILITY_MIN % 10);
    return false;
}

/* Free memory is the driver's word; asking makes the device's context, which its worker has anyway. */
static bool read_memory(int device_index, struct backend_device *device)
{
    size_t free_now = 0, total = 0;
    int before = 0;

    (void)cudaGetDevice(&before); /* of this thread, which may have work elsewhere */
    const bool known = cudaSetDevice(device_index) == cudaSuccess &&
                       cudaMemGetInfo(&free_now, &total) == cudaSuccess;
    (void)cudaSetDevice(before);
    (void)cudaGetLastError();
    if (known) {
        device->memory_total_bytes = total;
        device->memory_free_bytes = free_now;
    }
    return known;
}

enum backend_status cuda_describe(int device_index, struct backend_device *ret_device)
{
    struct backend_device device = {};
    struct cudaDeviceProp known;
    struct nvml_reading reading = {};
    char reason[128];
    int driver = 0;

    if (cudaGetDeviceProperties(&known, device_index) != cudaSuccess) {
        (void)cudaGetLastError();
        return BACKEND_ABSENT;
    }
    if (!read_memory(device_index, &device))
        return BACKEND_FAULT;
    (void)cudaDriverGetVersion(&driver); /* else 0 */
    nvml_read((const unsigned char *)known.uuid.bytes, &reading);
    (void)snprintf(device.name, sizeof device.name, "%.*s", (int)sizeof device.name - 1,
                   known.name);
    (void)snprintf(device.detail, sizeof device.detail, "capability %d.%d, driver %s%sCUDA %d.%d%s",
                   known.major, known.minor, reading.driver, reading.driver[0] ? ", " : "",
                   VERSION_MAJOR(driver), VERSION_MINOR(driver),
                   cuda_blas_load(reason, sizeof reason) ? ", cuBLAS" : ", no cuBLAS");
    device.core_count = known.multiProcessorCount;
    device.temperature_celsius = reading.temperature_celsius;
    device.power_watts = reading.power_watts;
    *ret_device = device;
    return BACKEND_OK;
}

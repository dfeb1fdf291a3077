#include "tests/kernels/standin/device.h"

#include "tests/kernels/standin/group.h"
#include "tests/kernels/standin/memory.h"
#include "tests/kernels/standin/report.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const struct standin_options standin_defaults = {
    STANDIN_FORWARD, 0, false, 1, (size_t)1 << 30, (size_t)2 << 30, 0, 0,
};

static struct standin_options options = standin_defaults;
static bool options_set;

/* Set by the environment alone: for the whole daemon, which looks at devices and never at launches. */
static int old_device = -1, mute_device = -1;
static const char *skipped_kernel = "", *negated_precision = "";
static struct trigger { /* on a device */
    int device;
    char file[256];
} breaks_with = {-1, ""}, full_with = {-1, ""}, closed_with = {-1, ""};
static int short_device = -1; /* its first allocation after so many launches finds no memory */
static uint64_t short_launch;

static struct device {
    cudaError_t fault;
    bool has_context;
    struct standin_counts counts;
} devices[STANDIN_DEVICES_MAX];

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static thread_local int current;
static thread_local cudaError_t last_error;

/* ---- options --------------------------------------------------------------------------------- */

static void take_options(const struct standin_options *taken)
{
    if (taken->device_count < 0 || taken->device_count > STANDIN_DEVICES_MAX)
        report_and_exit("%d devices: 0 to %d are possible", taken->device_count,
                        STANDIN_DEVICES_MAX);
    options = *taken;
    options_set = true;
    memset(devices, 0, sizeof devices);
    group_set_order(options.order, options.seed);
}

/* Of a variable that says DEVICE:FILE. */
static void read_trigger(const char *name, struct trigger *trigger)
{
    const char *value = getenv(name);

    if (value && sscanf(value, "%d:%255s", &trigger->device, trigger->file) != 2)
        report_and_exit("%s is '%s', needed is DEVICE:FILE", name, value);
}

static bool is_set_off(const struct trigger *trigger, int device)
{
    return trigger->device == device && access(trigger->file, F_OK) == 0;
}

static void read_environment(void)
{
    struct standin_options read = standin_defaults;
    const char *order = getenv("STANDIN_ORDER"), *defer = getenv("STANDIN_DEFER");
    const char *count = getenv("STANDIN_DEVICES"), *memory = getenv("STANDIN_MEMORY");
    const char *fail = getenv("STANDIN_FAIL_LAUNCH");
    unsigned long long launch;

    if (order && strcmp(order, "reverse") == 0) {
        read.order = STANDIN_REVERSE;
    } else if (order && strcmp(order, "forward") != 0) {
        read.order = STANDIN_SEEDED;
        read.seed = strtoull(order, NULL, 10);
    }
    read.deferred = defer && strcmp(defer, "1") == 0;
    if (count)
        read.device_count = atoi(count);
    if (memory)
        read.memory_bytes = strtoull(memory, NULL, 10);
    if (fail) {
        if (sscanf(fail, "%d:%llu", &read.fail_device, &launch) != 2)
            report_and_exit("STANDIN_FAIL_LAUNCH is '%s', needed is DEVICE:N", fail);
        read.fail_launch = launch;
    }
    const char *old = getenv("STANDIN_OLD"), *mute = getenv("STANDIN_MUTE");
    const char *skip = getenv("STANDIN_SKIP");
    if (old)
        old_device = atoi(old);
    if (mute)
        mute_device = atoi(mute);
    if (skip)
        skipped_kernel = skip;
    const char *negate = getenv("STANDIN_NEGATE");
    if (negate)
        negated_precision = negate;
    const char *seal = getenv("STANDIN_SEAL");
    if (seal && strcmp(seal, "1") == 0)
        memory_seal();
    const char *out = getenv("STANDIN_OUT_OF_MEMORY");
    if (out) {
        if (sscanf(out, "%d:%llu", &short_device, &launch) != 2)
            report_and_exit("STANDIN_OUT_OF_MEMORY is '%s', needed is DEVICE:N", out);
        short_launch = launch;
    }
    read_trigger("STANDIN_FAIL_FILE", &breaks_with);
    read_trigger("STANDIN_FULL_FILE", &full_with);
    read_trigger("STANDIN_CLOSED_FILE", &closed_with);
    take_options(&read);
}

void standin_set(const struct standin_options *new_options)
{
    const struct api_call call(API_NEEDS_NOTHING);

    take_options(new_options);
    last_error = cudaSuccess;
    current = 0;
}

const char *standin_build(void)
{
#if defined(STANDIN_RACE)
    return "race";
#elif defined(__SANITIZE_ADDRESS__)
    return "asan";
#else
    return "fast";
#endif
}

struct standin_counts standin_counts(int device)
{
    return devices[device].counts;
}

/* ---- calls ----------------------------------------------------------------------------------- */

api_call::api_call(enum api_kind kind) : error(cudaSuccess)
{
    pthread_mutex_lock(&lock);
    if (!options_set && kind != API_NEEDS_NOTHING)
        read_environment();
    if (group_in_kernel())
        report_and_exit("a kernel calls the runtime's API");
    if (kind == API_NEEDS_NOTHING)
        return;
    error = options.device_count == 0 ? cudaErrorNoDevice : devices[current].fault;
    if (error != cudaSuccess)
        last_error = error;
}

api_call::~api_call()
{
    pthread_mutex_unlock(&lock);
}

cudaError_t api_fail(cudaError_t error)
{
    last_error = error;
    return error;
}

int device_current(void)
{
    return current;
}

size_t device_memory_bytes(void)
{
    return options.memory_bytes;
}

size_t device_others_bytes(int device)
{
    return is_set_off(&full_with, device) ? options.memory_bytes / 8 * 7 : 0;
}

bool device_is_short(int device)
{
    if (device != short_device || devices[device].counts.launches < short_launch)
        return false;
    short_device = -1; /* once */
    return true;
}

size_t device_address_bytes(void)
{
    return options.address_bytes;
}

bool device_is_deferred(void)
{
    return options.deferred;
}

cudaError_t device_fault(int device)
{
    return devices[device].fault;
}

bool device_skips(const char *kernel)
{
    return strcmp(kernel, skipped_kernel) == 0;
}

bool device_negates(const char *precision)
{
    return strcmp(precision, negated_precision) == 0;
}

struct standin_counts *device_counts(int device)
{
    return &devices[device].counts;
}

void device_count_launch(int device)
{
    devices[device].counts.launches++;
    if ((device == options.fail_device && devices[device].counts.launches == options.fail_launch) ||
        is_set_off(&breaks_with, device))
        devices[device].fault = cudaErrorLaunchFailure;
}

/* ---- the API --------------------------------------------------------------------------------- */

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unknown error";
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    last_error = devices[current].fault; /* what broke a device stays */
    return error;
}

cudaError_t cudaDriverGetVersion(int *ret_version)
{
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *ret_version)
{
    *ret_version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *ret_count)
{
    const struct api_call call(API_ON_BROKEN_DEVICE); /* reads the environment */

    if (options.device_count == 0)
        return api_fail(cudaErrorNoDevice); /* the count stays as it was, as with the real one */
    *ret_count = options.device_count;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    const struct api_call call(API_ON_BROKEN_DEVICE);

    if (device < 0 || device >= options.device_count)
        return api_fail(cudaErrorInvalidDevice);
    current = device;
    if (!devices[device].has_context && is_set_off(&closed_with, device))
        return api_fail(cudaErrorMemoryAllocation);
    devices[device].has_context = true;
    return devices[device].fault == cudaSuccess ? cudaSuccess : api_fail(devices[device].fault);
}

cudaError_t cudaGetDevice(int *ret_device)
{
    *ret_device = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret_properties, int device)
{
    const struct api_call call(API_ON_BROKEN_DEVICE);
    struct cudaDeviceProp properties = {};

    if (device < 0 || device >= options.device_count)
        return api_fail(cudaErrorInvalidDevice);
    if (device == mute_device)
        return api_fail(cudaErrorUnknown);
    snprintf(properties.name, sizeof properties.name, "Stand-in %d", device);
    properties.uuid.bytes[0] = (char)(device + 1);
    properties.totalGlobalMem = options.memory_bytes;
    properties.sharedMemPerBlock = 48 << 10;
    properties.major = device == old_device ? 7 : 9;
    properties.multiProcessorCount = 1;
    properties.maxThreadsPerBlock = GROUP_THREADS_MAX;
    properties.warpSize = 32;
    properties.pciBusID = device + 1;
    *ret_properties = properties;
    return cudaSuccess;
}

#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The library's own types, as far as we use them: all return 0 for success. */
typedef struct nvml_device *device_handle;

static struct {
    int (*init)(void);
    int (*driver_version)(char *ret_version, unsigned size);
    int (*device_by_uuid)(const char *uuid, device_handle *ret_device);
    int (*temperature)(device_handle device, int sensor, unsigned *ret_celsius);
    int (*power)(device_handle device, unsigned *ret_milliwatts);
} nvml; /* set once */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;

static bool find(void *library, const char *name, void *ret_function, size_t size)
{
    void *symbol = dlsym(library, name);

    if (symbol)
        memcpy(ret_function, &symbol, size);
    return symbol;
}

static void load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    usable =
        library && find(library, "nvmlInit_v2", &nvml.init, sizeof nvml.init) &&
        find(library, "nvmlSystemGetDriverVersion", &nvml.driver_version,
             sizeof nvml.driver_version) &&
        find(library, "nvmlDeviceGetHandleByUUID", &nvml.device_by_uuid,
             sizeof nvml.device_by_uuid) &&
        find(library, "nvmlDeviceGetTemperature", &nvml.temperature, sizeof nvml.temperature) &&
        find(library, "nvmlDeviceGetPowerUsage", &nvml.power, sizeof nvml.power) &&
        nvml.init() == 0;
}

static bool find_device(const unsigned char *uuid, device_handle *ret_device)
{
    static const char *const kinds[] = {"GPU", "MIG"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char text[48];
        int length = snprintf(text, sizeof text, "%s-", kinds[i]);

        for (int byte = 0; byte < 16; byte++)
            length +=
                snprintf(text + length, sizeof text - (size_t)length, "%s%02x",
                         byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "", uuid[byte]);
        if (nvml.device_by_uuid(text, ret_device) == 0)
            return true;
    }
    return false;
}

void nvml_read(const unsigned char *uuid, struct nvml_reading *ret_reading)
{
    device_handle device;
    unsigned value = 0;

    (void)pthread_once(&once, load);
    if (!usable)
        return;
    if (nvml.driver_version(ret_reading->driver, sizeof ret_reading->driver) != 0)
        ret_reading->driver[0] = 0;
    if (!find_device(uuid, &device))
        return;
    if (nvml.temperature(device, 0, &value) == 0) /* 0: of the chip */
        ret_reading->temperature_celsius = (int)value;
    if (nvml.power(device, &value) == 0)
        ret_reading->power_watts = (int)((value + 500) / 1000);
}

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
    int (*card_of_slice)(device_handle slice, device_handle *ret_card); /* NULL: an older library */
} nvml;                                                                 /* set once */
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
    if (usable && !find(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
                        &nvml.card_of_slice, sizeof nvml.card_of_slice))
        nvml.card_of_slice = NULL;
}

static void write_uuid(const char *kind, const unsigned char *uuid, char *ret_text, size_t size)
{
    int length = snprintf(ret_text, size, "%s-", kind);

    for (int byte = 0; byte < 16; byte++)
        length +=
            snprintf(ret_text + length, size - (size_t)length, "%s%02x",
                     byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "", uuid[byte]);
}

/* Whether the library knows it; then the reading's uuid is what it knows it by. */
static bool find_device(const unsigned char *uuid, struct nvml_reading *reading,
                        device_handle *ret_device)
{
    write_uuid("GPU", uuid, reading->uuid, sizeof reading->uuid);
    if (!usable)
        return false;
    if (nvml.device_by_uuid(reading->uuid, ret_device) == 0)
        return true;

    char slice[sizeof reading->uuid];
    write_uuid("MIG", uuid, slice, sizeof slice);
    if (nvml.device_by_uuid(slice, ret_device) != 0)
        return false;
    memcpy(reading->uuid, slice, sizeof slice);
    device_handle card;
    if (nvml.card_of_slice && nvml.card_of_slice(*ret_device, &card) == 0)
        *ret_device = card;
    return true;
}

void nvml_read(const unsigned char *uuid, struct nvml_reading *ret_reading)
{
    device_handle device;
    unsigned value = 0;

    (void)pthread_once(&once, load);
    const bool found = find_device(uuid, ret_reading, &device);
    if (usable && nvml.driver_version(ret_reading->driver, sizeof ret_reading->driver) != 0)
        ret_reading->driver[0] = 0;
    if (!found)
        return;
    if (nvml.temperature(device, 0, &value) == 0) /* 0: of the chip */
        ret_reading->temperature_celsius = (int)value;
    if (nvml.power(device, &value) == 0)
        ret_reading->power_watts = (int)((value + 500) / 1000);
}

/*
 * A management library that knows one device, or, with FAKE_MIG set, one slice of a device: of that it
 * tells no power, as the real one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlSystemGetDriverVersion(char *ret_version, unsigned size);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret_celsius);
int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_milliwatts);

static int only_device;

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *ret_version, unsigned size)
{
    (void)snprintf(ret_version, size, "580.65.06");
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device)
{
    const char *known = getenv("FAKE_MIG") ? "MIG-01000000-0000-0000-0000-000000000000"
                                           : "GPU-01000000-0000-0000-0000-000000000000";

    if (strcmp(uuid, known) != 0)
        return 6; /* not found */
    *ret_device = &only_device;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret_celsius)
{
    if (device != &only_device || sensor != 0)
        return 2;
    *ret_celsius = 41;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_milliwatts)
{
    if (device != &only_device || getenv("FAKE_MIG"))
        return 3; /* not supported */
    *ret_milliwatts = 119600;
    return 0;
}

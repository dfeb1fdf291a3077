/*
 * A management library that knows one device, or, with FAKE_MIG set, one slice of a device: of that it
 * tells neither power nor temperature, as the real one, but which card it is a slice of. With FAKE_NVML
 * set to "broken" it does not start, to "mute" it knows its devices and tells nothing of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvmlInit_v2(void);
int nvmlSystemGetDriverVersion(char *ret_version, unsigned size);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret_celsius);
int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_milliwatts);

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **ret_card);

static int card, slice;

static int is(const char *wanted)
{
    const char *set = getenv("FAKE_NVML");

    return set && strcmp(set, wanted) == 0;
}

int nvmlInit_v2(void)
{
    return is("broken") ? 9 : 0; /* the driver is not loaded */
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
    *ret_device = getenv("FAKE_MIG") ? &slice : &card;
    return 0;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *given, void **ret_card)
{
    if (given != &slice)
        return 2; /* invalid argument */
    *ret_card = &card;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *ret_celsius)
{
    if (device != &card || sensor != 0 || is("mute"))
        return 3; /* not supported */
    *ret_celsius = 41;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *ret_milliwatts)
{
    if (device != &card || is("mute"))
        return 3; /* not supported */
    *ret_milliwatts = 119600;
    return 0;
}

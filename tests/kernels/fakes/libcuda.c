/*
 * A driver that has no device: answers what FAKE_CUINIT and FAKE_VERSION say, so that each way in which
 * a machine can lack CUDA is met on one that has none. CUDA's runtime looks the functions up by name.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *ret_version);
int cuDeviceGetCount(int *ret_count);
int cuGetProcAddress_v2(const char *name, void **ret_function, int version, unsigned long flags,
                        int *ret_found);
int cuGetProcAddress(const char *name, void **ret_function, int version, unsigned long flags);
int cuGetExportTable(const void **ret_table, const void *id);

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text ? (int)strtol(text, NULL, 10) : otherwise;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return number("FAKE_CUINIT", 100);
}

int cuDriverGetVersion(int *ret_version)
{
    *ret_version = number("FAKE_VERSION", 13000);
    return 0;
}

int cuDeviceGetCount(int *ret_count)
{
    *ret_count = 0;
    return 0;
}

static int no_device(void)
{
    return 100;
}

int cuGetProcAddress_v2(const char *name, void **ret_function, int version, unsigned long flags,
                        int *ret_found)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    union {
        int (*function)(void);
        void *address;
    } other = {no_device};
    char longer[128];

    (void)version;
    (void)flags;
    if (!function) {
        (void)snprintf(longer, sizeof longer, "%s_v2", name);
        function = dlsym(RTLD_DEFAULT, longer);
    }
    *ret_function = function ? function : other.address;
    if (ret_found)
        *ret_found = 0;
    return 0;
}

int cuGetProcAddress(const char *name, void **ret_function, int version, unsigned long flags)
{
    return cuGetProcAddress_v2(name, ret_function, version, flags, NULL);
}

/* Tables of functions without names, of which the first entry is the size. */
int cuGetExportTable(const void **ret_table, const void *id)
{
    static union {
        size_t size;
        int (*function)(void);
    } table[64];

    (void)id;
    table[0].size = sizeof table;
    for (int i = 1; i < 64; i++)
        table[i].function = no_device;
    *ret_table = table;
    return 0;
}

/*
 * describe: what an inventory shows of the processor.
 *
 *   cores    those this process may run on (affinity), cut to its control group's quota
 *   library  the matrix library with its kernel
 */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/host.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cores of the control group's quota, rounded up; 0 without one. */
static int quota_cores(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    char line[64] = "";
    char *rest;

    if (!file)
        return 0;
    if (!fgets(line, sizeof line, file))
        line[0] = 0;
    (void)fclose(file); /* only read */
    unsigned long quota = strtoul(line, &rest, 10), period = strtoul(rest, NULL, 10);
    if (quota == 0 || period == 0) /* "max": no quota */
        return 0;
    return (int)((quota + period - 1) / period);
}

static int usable_cores(int fallback)
{
    cpu_set_t set;
    int cores = fallback, quota = quota_cores();

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cores = CPU_COUNT(&set);
    return quota > 0 && quota < cores ? quota : cores;
}

void cpu_describe(struct backend_device *ret_device)
{
    host_describe(ret_device);
    ret_device->core_count = usable_cores(ret_device->core_count);
    blas_describe(ret_device->library, sizeof ret_device->library);
}

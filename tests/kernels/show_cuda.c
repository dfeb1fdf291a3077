/*
 * Prints what the loader and the probe make of this machine: the reason why there is no card, or each
 * card's description and what opening it comes to. plugin.sh runs it in all kinds of surroundings.
 */
#include "kernels/backend.h"

#include <stdio.h>
#include <stdlib.h>

static void show(int index)
{
    const struct backend_options options = {.device_index = index, .thread_count = 1};
    struct backend_device device;
    struct backend *be;
    char reason[256] = "";

    const enum backend_status status = backend_describe(BACKEND_CUDA, index, &device);

    printf("cuda:%d: %s; %s; capability %s; driver %s; %s; precisions %x; %llu bytes, %llu free; "
           "%d C, %d W\n",
           index, device.name, device.uuid, device.capability, device.driver,
           device.library[0] ? device.library : device.library_warning, device.precisions,
           (unsigned long long)device.memory_total_bytes,
           (unsigned long long)device.memory_free_bytes, device.temperature_celsius,
           device.power_watts);
    if (status != BACKEND_OK)
        printf("cuda:%d: %s\n", index, device.trouble);
    if (backend_open(BACKEND_CUDA, &options, &be, reason, sizeof reason) != BACKEND_OK) {
        printf("cuda:%d: not opened: %s\n", index, reason);
        return;
    }
    if (!backend_alloc(be, (size_t)1 << 40))
        printf("cuda:%d: %s\n", index, backend_fault(be));
    backend_close(be);
}

int main(void)
{
    char reason[256] = "";
    const int count = backend_device_count(BACKEND_CUDA, reason, sizeof reason);

    printf("%d devices%s%s\n", count, count ? "" : ": ", count ? "" : reason);
    for (int index = 0; index < count; index++)
        show(index);
    return 0;
}

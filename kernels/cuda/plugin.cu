/*
 * plugin: the one function that needled-cuda.so exports.
 *
 * kernels/plugin.h says what the program makes of it.
 */
extern "C" {
#include "kernels/plugin.h"
}

#include "kernels/cuda/probe.h"

extern "C" __attribute__((visibility("default"))) const struct plugin *needled_plugin(void);

extern "C" const struct plugin *needled_plugin(void)
{
    static const struct plugin plugin = {
        PLUGIN_ABI,        sizeof(struct backend), sizeof(struct backend_table),
        cuda_device_count, cuda_describe,          cuda_open,
    };

    return &plugin;
}

/* A plug-in made for another interface; with OTHER_TABLE, one whose number was forgotten. */
#include "kernels/plugin.h"

const struct plugin *needled_plugin(void);

const struct plugin *needled_plugin(void)
{
    static const struct plugin plugin = {
#if defined(OTHER_TABLE)
        .abi = PLUGIN_ABI,
        .backend_size_bytes = sizeof(struct backend),
        .table_size_bytes = sizeof(struct backend_table) + 8,
#else
        .abi = PLUGIN_ABI + 1,
#endif
    };

    return &plugin;
}

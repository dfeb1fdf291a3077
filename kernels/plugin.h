/*
 * plugin: backends that come as a file of their own, found when the program runs.
 *
 * Purpose    needled-<kind>.so needs a vendor's tools to be built and a card to be of use; the program
 *            needs neither. It looks for the file in $NEEDLED_PLUGINS, or else beside itself, or else
 *            in ../lib/needled, and takes it when it was made for this very interface.
 * Ownership  A plug-in once loaded stays loaded.
 * Threads    Any; loading happens once a kind.
 * Failure    NULL and the reason: no such file, not a library, no entry, another interface.
 */
#ifndef NEEDLED_PLUGIN_H
#define NEEDLED_PLUGIN_H

#include "kernels/table.h"

/* Grows with every change of what is declared here, in backend.h, ops.h or table.h. */
#define PLUGIN_ABI 3

struct plugin {
    uint32_t abi; /* PLUGIN_ABI of its build; the next two catch a forgotten change */
    uint32_t backend_size_bytes; /* sizeof(struct backend) */
    uint32_t table_size_bytes;   /* sizeof(struct backend_table) */
    int (*device_count)(char *ret_reason, size_t reason_size);
    enum backend_status (*describe)(int device_index, struct backend_device *ret_device);
    enum backend_status (*open)(const struct backend_options *options, struct backend **ret_backend,
                                char *ret_reason, size_t reason_size);
};

/* The one function that a plug-in exports. */
#define PLUGIN_ENTRY "needled_plugin"
typedef const struct plugin *plugin_entry(void);

const struct plugin *plugin_load(enum backend_kind kind, char *ret_reason, size_t reason_size);
/* What tells the loaded file from another one, by its size and date of change; "" without a file. */
void plugin_build(enum backend_kind kind, char *ret_build, size_t size);

#endif

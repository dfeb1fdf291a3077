/*
 * table: the ops of this folder as one backend table, named after the level they are compiled for.
 *
 * It is the only symbol of a level that the rest of the program sees.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/host.h"

#define CPU_ENTRY(name, parameters, arguments)                                                     \
    CPU_ENTRY_(name, ((struct cpu *)be, OP_STRIP arguments), OP_STRIP parameters)
#define CPU_ENTRY_(name, arguments, ...)                                                           \
    static void entry_##name(struct backend *be, __VA_ARGS__)                                      \
    {                                                                                              \
        cpu_##name arguments;                                                                      \
    }
OPS(CPU_ENTRY)

#define CPU_FIELD(name, parameters, arguments) .name = entry_##name,
#define CPU_TABLE(level) CPU_TABLE_(level)
#define CPU_TABLE_(level) cpu_table_##level

extern const struct backend_table CPU_TABLE(CPU_LEVEL);

__attribute__((visibility("default")))
const struct backend_table CPU_TABLE(CPU_LEVEL) = {.close = cpu_close,
                                                   .alloc = host_alloc,
                                                   .free = host_free,
                                                   .import = host_import,
                                                   .release_import = host_release_import,
                                                   .upload = host_copy,
                                                   .download = host_copy,
                                                   .copy = host_copy,
                                                   .zero = host_zero,
                                                   .sync = host_sync,
                                                   OPS(CPU_FIELD)};

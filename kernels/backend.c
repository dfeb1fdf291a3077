#include "kernels/backend.h"

#include "kernels/check.h"
#include "kernels/host.h"
#include "kernels/plugin.h"
#include "kernels/selfcheck.h"
#include "kernels/table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"ref", "cpu", "cuda"};
static_assert(sizeof(names) / sizeof(names[0]) == BACKEND_KIND_COUNT, "a name for each kind");

const char *backend_name(enum backend_kind kind)
{
    assert(kind < BACKEND_KIND_COUNT);
    return names[kind];
}

int backend_device_count(enum backend_kind kind, char *ret_reason, size_t reason_size)
{
    switch (kind) {
    case BACKEND_REF:
    case BACKEND_CPU:
        return 1;
    case BACKEND_CUDA:
    case BACKEND_KIND_COUNT:
        break;
    }

    const struct plugin *plugin = plugin_load(kind, ret_reason, reason_size);
    return plugin ? plugin->device_count(ret_reason, reason_size) : 0;
}

static enum backend_status describe_plugged(enum backend_kind kind, int device_index,
                                            struct backend_device *device)
{
    const struct plugin *plugin = plugin_load(kind, device->trouble, sizeof(device->trouble));

    if (!plugin)
        return BACKEND_ABSENT;
    const enum backend_status status = plugin->describe(device_index, device);
    plugin_build(kind, device->build, sizeof(device->build));
    return status;
}

enum backend_status backend_describe(enum backend_kind kind, int device_index,
                                     struct backend_device *ret_device)
{
    *ret_device = (struct backend_device){0};
    switch (kind) {
    case BACKEND_REF:
    case BACKEND_CPU:
        break;
    case BACKEND_CUDA:
    case BACKEND_KIND_COUNT:
        return describe_plugged(kind, device_index, ret_device);
    }

    if (device_index != 0) {
        (void)snprintf(ret_device->trouble, sizeof(ret_device->trouble),
                       "no device %d: there is one, number 0", device_index);
        return BACKEND_ABSENT;
    }
    if (kind == BACKEND_CPU) {
        cpu_describe(ret_device);
    } else {
        host_describe(ret_device);
        (void)snprintf(ret_device->library, sizeof(ret_device->library), "plain loops, one thread");
    }
    ret_device->precisions = BACKEND_PRECISION_BIT(BACKEND_FLOAT32);
    return BACKEND_OK;
}

enum backend_status backend_open(enum backend_kind kind, const struct backend_options *options,
                                 struct backend **ret_backend, char *ret_reason, size_t reason_size)
{
    assert(options->thread_count >= 1);
    if (reason_size > 0)
        ret_reason[0] = 0;
    const int count = backend_device_count(kind, ret_reason, reason_size);
    if (count == 0)
        return BACKEND_ABSENT;
    if (options->device_index < 0 || options->device_index >= count) {
        (void)snprintf(ret_reason, reason_size, "no device %d: %s has %d, from number 0",
                       options->device_index, backend_name(kind), count);
        return BACKEND_ABSENT;
    }
    switch (kind) {
    case BACKEND_REF:
        return ref_open(options, ret_backend, ret_reason, reason_size);
    case BACKEND_CPU:
        return cpu_open(options, ret_backend, ret_reason, reason_size);
    case BACKEND_CUDA:
    case BACKEND_KIND_COUNT:
        break;
    }

    const struct plugin *plugin = plugin_load(kind, ret_reason, reason_size);
    return plugin->open(options, ret_backend, ret_reason, reason_size);
}

enum backend_status backend_choose_simd(enum backend_kind kind, const char *wanted,
                                        const char **ret_level, char *ret_reason,
                                        size_t reason_size)
{
    assert(reason_size > 0);
    if (kind == BACKEND_CPU)
        return cpu_choose_simd(wanted, ret_level, ret_reason, reason_size);
    ret_reason[0] = 0;
    *ret_level = "";
    return BACKEND_OK;
}

enum backend_status backend_check(struct backend *be, struct backend_check *ret_check,
                                  char *ret_reason, size_t reason_size)
{
    return selfcheck_run(be, ret_check, ret_reason, reason_size);
}

void backend_close(struct backend *be)
{
    if (!be)
        return;
    assert(be->allocated_bytes == 0); /* memory is freed first */
    assert(be->import_count == 0);
    be->table->close(be);
}

const char *const backend_precision_names[] = {
    [BACKEND_FLOAT32] = "float32",
    [BACKEND_TF32] = "tf32",
    [BACKEND_BF16] = "bf16",
    [BACKEND_PRECISION_COUNT] = NULL,
};

enum backend_precision backend_set_precision(struct backend *be, enum backend_precision precision)
{
    assert(precision <= BACKEND_BF16);
    be->precision = be->precisions & BACKEND_PRECISION_BIT(precision) ? precision : BACKEND_FLOAT32;
    return be->precision;
}

void backend_set_fault(struct backend *be, enum backend_status status, const char *format, ...)
{
    va_list arguments;

    assert(status != BACKEND_OK);
    if (be->status != BACKEND_OK)
        return; /* the first fault is the one that explains */
    be->status = status;
    va_start(arguments, format);
    (void)vsnprintf(be->fault, sizeof(be->fault), format, arguments);
    va_end(arguments);
}

/* ---- profile --------------------------------------------------------------------------------- */

#define OP_NUMBER(name, parameters, arguments) OP_NUMBER_##name,
enum op_number { OPS(OP_NUMBER) OP_NUMBER_memory };
static_assert(OP_NUMBER_memory + 1 == BACKEND_PROFILE_COUNT, "a profile for each op, and one more");

#define OP_NAME(name, parameters, arguments) #name,
static const char *const profile_names[BACKEND_PROFILE_COUNT] = {OPS(OP_NAME) "memory"};

static int64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* this clock always is */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void backend_profile_start(struct backend *be)
{
    for (size_t i = 0; i < BACKEND_PROFILE_COUNT; i++)
        be->profile[i] = (struct backend_profile){.name = profile_names[i]};
    be->is_profiled = true;
}

void backend_profile_stop(struct backend *be)
{
    be->is_profiled = false;
}

void backend_profile_read(const struct backend *be,
                          struct backend_profile ret_profile[BACKEND_PROFILE_COUNT])
{
    for (size_t i = 0; i < BACKEND_PROFILE_COUNT; i++) {
        ret_profile[i] = be->profile[i];
        ret_profile[i].name = profile_names[i];
    }
}

static void add_to_profile(struct backend *be, enum op_number op, int64_t started_ns)
{
    if (be->status == BACKEND_OK)
        be->table->sync(be);
    be->profile[op].call_count++;
    be->profile[op].elapsed_ns += now_ns() - started_ns;
}

/* The call, timed where that is asked for. */
#define PROFILED(op, call)                                                                         \
    do {                                                                                           \
        if (__builtin_expect(be->is_profiled, 0)) {                                                \
            const int64_t started_ns = now_ns();                                                   \
            call;                                                                                  \
            add_to_profile(be, OP_NUMBER_##op, started_ns);                                        \
        } else {                                                                                   \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

/* ---- memory ---------------------------------------------------------------------------------- */

uint64_t backend_free_bytes(struct backend *be)
{
    struct backend_device device = {0};

    if (be->table->free_bytes)
        return be->table->free_bytes(be);
    (void)backend_describe(be->kind, 0, &device); /* unknown: 0 */
    return device.memory_free_bytes;
}

void *backend_alloc(struct backend *be, size_t size_bytes)
{
    if (be->status != BACKEND_OK)
        return NULL;

    void *memory = be->table->alloc(be, size_bytes);
    if (!memory)
        backend_set_fault(be, BACKEND_NO_MEMORY, "out of memory: %zu bytes needed, %llu free",
                          size_bytes, (unsigned long long)backend_free_bytes(be));
    return memory;
}

void backend_free(struct backend *be, void *memory)
{
    be->table->free(be, memory); /* after a fault too */
}

const void *backend_import(struct backend *be, const void *host, size_t size_bytes)
{
    assert(host);
    if (be->status != BACKEND_OK)
        return NULL;

    const void *imported = be->table->import(be, host, size_bytes);
    if (imported)
        be->import_count++;
    else
        backend_set_fault(be, BACKEND_NO_MEMORY, "out of memory: %zu bytes needed, %llu free",
                          size_bytes, (unsigned long long)backend_free_bytes(be));
    return imported;
}

void backend_release_import(struct backend *be, const void *imported)
{
    if (!imported)
        return;
    assert(be->import_count > 0);
    be->import_count--;
    be->table->release_import(be, imported); /* after a fault too */
}

void backend_upload(struct backend *be, void *target, const void *host_source, size_t size_bytes)
{
    if (be->status == BACKEND_OK && size_bytes > 0)
        PROFILED(memory, be->table->upload(be, target, host_source, size_bytes));
}

void backend_download(struct backend *be, void *host_target, const void *source, size_t size_bytes)
{
    if (be->status == BACKEND_OK && size_bytes > 0)
        PROFILED(memory, be->table->download(be, host_target, source, size_bytes));
}

void backend_copy(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    if (be->status == BACKEND_OK && size_bytes > 0)
        PROFILED(memory, be->table->copy(be, target, source, size_bytes));
}

void backend_zero(struct backend *be, void *target, size_t size_bytes)
{
    if (be->status == BACKEND_OK && size_bytes > 0)
        PROFILED(memory, be->table->zero(be, target, size_bytes));
}

enum backend_status backend_sync(struct backend *be)
{
    if (be->status == BACKEND_OK)
        be->table->sync(be);
    return be->status;
}

const char *backend_fault(const struct backend *be)
{
    return be->fault;
}

size_t backend_allocated_bytes(const struct backend *be)
{
    return be->allocated_bytes;
}

/* ---- ops: nothing after a fault, shapes checked, then the backend's own ---------------------- */

#define OP_DISPATCH(name, parameters, arguments)                                                   \
    OP_DISPATCH_(name, arguments, (be, OP_STRIP arguments), OP_STRIP parameters)
#define OP_DISPATCH_(name, arguments, with_backend, ...)                                           \
    void backend_##name(struct backend *be, __VA_ARGS__)                                           \
    {                                                                                              \
        if (be->status != BACKEND_OK)                                                              \
            return;                                                                                \
        check_##name arguments;                                                                    \
        PROFILED(name, be->table->name with_backend);                                              \
    }
OPS(OP_DISPATCH)

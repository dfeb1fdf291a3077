#include "kernels/host.h"

#include "kernels/table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT 64

/* Stands in front of every block, so that giving it back needs no size. */
struct header {
    size_t size_bytes;
    void *whole; /* what calloc gave */
    unsigned char fill[ALIGNMENT - sizeof(size_t) - sizeof(void *)];
};
static_assert(sizeof(struct header) == ALIGNMENT, "a block starts right behind its header");

void *host_alloc(struct backend *be, size_t size_bytes)
{
    struct header *header;
    size_t whole_bytes;
    void *whole;

    if (__builtin_add_overflow(size_bytes, sizeof(*header) + ALIGNMENT - 1, &whole_bytes))
        return NULL;
    if (whole_bytes > PTRDIFF_MAX) /* no block can be that large */
        return NULL;
    whole = calloc(1, whole_bytes); /* a large block's pages are zero as they come, at first use */
    if (!whole)
        return NULL;
    header = (struct header *)(((uintptr_t)whole + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    header->size_bytes = size_bytes;
    header->whole = whole;
    be->allocated_bytes += size_bytes;
    return header + 1;
}

void host_free(struct backend *be, void *memory)
{
    if (!memory)
        return;

    struct header *header = (struct header *)memory - 1;
    be->allocated_bytes -= header->size_bytes;
    free(header->whole);
}

const void *host_import(struct backend *be, const void *host, size_t size_bytes)
{
    (void)be;
    (void)size_bytes;
    return host;
}

void host_release_import(struct backend *be, const void *imported)
{
    (void)be;
    (void)imported;
}

void host_copy(struct backend *be, void *target, const void *source, size_t size_bytes)
{
    (void)be;
    memmove(target, source, size_bytes);
}

void host_zero(struct backend *be, void *target, size_t size_bytes)
{
    (void)be;
    memset(target, 0, size_bytes);
}

void host_sync(struct backend *be)
{
    (void)be;
}

/* Copies what follows the colon of the first line that starts with `key`. */
static bool read_line_value(const char *path, const char *key, char *ret_value, size_t size)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, key, strlen(key)) != 0)
            continue;
        value += 1 + strspn(value + 1, " \t");
        (void)snprintf(ret_value, size, "%.*s", (int)strcspn(value, "\n"), value);
        found = true;
    }
    if (file)
        (void)fclose(file); /* only read */
    return found;
}

void host_describe(struct backend_device *ret_device)
{
    long page_bytes = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    char kib[64];

    *ret_device = (struct backend_device){.core_count = cores > 0 ? (int)cores : 1};
    if (!read_line_value("/proc/cpuinfo", "model name", ret_device->name, sizeof(ret_device->name)))
        (void)snprintf(ret_device->name, sizeof(ret_device->name), "unnamed processor");
    if (page_bytes > 0 && pages > 0)
        ret_device->memory_total_bytes = (uint64_t)page_bytes * (uint64_t)pages;
    if (read_line_value("/proc/meminfo", "MemAvailable", kib, sizeof(kib)))
        ret_device->memory_free_bytes = (uint64_t)strtoull(kib, NULL, 10) * 1024;
}

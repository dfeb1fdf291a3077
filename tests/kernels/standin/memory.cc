#include "tests/kernels/standin/memory.h"

#include "tests/kernels/standin/check.h"
#include "tests/kernels/standin/device.h"
#include "tests/kernels/standin/report.h"
#include "tests/kernels/standin/stream.h"

#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, size_bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(memory, size_bytes) ((void)0)
#endif

#define SPAN ((size_t)2 << 30) /* of addresses, a device */
#define RANGE (SPAN * STANDIN_DEVICES_MAX)
#define PAGE ((size_t)4096)
#define GAP PAGE
#define ALIGNMENT ((size_t)256) /* what cudaMalloc promises */

/* The race build names an access before it happens and goes on: its pages stay open. */
#if defined(STANDIN_RACE)
#define CLOSED (PROT_READ | PROT_WRITE)
#else
#define CLOSED PROT_NONE
#endif

struct pinned {
    struct pinned *next;
    size_t size_bytes;
    alignas(16) unsigned char memory[];
};

static unsigned char *range;
static struct allocation *allocations; /* by address */
static size_t allocation_count, allocation_capacity;
static size_t cursor[STANDIN_DEVICES_MAX], used_bytes[STANDIN_DEVICES_MAX];
static struct pinned *pinned;
static size_t pinned_count;
static int current_device;
static bool sealed;
static int work_depth; /* work may wait for other work */

static size_t round_up(size_t size, size_t multiple)
{
    return (size + multiple - 1) / multiple * multiple;
}

static void *map(size_t size_bytes, int protection)
{
    void *memory =
        mmap(NULL, size_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        abort();
    return memory;
}

void *memory_reserve(size_t size_bytes)
{
    return map(size_bytes, PROT_READ | PROT_WRITE);
}

bool memory_is_device(const void *address)
{
    const uintptr_t a = (uintptr_t)address, b = (uintptr_t)range;

    return range && a >= b && a - b < RANGE;
}

const unsigned char *memory_device_range(size_t *ret_size_bytes)
{
    if (!range)
        range = static_cast<unsigned char *>(map(RANGE, CLOSED));
    *ret_size_bytes = RANGE;
    return range;
}

int memory_current_device(void)
{
    return current_device;
}

void memory_set_current_device(int device)
{
    current_device = device;
}

size_t memory_used_bytes(int device)
{
    return used_bytes[device];
}

size_t standin_allocation_count(void)
{
    return allocation_count + pinned_count;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* How many allocations start at or below the address. */
static size_t count_below(const void *address)
{
    size_t low = 0, high = allocation_count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if ((uintptr_t)allocations[middle].start <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct allocation *memory_find(const void *address)
{
    static size_t last; /* accesses come in runs */

    if (last < allocation_count && memory_within(&allocations[last], address, 1))
        return &allocations[last];
    const size_t below = count_below(address);
    if (below == 0)
        return NULL;
    last = below - 1;
    return &allocations[last];
}

bool memory_within(const struct allocation *allocation, const void *address, size_t size_bytes)
{
    const uintptr_t a = (uintptr_t)address, b = (uintptr_t)allocation->start;

    return a >= b && a - b <= allocation->size_bytes &&
           size_bytes <= allocation->size_bytes - (a - b);
}

bool memory_check(const void *address, size_t size_bytes, int device, const char *who)
{
    const struct allocation *found = memory_is_device(address) ? memory_find(address) : NULL;

    if (!memory_is_device(address))
        report(NULL, "%s: %p is not device memory", who, address);
    else if (!found || !memory_within(found, address, size_bytes))
        report(NULL, "%s: %zu bytes from %p are not within one device buffer", who, size_bytes,
               address);
    else if (found->device != device)
        report(NULL, "%s: memory of device %d on device %d", who, found->device, device);
    else
        return true;
    return false;
}

/* ---- allocating ------------------------------------------------------------------------------ */

/* The first allocation at or above an offset into the range, which may reach over it from below. */
static size_t first_reaching(size_t offset)
{
    size_t i = count_below(range + offset);

    if (i > 0 && allocations[i - 1].pages + allocations[i - 1].pages_bytes + GAP > range + offset)
        i--;
    return i;
}

/* Offset of a free stretch for pages and their gap, from the device's cursor on, then from its
 * start; SIZE_MAX: none. */
static size_t find_stretch(int device, size_t pages_bytes)
{
    const size_t begin = SPAN * (size_t)device, end = begin + device_address_bytes();

    for (int lap = 0; lap < 2; lap++) {
        size_t offset = begin + (lap == 0 ? cursor[device] : 0);

        for (size_t i = first_reaching(offset);; i++) {
            const bool last = i == allocation_count || allocations[i].pages >= range + end;
            const size_t limit = last ? end : (size_t)(allocations[i].pages - range);

            if (offset < limit && limit - offset >= pages_bytes + GAP)
                return offset;
            if (last)
                break;
            offset = limit + allocations[i].pages_bytes + GAP;
        }
    }
    return SIZE_MAX;
}

static void protect(const struct allocation *a, int protection)
{
    if (mprotect(a->pages, a->pages_bytes, protection) != 0)
        abort();
}

void memory_seal(void)
{
    sealed = true;
    for (size_t i = 0; i < allocation_count; i++)
        protect(&allocations[i], CLOSED);
}

void memory_work_begins(void)
{
    if (sealed && work_depth++ == 0)
        for (size_t i = 0; i < allocation_count; i++)
            protect(&allocations[i], PROT_READ | PROT_WRITE);
}

void memory_work_ended(void)
{
    if (sealed && --work_depth == 0)
        for (size_t i = 0; i < allocation_count; i++)
            protect(&allocations[i], CLOSED);
}

static bool make_room(void)
{
    if (allocation_count < allocation_capacity)
        return true;
    const size_t capacity = allocation_capacity ? 2 * allocation_capacity : 64;
    void *grown = realloc(allocations, capacity * sizeof *allocations);
    if (!grown)
        return false;
    allocations = static_cast<struct allocation *>(grown);
    allocation_capacity = capacity;
    return true;
}

static void open_pages(const struct allocation *a)
{
    unsigned char *end = a->start + a->size_bytes;

    protect(a, PROT_READ | PROT_WRITE);
    ASAN_UNPOISON_MEMORY_REGION(a->pages, a->pages_bytes);
    memset(a->start, 0xff, a->size_bytes); /* NaN */
    ASAN_POISON_MEMORY_REGION(a->pages, (size_t)(a->start - a->pages));
    ASAN_POISON_MEMORY_REGION(end, (size_t)(a->pages + a->pages_bytes - end));
    (void)end;
    check_allocated(a->start, a->size_bytes);
    if (sealed && work_depth == 0)
        protect(a, CLOSED);
}

static void close_pages(const struct allocation *a)
{
    ASAN_POISON_MEMORY_REGION(a->pages, a->pages_bytes);
    if (madvise(a->pages, a->pages_bytes, MADV_DONTNEED) != 0 ||
        mprotect(a->pages, a->pages_bytes, CLOSED) != 0)
        abort();
}

static size_t free_bytes(int device)
{
    const size_t taken = used_bytes[device] + device_others_bytes(device);

    return taken < device_memory_bytes() ? device_memory_bytes() - taken : 0;
}

cudaError_t cudaMalloc(void **ret_memory, size_t size_bytes)
{
    const struct api_call call;
    const int device = device_current();
    size_t ignored;

    if (call.error != cudaSuccess)
        return call.error;
    device_counts(device)->allocations++;
    if (size_bytes == 0) { /* as the real one */
        *ret_memory = NULL;
        return cudaSuccess;
    }
    if (size_bytes > free_bytes(device) || device_is_short(device))
        return api_fail(cudaErrorMemoryAllocation);
    (void)memory_device_range(&ignored);
    const size_t pages_bytes = round_up(size_bytes, PAGE);
    const size_t offset = find_stretch(device, pages_bytes);
    if (offset == SIZE_MAX || !make_room())
        return api_fail(cudaErrorMemoryAllocation);

    unsigned char *pages = range + offset;
    unsigned char *start = pages + pages_bytes - round_up(size_bytes, ALIGNMENT);
    const struct allocation made = {start, size_bytes, pages, pages_bytes, device};
    const size_t place = count_below(start);
    memmove(&allocations[place + 1], &allocations[place],
            (allocation_count - place) * sizeof *allocations);
    allocations[place] = made;
    allocation_count++;
    cursor[device] = offset - SPAN * (size_t)device + pages_bytes + GAP;
    used_bytes[device] += size_bytes;
    open_pages(&made);
    *ret_memory = start;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    const struct api_call call(API_ON_BROKEN_DEVICE); /* memory comes back all the same */
    const size_t below = count_below(memory);

    if (!memory)
        return call.error;
    if (below == 0 || allocations[below - 1].start != memory) {
        report(NULL, "cudaFree: %p is not a live device buffer", memory);
        return api_fail(cudaErrorInvalidValue);
    }
    const struct allocation freed = allocations[below - 1];
    device_counts(freed.device)->allocations++;
    stream_drain_device(freed.device);
    close_pages(&freed);
    used_bytes[freed.device] -= freed.size_bytes;
    memmove(&allocations[below - 1], &allocations[below],
            (allocation_count - below) * sizeof *allocations);
    allocation_count--;
    return call.error;
}

cudaError_t cudaMallocHost(void **ret_memory, size_t size_bytes)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    struct pinned *made = static_cast<struct pinned *>(malloc(sizeof *made + size_bytes));
    if (!made)
        return api_fail(cudaErrorMemoryAllocation);
    made->next = pinned;
    made->size_bytes = size_bytes;
    memset(made->memory, 0xff, size_bytes);
    pinned = made;
    pinned_count++;
    device_counts(device_current())->allocations++;
    *ret_memory = made->memory;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    const struct api_call call(API_ON_BROKEN_DEVICE);
    struct pinned **link = &pinned;

    if (!memory)
        return call.error;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    if (!*link) {
        report(NULL, "cudaFreeHost: %p is not live pinned memory", memory);
        return api_fail(cudaErrorInvalidValue);
    }
    stream_drain_device(device_current());
    struct pinned *freed = *link;
    *link = freed->next;
    pinned_count--;
    device_counts(device_current())->allocations++;
    free(freed);
    return call.error;
}

bool memory_is_pinned(const void *address, size_t size_bytes)
{
    const uintptr_t a = (uintptr_t)address;

    for (const struct pinned *buffer = pinned; buffer; buffer = buffer->next) {
        const uintptr_t start = (uintptr_t)buffer->memory;

        if (a >= start && a - start <= buffer->size_bytes)
            return size_bytes <= buffer->size_bytes - (a - start);
    }
    return false;
}

cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    *ret_total = device_memory_bytes();
    *ret_free = free_bytes(device_current());
    return cudaSuccess;
}

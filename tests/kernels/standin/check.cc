#include "tests/kernels/standin/check.h"

#include "tests/kernels/standin/fiber.h"
#include "tests/kernels/standin/group.h"
#include "tests/kernels/standin/memory.h"
#include "tests/kernels/standin/report.h"

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

/* ---- shared memory: the section all shared arrays stand in ----------------------------------- */

extern "C" unsigned char __start_standin_shared[] __attribute__((weak, visibility("hidden")));
extern "C" unsigned char __stop_standin_shared[] __attribute__((weak, visibility("hidden")));

static size_t shared_size(void)
{
    return (size_t)(__stop_standin_shared - __start_standin_shared);
}

/* ---- host memory in flight ------------------------------------------------------------------- */

#if defined(STANDIN_RACE) || defined(__SANITIZE_ADDRESS__)
#define PENDING_MAX 256

static struct pending {
    const unsigned char *begin;
    size_t size_bytes;
    bool will_be_written;
} pending[PENDING_MAX];
static size_t pending_count;

void check_host_pending(const void *memory, size_t size_bytes, bool will_be_written)
{
    if (pending_count == PENDING_MAX)
        report_and_exit("more than %d copies are queued", PENDING_MAX);
    pending[pending_count++] = {static_cast<const unsigned char *>(memory), size_bytes,
                                will_be_written};
#if defined(__SANITIZE_ADDRESS__)
    if (will_be_written)
        ASAN_POISON_MEMORY_REGION(memory, size_bytes);
#endif
}

void check_host_settled(const void *memory)
{
    for (size_t i = 0; i < pending_count; i++) {
        if (pending[i].begin != memory)
            continue;
#if defined(__SANITIZE_ADDRESS__)
        if (pending[i].will_be_written)
            ASAN_UNPOISON_MEMORY_REGION(memory, pending[i].size_bytes);
#endif
        pending[i] = pending[--pending_count];
        return;
    }
}
#endif

#if !defined(STANDIN_RACE)

void check_block_begins(void)
{
    if (shared_size() > 0)
        memset(__start_standin_shared, 0xff, shared_size());
}

#else

/* Each load and store comes through here: what its call says of it is known where this is inlined. */
#define INLINED static inline __attribute__((always_inline))
#define SELDOM static __attribute__((noinline, cold))

#define SHARED_BYTES_MAX (32 << 10) /* what every card has */
#define SHARED_CELLS_MAX ((256 << 10) / 4)
#define WARPS_MAX (GROUP_THREADS_MAX / 32)

/* Who accessed a cell last. Of several readers in an interval one mark is left: SOME_OF_WARP + warp
 * when all were of one warp, else MANY; its bytes are those that all of them read. */
enum { SOME_OF_WARP = 1024, MANY = 2047 };

struct mark {
    uint32_t interval;
    uint32_t warp_interval : 16, who : 12, bytes : 4;
};

struct cell {
    struct mark write, read;
};

/* One address range with a cell and a byte of "written" bits for every 4 bytes. */
struct shadow {
    const unsigned char *begin;
    size_t size_bytes;
    struct cell *cells;
    unsigned char *written;
    const char *name;
    bool between_blocks; /* blocks of a launch race there */
};

static struct shadow device_shadow = {NULL, 0, NULL, NULL, "device", true};
static struct shadow shared_shadow = {NULL, 0, NULL, NULL, "shared", false};
static size_t shared_first = SIZE_MAX, shared_past; /* the cells between were written */

/* The interval ascends over the whole run: a block's intervals are those from its first. */
static uint32_t interval = 1, launch_first_interval, block_first_interval;
static uint16_t warp_intervals[WARPS_MAX];
static const unsigned char *arguments_begin;
static size_t arguments_bytes;

/* ---- marks ----------------------------------------------------------------------------------- */

struct access {
    const void *code;
    bool writes;
    int thread, warp;
};

INLINED struct mark mark_of(const struct access *access, unsigned bytes)
{
    return {interval, warp_intervals[access->warp], (unsigned)access->thread, bytes};
}

INLINED int warp_of(unsigned who)
{
    return who < SOME_OF_WARP ? (int)who / 32 : who == MANY ? -1 : (int)who - SOME_OF_WARP;
}

INLINED bool conflicts(const struct shadow *shadow, const struct mark *mark,
                       const struct access *access, unsigned bytes)
{
    if (!(mark->bytes & bytes))
        return false;
    if (mark->interval == interval) {
        if (mark->who == (unsigned)access->thread)
            return false;
        return warp_of(mark->who) != access->warp ||
               mark->warp_interval == warp_intervals[access->warp];
    }
    return shadow->between_blocks && mark->interval >= launch_first_interval &&
           mark->interval < block_first_interval;
}

SELDOM void report_race(const struct shadow *shadow, const struct mark *mark,
                        const struct access *access, const char *earlier)
{
    const bool same_block = mark->interval == interval;

    report(access->code, "race in %s memory: %s here, %s by %s, no barrier between", shadow->name,
           access->writes ? "write" : "read", earlier,
           same_block ? "another thread of the block" : "another block");
}

/* Merges a read into what is known of the readers of this interval. */
INLINED struct mark merged_read(const struct mark *known, const struct access *access,
                                unsigned bytes)
{
    struct mark mark = mark_of(access, bytes);

    if (known->interval != interval)
        return mark;
    if (known->who == mark.who) {
        mark.bytes |= known->bytes;
    } else if (known->bytes & bytes) {
        mark.bytes = known->bytes & bytes; /* never a false alarm */
        mark.who = warp_of(known->who) == access->warp ? SOME_OF_WARP + (unsigned)access->warp
                                                       : (unsigned)MANY;
    }
    return mark;
}

INLINED void touch_cell(struct shadow *shadow, size_t index, unsigned bytes,
                        const struct access *access)
{
    struct cell *cell = &shadow->cells[index];

    if (!access->writes && (shadow->written[index] & bytes) != bytes)
        report(access->code, "read of uninitialised %s memory", shadow->name);
    if (conflicts(shadow, &cell->write, access, bytes))
        report_race(shadow, &cell->write, access, "written");
    else if (access->writes && conflicts(shadow, &cell->read, access, bytes))
        report_race(shadow, &cell->read, access, "read");
    if (!access->writes) {
        cell->read = merged_read(&cell->read, access, bytes);
        return;
    }
    struct mark mark = mark_of(access, bytes);
    if (cell->write.interval == interval && cell->write.who == mark.who)
        mark.bytes |= cell->write.bytes;
    cell->write = mark;
    shadow->written[index] |= (unsigned char)bytes;
}

INLINED void touch(struct shadow *shadow, const unsigned char *address, size_t size_bytes,
                   const struct access *access)
{
    if (size_bytes == 4 && (uintptr_t)address % 4 == 0) { /* nearly all */
        touch_cell(shadow, (size_t)(address - shadow->begin) / 4, 15, access);
        return;
    }
    while (size_bytes > 0) {
        const size_t offset = (size_t)(address - shadow->begin), in_cell = offset % 4;
        const size_t here = size_bytes < 4 - in_cell ? size_bytes : 4 - in_cell;

        touch_cell(shadow, offset / 4, ((1u << here) - 1) << in_cell, access);
        address += here;
        size_bytes -= here;
    }
}

/* ---- where an access may go ------------------------------------------------------------------ */

extern "C" const unsigned char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const unsigned char _end[] __attribute__((visibility("hidden")));
extern "C" const unsigned char data_start[] __attribute__((weak)); /* programs have it */

/* Buffers that this launch met, by the page of an access; none comes or goes while it runs. */
#define MET_COUNT 256
static struct allocation met[MET_COUNT];

INLINED bool within(const unsigned char *address, const void *begin, size_t size_bytes)
{
    return (uintptr_t)address - (uintptr_t)begin < size_bytes;
}

/* Whether the access goes to one buffer of this device, which is then kept; reports it if not. */
SELDOM bool meet(struct allocation *place, const unsigned char *address, size_t size_bytes,
                 const struct access *access)
{
    const struct allocation *near = memory_find(address);
    const char *verb = access->writes ? "write" : "read";

    if (!near || !memory_within(near, address, size_bytes)) {
        report(access->code,
               "%s of %zu bytes outside of device memory: %td bytes past the start "
               "of the nearest buffer, which has %zu",
               verb, size_bytes, near ? address - near->start : (ptrdiff_t)0,
               near ? near->size_bytes : 0);
        return false;
    }
    if (near->device != memory_current_device()) {
        report(access->code, "%s of memory of device %d by a kernel on device %d", verb,
               near->device, memory_current_device());
        return false;
    }
    *place = *near;
    return true;
}

INLINED void touch_device(const unsigned char *address, size_t size_bytes,
                          const struct access *access)
{
    struct allocation *place = &met[(uintptr_t)address / 4096 % MET_COUNT];

    if ((within(address, place->start, place->size_bytes) &&
         size_bytes <= place->size_bytes - (size_t)(address - place->start)) ||
        meet(place, address, size_bytes, access))
        touch(&device_shadow, address, size_bytes, access);
}

INLINED void touch_shared(const unsigned char *address, size_t size_bytes,
                          const struct access *access)
{
    const size_t offset = (size_t)(address - shared_shadow.begin);

    if (access->writes && offset / 4 < shared_first)
        shared_first = offset / 4;
    if (access->writes && (offset + size_bytes + 3) / 4 > shared_past)
        shared_past = (offset + size_bytes + 3) / 4;
    touch(&shared_shadow, address, size_bytes, access);
}

SELDOM void check_host_memory(const unsigned char *address, bool writes, const void *code)
{
    if (within(address, arguments_begin, arguments_bytes))
        return;
    if (within(address, __ehdr_start, (size_t)(_end - __ehdr_start))) {
        if (writes || (data_start && address >= data_start))
            report(code, "kernel %s a variable of the host", writes ? "writes" : "reads");
    } else
        report(code, "kernel %s host memory at %p", writes ? "writes" : "reads",
               static_cast<const void *>(address));
}

INLINED void check_kernel_access(const unsigned char *address, size_t size_bytes, bool writes,
                                 const void *code)
{
    const int thread = group_thread_number;
    const struct access access = {code, writes, thread, thread / 32};

    if (within(address, shared_shadow.begin, shared_shadow.size_bytes))
        touch_shared(address, size_bytes, &access);
    else if (within(address, device_shadow.begin, device_shadow.size_bytes))
        touch_device(address, size_bytes, &access);
    else if (!fiber_holds(address))
        check_host_memory(address, writes, code);
}

static void check_host_access(const unsigned char *address, size_t size_bytes, bool writes,
                              const void *code)
{
    if (memory_is_device(address)) {
        report(code, "host code %s device memory", writes ? "writes" : "reads");
        return;
    }
    for (size_t i = 0; i < pending_count; i++)
        if ((writes || pending[i].will_be_written) &&
            address < pending[i].begin + pending[i].size_bytes &&
            address + size_bytes > pending[i].begin)
            report(code, "host code %s memory that a queued copy has not %s yet",
                   writes ? "writes" : "reads", pending[i].will_be_written ? "written" : "read");
}

INLINED void check_access(const void *address, size_t size_bytes, bool writes, const void *code)
{
    const unsigned char *bytes = static_cast<const unsigned char *>(address);

    if (group_in_kernel())
        check_kernel_access(bytes, size_bytes, writes, code);
    else
        check_host_access(bytes, size_bytes, writes, code);
}

/* ---- what happens to a block ----------------------------------------------------------------- */

void check_launch_begins(const void *arguments, size_t arguments_size)
{
    arguments_begin = static_cast<const unsigned char *>(arguments);
    arguments_bytes = arguments_size;
    launch_first_interval = ++interval;
    memset(met, 0, sizeof met);
}

void check_launch_ended(void)
{
    interval++;
    arguments_bytes = 0;
}

static void open_shared_shadow(void)
{
    if (shared_size() / 4 > SHARED_CELLS_MAX)
        report_and_exit("%zu bytes of shared arrays: more than the checker keeps", shared_size());
    shared_shadow.begin = __start_standin_shared;
    shared_shadow.size_bytes = shared_size();
    shared_shadow.cells =
        static_cast<struct cell *>(calloc(SHARED_CELLS_MAX + 1, sizeof(struct cell)));
    shared_shadow.written = static_cast<unsigned char *>(calloc(SHARED_CELLS_MAX + 1, 1));
    if (!shared_shadow.cells || !shared_shadow.written)
        abort();
    shared_first = 0; /* all is to be filled */
    shared_past = shared_size() / 4;
}

void check_block_begins(void)
{
    if (!shared_shadow.cells)
        open_shared_shadow();
    block_first_interval = ++interval;
    memset(warp_intervals, 0, sizeof warp_intervals);
    if (shared_first >= shared_past)
        return;
    memset(shared_shadow.written + shared_first, 0, shared_past - shared_first);
    memset(__start_standin_shared + 4 * shared_first, 0xff, 4 * (shared_past - shared_first));
    shared_first = SIZE_MAX;
    shared_past = 0;
}

void check_block_ended(void)
{
    size_t used_bytes = 0;

    for (size_t i = shared_first; i < shared_past; i++)
        used_bytes += shared_shadow.written[i] == 15
                          ? 4u
                          : (unsigned)__builtin_popcount(shared_shadow.written[i]);
    if (used_bytes > SHARED_BYTES_MAX)
        report(NULL, "%zu bytes of shared memory, more than the %d every card has", used_bytes,
               SHARED_BYTES_MAX);
}

void check_barrier_opened(void)
{
    interval++;
}

void check_warp_synchronised(int warp)
{
    warp_intervals[warp]++;
}

/* ---- device memory, from the runtime --------------------------------------------------------- */

static void open_device_shadow(void)
{
    size_t size_bytes;

    if (device_shadow.cells)
        return;
    device_shadow.begin = memory_device_range(&size_bytes);
    device_shadow.size_bytes = size_bytes;
    device_shadow.cells =
        static_cast<struct cell *>(memory_reserve(size_bytes / 4 * sizeof(struct cell)));
    device_shadow.written = static_cast<unsigned char *>(memory_reserve(size_bytes / 4));
}

static size_t first_cell(const void *memory)
{
    open_device_shadow();
    return (size_t)(static_cast<const unsigned char *>(memory) - device_shadow.begin) / 4;
}

void check_allocated(const void *memory, size_t size_bytes)
{
    const size_t first = first_cell(memory);

    memset(&device_shadow.written[first], 0, (size_bytes + 3) / 4);
}

void check_device_read(const void *memory, size_t size_bytes, const char *who)
{
    const size_t first = first_cell(memory);

    for (size_t i = 0; i < size_bytes / 4; i++)
        if (device_shadow.written[first + i] != 15) {
            report(NULL, "%s reads uninitialised device memory, %zu bytes past its start", who,
                   4 * i);
            return;
        }
}

void check_device_written(const void *memory, size_t size_bytes)
{
    const size_t first = first_cell(memory);

    memset(&device_shadow.written[first], 15, size_bytes / 4);
    if (size_bytes % 4 != 0)
        device_shadow.written[first + size_bytes / 4] |= (1u << size_bytes % 4) - 1;
}

/* ---- what the compiler calls ----------------------------------------------------------------- */

#define HOOK(name, size_bytes, writes)                                                             \
    extern "C" void name(void *address);                                                           \
    void name(void *address)                                                                       \
    {                                                                                              \
        check_access(address, size_bytes, writes, __builtin_return_address(0));                    \
    }
#define HOOKS(bytes)                                                                               \
    HOOK(__tsan_read##bytes, bytes, false)                                                         \
    HOOK(__tsan_write##bytes, bytes, true)                                                         \
    HOOK(__tsan_unaligned_read##bytes, bytes, false)                                               \
    HOOK(__tsan_unaligned_write##bytes, bytes, true)
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" {
void __tsan_init(void);
void __tsan_func_entry(void *address);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **pointer, void *value);
void __tsan_read_range(void *address, unsigned long size_bytes);
void __tsan_write_range(void *address, unsigned long size_bytes);

void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_read_range(void *address, unsigned long size_bytes)
{
    check_access(address, size_bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void *address, unsigned long size_bytes)
{
    check_access(address, size_bytes, true, __builtin_return_address(0));
}
}

#endif

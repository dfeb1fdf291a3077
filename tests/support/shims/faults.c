/*
 * faults: calls that fail when a test says so; LD_PRELOAD puts it before the library's.
 *
 * The file named in FAULTS_SHIM is mapped: a test reads and writes it while the process runs. It holds words of
 * eight bytes in this machine's order:
 *
 *   0 armed   1: calls are counted; a fault is made where one is asked for
 *   1 kind    of call that fails: see enum kind; any other number: none
 *   2 nth     of that kind, from 1
 *   3 errno   that it fails with
 *   4 sticky  1: all later ones fail too, as on a full disk
 *   5 fired   how often one failed
 *   6...      how many calls there were of each kind
 *
 * Writes to sockets, pipes and the standard descriptors are left alone: only what goes to a disk counts.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { KIND_WRITE, KIND_SYNC, KIND_RENAME, KIND_CREATE, KIND_RESIZE, KIND_MEMORY, KIND_COUNT };

struct table {
    _Atomic uint64_t armed, kind, nth, number, sticky, fired, counts[KIND_COUNT];
};

static _Atomic(struct table *) table;

__attribute__((constructor)) static void open_table(void)
{
    const char *path = getenv("FAULTS_SHIM");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map;

    if (file < 0)
        return;
    map = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    if (map != MAP_FAILED)
        atomic_store(&table, map);
}

/* Counts the call; true, with errno, when it is the one that fails. */
static int fails(enum kind kind)
{
    struct table *now = atomic_load(&table);
    uint64_t count;

    if (!now || !atomic_load(&now->armed))
        return 0;
    count = atomic_fetch_add(&now->counts[kind], 1) + 1;
    if (atomic_load(&now->kind) != kind || count < atomic_load(&now->nth) ||
        (count > atomic_load(&now->nth) && !atomic_load(&now->sticky)))
        return 0;
    atomic_fetch_add(&now->fired, 1);
    errno = (int)atomic_load(&now->number);
    return 1;
}

static int is_on_disk(int descriptor)
{
    struct stat about;

    return descriptor > 2 && fstat(descriptor, &about) == 0 &&
           (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode));
}

/* The library's function of that name, into a pointer of its type. */
#define NEXT(name)                                                                                 \
    static _Atomic(__typeof__(&(name))) found;                                                     \
    __typeof__(&(name)) next = atomic_load(&found);                                                \
    if (!next) {                                                                                   \
        *(void **)&next = dlsym(RTLD_NEXT, #name);                                                 \
        atomic_store(&found, next);                                                                \
    }

/* ---- writing ----------------------------------------------------------------------------------- */

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    NEXT(write)
    return is_on_disk(descriptor) && fails(KIND_WRITE) ? -1 : next(descriptor, bytes, size);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t at)
{
    NEXT(pwrite)
    return is_on_disk(descriptor) && fails(KIND_WRITE) ? -1 : next(descriptor, bytes, size, at);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t at)
{
    NEXT(pwrite64)
    return is_on_disk(descriptor) && fails(KIND_WRITE) ? -1 : next(descriptor, bytes, size, at);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    NEXT(writev)
    return is_on_disk(descriptor) && fails(KIND_WRITE) ? -1 : next(descriptor, parts, count);
}

int fsync(int descriptor)
{
    NEXT(fsync)
    return is_on_disk(descriptor) && fails(KIND_SYNC) ? -1 : next(descriptor);
}

int fdatasync(int descriptor)
{
    NEXT(fdatasync)
    return is_on_disk(descriptor) && fails(KIND_SYNC) ? -1 : next(descriptor);
}

int ftruncate(int descriptor, off_t size)
{
    NEXT(ftruncate)
    return is_on_disk(descriptor) && fails(KIND_RESIZE) ? -1 : next(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size)
{
    NEXT(ftruncate64)
    return is_on_disk(descriptor) && fails(KIND_RESIZE) ? -1 : next(descriptor, size);
}

/* ---- names ------------------------------------------------------------------------------------- */

int rename(const char *from, const char *to)
{
    NEXT(rename)
    return fails(KIND_RENAME) ? -1 : next(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir)
    return fails(KIND_CREATE) ? -1 : next(path, mode);
}

/* Only where the file is made anew. */
#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        mode_t mode = 0;                                                                           \
        NEXT(name)                                                                                 \
        if (flags & O_CREAT) {                                                                     \
            va_list arguments;                                                                     \
            va_start(arguments, flags);                                                            \
            mode = va_arg(arguments, mode_t);                                                      \
            va_end(arguments);                                                                     \
            if (access(path, F_OK) != 0 && fails(KIND_CREATE))                                     \
                return -1;                                                                         \
        }                                                                                          \
        return next(path, flags, mode);                                                            \
    }
OPEN(open)
OPEN(open64)

/* ---- memory; under a sanitizer its own come first ---------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return fails(KIND_MEMORY) ? NULL : __libc_realloc(memory, size);
}

/*
 * faults: calls that fail when a test says so; LD_PRELOAD puts it before the library's.
 *
 * The file named in FAULTS_SHIM is mapped: a test reads and writes it while the process runs. Numbers are of eight
 * bytes in this machine's order; struct table says in which. Counted is while it is armed. A call of a kind fails
 * that is asked for (kind, nth, in_a_row), with errno or, for a step, SQLite's code; in_a_row says how many do, one
 * after the other. For KIND_PLACE allocations are told apart by where they come from, the addresses of up to
 * FRAMES calls: of each target's place the nth one fails, and what that thread allocates right after it.
 *
 * Writes to sockets, pipes and the standard descriptors are left alone: only what goes to a disk counts.
 *
 * A step of SQLite's that fails is not made. What SQLite does then is: the statement is at its end, its reset and
 * its end repeat the code, the connection tells it until the next call, and all but BUSY roll a transaction back.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <unwind.h>

enum kind {
    KIND_WRITE,
    KIND_SYNC,
    KIND_RENAME,
    KIND_CREATE,
    KIND_RESIZE,
    KIND_MEMORY,
    KIND_STEP,
    KIND_COUNT,
    KIND_PLACE = KIND_COUNT
};

#define FRAMES 10
#define TARGETS 64
#define PLACES 16384 /* a power of two */
#define MODULES 64
#define MODULE_NAME 120

/* Where allocations come from, and what was seen of it. */
struct place {
    _Atomic uint64_t hash; /* 0: free */
    _Atomic uint64_t stage, count;
    uint64_t frames[FRAMES]; /* the module's number, 16 bits, and the address in it; 0: no more */
};

struct target {
    _Atomic uint64_t hash, nth, in_a_row, seen, fired;
};

struct table {
    _Atomic uint64_t armed, kind, nth, number, in_a_row, fired;
    _Atomic uint64_t stage;        /* of the test: places keep the first they were seen in */
    _Atomic uint64_t keeps_places; /* 1: all are written down */
    _Atomic uint64_t counts[KIND_COUNT];
    _Atomic uint64_t target_count;
    struct target targets[TARGETS];
    struct place places[PLACES];
    _Atomic uint64_t modules[MODULES]; /* where each begins */
    char module_names[MODULES][MODULE_NAME];
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
        count - atomic_load(&now->nth) >= atomic_load(&now->in_a_row))
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

/* ---- places ------------------------------------------------------------------------------------ */

struct walk {
    uint64_t frames[FRAMES];
    size_t count;
    struct step *below; /* the call before, whose frame ends where the next one's begins */
    uint64_t below_top;
    uint64_t first; /* where the walk begins: what is within it is this file's */
};

/* What is known of a return address: walking by it is a hundred times as fast as by the debugger's tables. */
#define STEPS 32768 /* a power of two */
enum { SIZE_UNKNOWN, SIZE_LAST, SIZE_VARIES, SIZE_LEAST = 8 };
static struct step {
    _Atomic uint64_t address, frame, size; /* size: of the frame in bytes, or one of the above */
} steps[STEPS];

static struct step *find_step(uint64_t address, int may_make)
{
    for (uint64_t tries = 0; tries < 64; tries++) {
        struct step *step = &steps[((address * 0x9e3779b97f4a7c15ULL >> 40) + tries) % STEPS];
        uint64_t other = atomic_load(&step->address);

        if (other == address)
            return step;
        if (other == 0 && !may_make)
            return NULL;
        if (other == 0 &&
            (atomic_compare_exchange_strong(&step->address, &other, address) || other == address))
            return step;
    }
    return NULL;
}

static uint64_t number_of_module(struct table *now, const struct dl_find_object *found)
{
    const uint64_t start = (uint64_t)(uintptr_t)found->dlfo_map_start;

    for (uint64_t i = 0; i < MODULES; i++) {
        uint64_t none = 0;

        if (atomic_compare_exchange_strong(&now->modules[i], &none, start)) {
            const char *name = found->dlfo_link_map->l_name;

            (void)snprintf(now->module_names[i], MODULE_NAME, "%s", name);
            return i;
        }
        if (none == start)
            return i;
    }
    return MODULES - 1;
}

static void learn_size(struct step *step, uint64_t size)
{
    uint64_t known = SIZE_UNKNOWN;

    if (step && !atomic_compare_exchange_strong(&step->size, &known, size) && known != size)
        atomic_store(&step->size, SIZE_VARIES);
}

static _Unwind_Reason_Code keep_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    uint64_t address = _Unwind_GetIP(context), top = _Unwind_GetCFA(context);
    struct dl_find_object found;

    if (walk->count == 0 && address != walk->first)
        return _URC_NO_REASON; /* this file's own */
    if (walk->below)
        learn_size(walk->below, top - walk->below_top);
    if (address == 0 || _dl_find_object((void *)(uintptr_t)address, &found) != 0) {
        if (walk->below)
            atomic_store(&walk->below->size, SIZE_LAST);
        walk->below = NULL;
        return _URC_END_OF_STACK;
    }
    if (walk->count == FRAMES)
        return _URC_END_OF_STACK;
    walk->frames[walk->count] = number_of_module(atomic_load(&table), &found) << 48 |
                                (address - (uint64_t)(uintptr_t)found.dlfo_map_start);
    walk->below = find_step(address, 1);
    if (walk->below)
        atomic_store(&walk->below->frame, walk->frames[walk->count]);
    walk->below_top = top;
    walk->count++;
    return _URC_NO_REASON;
}

/* False where something is not known. */
static int walk_by_steps(struct walk *walk, uint64_t address, uint64_t top)
{
    for (walk->count = 0; walk->count < FRAMES;) {
        const struct step *step = find_step(address, 0);
        const uint64_t size = step ? atomic_load(&step->size) : SIZE_UNKNOWN;

        if (size == SIZE_UNKNOWN || size == SIZE_VARIES)
            return 0;
        walk->frames[walk->count++] = atomic_load(&step->frame);
        if (size == SIZE_LAST)
            return 1;
        top += size;
        address = *(const uint64_t *)(uintptr_t)(top - 8);
    }
    return 1;
}

static void walk_stack(struct walk *walk, uint64_t address, uint64_t top)
{
#ifdef __x86_64__
    if (walk_by_steps(walk, address, top))
        return;
#endif
    *walk = (struct walk){.first = address};
    (void)top;
    (void)_Unwind_Backtrace(keep_frame, walk);
    if (walk->below && walk->count < FRAMES)
        atomic_store(&walk->below->size, SIZE_LAST);
}

/* Of the frames, without the modules' numbers, which depend on who was met first. */
static uint64_t hash_of(const struct walk *walk)
{
    uint64_t hash = 14695981039346656037ULL;

    for (size_t i = 0; i < walk->count; i++) {
        hash ^= walk->frames[i] & 0xffffffffffffULL;
        hash *= 1099511628211ULL;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

static void write_down(struct table *now, uint64_t hash, const struct walk *walk)
{
    for (uint64_t tries = 0; tries < PLACES; tries++) {
        struct place *place = &now->places[(hash + tries) % PLACES];
        uint64_t other = 0;

        if (atomic_compare_exchange_strong(&place->hash, &other, hash)) {
            memcpy(place->frames, walk->frames, walk->count * sizeof(place->frames[0]));
            atomic_store(&place->stage, atomic_load(&now->stage));
            other = hash;
        }
        if (other == hash) {
            atomic_fetch_add(&place->count, 1);
            return;
        }
    }
}

static int target_fails(struct table *now, uint64_t hash, uint64_t *ret_more)
{
    for (uint64_t i = 0; i < atomic_load(&now->target_count); i++) {
        struct target *target = &now->targets[i];

        if (atomic_load(&target->hash) != hash ||
            atomic_fetch_add(&target->seen, 1) + 1 != atomic_load(&target->nth))
            continue;
        atomic_fetch_add(&target->fired, 1);
        atomic_fetch_add(&now->fired, 1);
        *ret_more = atomic_load(&target->in_a_row) - 1;
        return 1;
    }
    return 0;
}

/* address: to which malloc returns; top: of the stack there. */
static int place_fails(const void *address, const void *top)
{
    static _Thread_local int within __attribute__((tls_model("initial-exec")));
    static _Thread_local uint64_t more __attribute__((tls_model("initial-exec")));
    struct table *now = atomic_load(&table);
    struct walk walk = {.count = 0};
    uint64_t hash;
    int failed;

    if (!now || !atomic_load(&now->armed) || atomic_load(&now->kind) != KIND_PLACE || within)
        return 0;
    if (more > 0) {
        more--;
        errno = ENOMEM;
        return 1;
    }
    within = 1;
    walk_stack(&walk, (uint64_t)(uintptr_t)address, (uint64_t)(uintptr_t)top);
    hash = hash_of(&walk);
    if (atomic_load(&now->keeps_places))
        write_down(now, hash, &walk);
    failed = target_fails(now, hash, &more);
    within = 0;
    if (failed)
        errno = ENOMEM;
    return failed;
}

/* ---- memory; under a sanitizer its own come first ---------------------------------------------- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

#define NO_MEMORY()                                                                                \
    (fails(KIND_MEMORY) || place_fails(__builtin_return_address(0), __builtin_dwarf_cfa()))

void *malloc(size_t size)
{
    return NO_MEMORY() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return NO_MEMORY() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return NO_MEMORY() ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return NO_MEMORY() ? NULL : __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    return NO_MEMORY() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    void *memory = NO_MEMORY() ? NULL : __libc_memalign(alignment, size);

    if (!memory)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

/* ---- SQLite ------------------------------------------------------------------------------------ */

/* The last failure made in this thread; a connection is used by one at a time. */
static _Thread_local struct {
    sqlite3 *db;
    sqlite3_stmt *statement; /* whose reset and end repeat it */
    int code;
} told;
static _Thread_local int inside; /* what SQLite asks of itself is not counted */

static void forget(const sqlite3 *db)
{
    if (told.db == db)
        told.db = NULL;
}

static int is_told(const sqlite3 *db)
{
    return db && told.db == db;
}

static void roll_back(sqlite3 *db)
{
    NEXT(sqlite3_exec)
    if (sqlite3_get_autocommit(db))
        return;
    inside++;
    (void)next(db, "ROLLBACK", NULL, NULL, NULL);
    inside--;
}

static int fail_step(sqlite3_stmt *statement)
{
    const int is_rollback = strncasecmp(sqlite3_sql(statement), "ROLLBACK", 8) == 0;
    sqlite3 *db = sqlite3_db_handle(statement);
    int code = (int)atomic_load(&atomic_load(&table)->number);
    NEXT(sqlite3_reset)

    if (is_rollback && code == SQLITE_BUSY)
        code = SQLITE_IOERR; /* which waits for nobody */
    (void)next(statement);
    if (code != SQLITE_BUSY)
        roll_back(db);
    told.db = db;
    told.statement = statement;
    told.code = code;
    return code;
}

int sqlite3_step(sqlite3_stmt *statement)
{
    NEXT(sqlite3_step)
    int code;

    if (!inside && statement && fails(KIND_STEP))
        return fail_step(statement);
    if (statement)
        forget(sqlite3_db_handle(statement));
    inside++;
    code = next(statement);
    inside--;
    return code;
}

#define ENDS(name)                                                                                 \
    int name(sqlite3_stmt *statement)                                                              \
    {                                                                                              \
        NEXT(name)                                                                                 \
        const int repeats = statement && told.statement == statement;                              \
        const int code = next(statement);                                                          \
                                                                                                   \
        if (repeats)                                                                               \
            told.statement = NULL;                                                                 \
        return repeats ? told.code : code;                                                         \
    }
ENDS(sqlite3_reset)
ENDS(sqlite3_finalize)

int sqlite3_prepare_v2(sqlite3 *db, const char *text, int size, sqlite3_stmt **statement,
                       const char **tail)
{
    NEXT(sqlite3_prepare_v2)
    forget(db);
    return next(db, text, size, statement, tail);
}

int sqlite3_prepare_v3(sqlite3 *db, const char *text, int size, unsigned flags,
                       sqlite3_stmt **statement, const char **tail)
{
    NEXT(sqlite3_prepare_v3)
    forget(db);
    return next(db, text, size, flags, statement, tail);
}

/* As the library's, by steps that are counted; SQLite's own calls have a function to call back. */
int sqlite3_exec(sqlite3 *db, const char *text, int (*row)(void *, int, char **, char **),
                 void *argument, char **message)
{
    NEXT(sqlite3_exec)
    int code = SQLITE_OK;

    if (row || message || inside) {
        forget(db);
        inside++;
        code = next(db, text, row, argument, message);
        inside--;
        return code;
    }
    while (code == SQLITE_OK && *text) {
        sqlite3_stmt *statement = NULL;
        const char *tail = text;

        code = sqlite3_prepare_v2(db, text, -1, &statement, &tail);
        if (code == SQLITE_OK && statement) {
            while (sqlite3_step(statement) == SQLITE_ROW)
                ;
            code = sqlite3_finalize(statement);
        }
        text = tail;
    }
    return code;
}

int sqlite3_errcode(sqlite3 *db)
{
    NEXT(sqlite3_errcode)
    return is_told(db) ? told.code : next(db); /* with extended codes on, as here */
}

int sqlite3_extended_errcode(sqlite3 *db)
{
    NEXT(sqlite3_extended_errcode)
    return is_told(db) ? told.code : next(db);
}

const char *sqlite3_errmsg(sqlite3 *db)
{
    NEXT(sqlite3_errmsg)
    return is_told(db) ? sqlite3_errstr(told.code) : next(db);
}

int sqlite3_system_errno(sqlite3 *db)
{
    NEXT(sqlite3_system_errno)
    if (!is_told(db))
        return next(db);
    return told.code == SQLITE_FULL ? ENOSPC : (told.code & 0xff) == SQLITE_IOERR ? EIO : 0;
}

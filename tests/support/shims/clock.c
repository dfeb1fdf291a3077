/*
 * clock: a wall clock that a test sets; LD_PRELOAD puts it before the library's.
 *
 * The file named in CLOCK_SHIM holds eight bytes, a signed number of seconds in this machine's order, that
 * are added to the date wherever it is asked for. It is mapped: writing into it steps the clock of the
 * running process. CLOCK_MONOTONIC goes on undisturbed, as when an administrator sets the clock. Waits are
 * the kernel's: whoever works out the end of one from the date waits wrongly, and its test sees that.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int clock_gettime_function(clockid_t clock, struct timespec *ret_now);

static _Atomic(const _Atomic int64_t *)
    offset; /* NULL until the library is loaded, or without a file */

__attribute__((constructor)) static void open_offset(void)
{
    const char *path = getenv("CLOCK_SHIM");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map;

    if (file < 0)
        return;
    map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    (void)close(file);
    if (map != MAP_FAILED)
        atomic_store(&offset, map);
}

static int ask(clockid_t clock, struct timespec *ret_now)
{
    static _Atomic(clock_gettime_function *) next;
    clock_gettime_function *function = atomic_load(&next);

    if (!function) {
        *(void **)&function = dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&next, function);
    }
    return function(clock, ret_now);
}

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    const int status = ask(clock, ret_now);
    const _Atomic int64_t *seconds = atomic_load(&offset);

    if (status == 0 && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret_now->tv_sec += atomic_load(seconds);
    return status;
}

time_t time(time_t *ret_now)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now); /* this clock always is */
    if (ret_now)
        *ret_now = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict ret_now, void *restrict zone)
{
    struct timespec now = {0};

    (void)zone; /* long out of use */
    (void)clock_gettime(CLOCK_REALTIME, &now);
    ret_now->tv_sec = now.tv_sec;
    ret_now->tv_usec = now.tv_nsec / 1000;
    return 0;
}

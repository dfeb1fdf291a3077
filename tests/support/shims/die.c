/*
 * die: a process that is killed where a test says; LD_PRELOAD puts it before the library.
 *
 * DIE_AT_STEP=n: when a running job has noted that n steps are made (daemon/sched/place.h). DIE_READING: when
 * an upload is opened to be read. Both as kill -9 does it: nothing else is written.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t pwrite_function(int descriptor, const void *bytes, size_t size, off_t offset);
typedef int open_function(const char *path, int flags, ...);

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    pwrite_function *next = (pwrite_function *)dlsym(RTLD_NEXT, "pwrite");
    const char *wanted = getenv("DIE_AT_STEP");
    const ssize_t written = next(descriptor, bytes, size, offset);
    int64_t mark[2]; /* attempt and step */

    if (wanted && size == sizeof(mark)) {
        memcpy(mark, bytes, sizeof(mark));
        if (mark[1] == strtoimax(wanted, NULL, 10))
            (void)kill(getpid(), SIGKILL);
    }
    return written;
}

int open(const char *path, int flags, ...)
{
    open_function *next = (open_function *)dlsym(RTLD_NEXT, "open");
    va_list rest;
    mode_t mode;

    va_start(rest, flags);
    mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (getenv("DIE_READING") && (flags & O_ACCMODE) == O_RDONLY && strstr(path, "/uploads/file-"))
        (void)kill(getpid(), SIGKILL);
    return next(path, flags, mode);
}

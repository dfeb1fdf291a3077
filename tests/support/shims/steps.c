/*
 * steps: a process that is slowed down, held or killed where a test says, however fast the machine is; LD_PRELOAD
 * puts it before the library.
 *
 * At a step: when a running job has noted that n steps are made (daemon/sched/place.h).
 *   STEP_MS=ms        each step takes so much longer
 *   HOLD_AT_STEP=n    the job stands still there until the file HOLD_UNTIL exists
 *   DIE_AT_STEP=n     the process is killed there
 * At a reading: when an upload is opened to be read.
 *   HOLD_READING=1    the reader stands still there until the file HOLD_UNTIL exists
 *   DIE_READING=1     the process is killed there
 * Who is to be held and to die is held first. A kill is that of kill -9: nothing else is written. A hold ends after
 * HOLD_LIMIT_S at the latest: a test that has failed meanwhile wants to stop its daemon.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOLD_LIMIT_S 300
#define LOOK_MS 5

typedef ssize_t pwrite_function(int descriptor, const void *bytes, size_t size, off_t offset);
typedef int open_function(const char *path, int flags, ...);
typedef FILE *fopen_function(const char *path, const char *mode);

static void wait_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL); /* a signal makes it shorter: no harm */
}

static void hold(void)
{
    const char *until = getenv("HOLD_UNTIL");

    for (int i = 0; until && access(until, F_OK) != 0 && i < HOLD_LIMIT_S * 1000 / LOOK_MS; i++)
        wait_ms(LOOK_MS);
}

static bool is_step(const char *name, int64_t step)
{
    const char *wanted = getenv(name);

    return wanted && strtoimax(wanted, NULL, 10) == step;
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    pwrite_function *next = (pwrite_function *)dlsym(RTLD_NEXT, "pwrite");
    const ssize_t written = next(descriptor, bytes, size, offset);
    const char *slow = getenv("STEP_MS");
    int64_t mark[2]; /* attempt and step */

    if (size == sizeof(mark)) {
        memcpy(mark, bytes, sizeof(mark));
        if (slow)
            wait_ms(strtol(slow, NULL, 10));
        if (is_step("HOLD_AT_STEP", mark[1]))
            hold();
        if (is_step("DIE_AT_STEP", mark[1]))
            (void)kill(getpid(), SIGKILL);
    }
    return written;
}

static void note_reading(const char *path)
{
    if (!strstr(path, "/uploads/file-"))
        return;
    if (getenv("HOLD_READING"))
        hold();
    if (getenv("DIE_READING"))
        (void)kill(getpid(), SIGKILL);
}

int open(const char *path, int flags, ...)
{
    open_function *next = (open_function *)dlsym(RTLD_NEXT, "open");
    va_list rest;
    mode_t mode;

    va_start(rest, flags);
    mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if ((flags & O_ACCMODE) == O_RDONLY)
        note_reading(path);
    return next(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    fopen_function *next = (fopen_function *)dlsym(RTLD_NEXT, "fopen");

    if (mode[0] == 'r')
        note_reading(path);
    return next(path, mode);
}

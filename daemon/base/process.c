#include "daemon/base/process.h"

#include "daemon/base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Their reports are made by exit(). */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define END exit
#else
#define END _exit
#endif

#define STACK_MIN_BYTES ((rlim_t)512 << 10) /* with less, threads and the libraries' crash */

#define FILES_MIN                                                                                  \
    48 /* with less, the database and its threads find none; server_start has the whole sum */
#define FILES_WANTED                                                                               \
    (4 * (size_t)LIMIT_CONNECTIONS + 1024) /* all connections, and the daemon's own */

static bool check_stack(struct error *err)
{
    struct rlimit stack;

    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= STACK_MIN_BYTES)
        return true;
    return error_set(err, ERR_INVALID,
                     "the limit of the stack (ulimit -s, LimitSTACK=) is %llu kB, 512 are needed",
                     (unsigned long long)stack.rlim_cur >> 10);
}

static bool check_files(struct error *err)
{
    const size_t limit = process_raise_files();

    return limit >= FILES_MIN ||
           error_set(
               err, ERR_INVALID,
               "the limit of open files (ulimit -n, LimitNOFILE=) is %zu, %d are needed at least",
               limit, FILES_MIN);
}

/* In the wrong direction: what was to go there is not taken for said. */
static bool occupy_standard(struct error *err)
{
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
        if (fcntl(i, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY) != i) /* the lowest free */
            return error_set(err, ERR_IO, "open '/dev/null' as descriptor %d: %s", i,
                             strerror(errno));
    }
    return true;
}

bool process_begin(struct error *err)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* cannot fail for a valid number */
    return occupy_standard(err) && check_stack(err) && check_files(err);
}

size_t process_raise_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return FILES_WANTED;
    if (limit.rlim_cur < FILES_WANTED && limit.rlim_cur < limit.rlim_max) {
        const rlim_t before = limit.rlim_cur;

        limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = before; /* what there is will be shared out */
    }
    return limit.rlim_cur < SIZE_MAX ? (size_t)limit.rlim_cur : SIZE_MAX;
}

size_t process_count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    size_t count = 0;

    if (!folder) { /* no /proc: those that the first ones have */
        for (int i = 0; i < (int)FILES_WANTED; i++)
            count += fcntl(i, F_GETFD) >= 0;
        return count;
    }
    while ((entry = readdir(folder)))
        count += entry->d_name[0] != '.';
    (void)closedir(folder); /* only read */
    return count - 1;       /* the folder's own */
}

void process_end(int status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
        (void)fprintf(stderr, "needled: standard output: %s\n", strerror(errno));
        status = 1;
    }
    (void)fflush(NULL); /* stderr alone is left, which is said to nobody */
    END(status);
}

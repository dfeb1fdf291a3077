#include "daemon/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

static bool check_stack(struct error *err)
{
    struct rlimit stack;

    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= STACK_MIN_BYTES)
        return true;
    return error_set(err, ERR_INVALID,
                     "the limit of the stack (ulimit -s, LimitSTACK=) is %llu kB, 512 are needed",
                     (unsigned long long)stack.rlim_cur >> 10);
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
    return occupy_standard(err) && check_stack(err);
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

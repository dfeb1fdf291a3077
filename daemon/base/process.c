#include "daemon/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

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
    return occupy_standard(err);
}

#include "tests/support/hold.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US 5000
#define LAST_HOLD_US 200000 /* after a stop is asked for: it is heard by then */

static _Atomic int64_t held_step; /* 0: none is held */
static atomic_bool ending;

void hold_steps(int64_t step)
{
    atomic_store(&held_step, step);
}

void hold_let_go(void)
{
    atomic_store(&held_step, 0);
}

void hold_end(bool ends)
{
    atomic_store(&ending, ends);
}

static void stand_still(int64_t step)
{
    for (;;) {
        const int64_t held = atomic_load(&held_step);

        if (held == 0 || step < held)
            return;
        if (atomic_load(&ending)) {
            (void)usleep(LAST_HOLD_US);
            return;
        }
        (void)usleep(LOOK_US);
    }
}

/* In place of the library's: a worker notes each whole step with one of two numbers (daemon/sched/place.h). */
ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    ssize_t (*next)(int, const void *, size_t, off_t);
    int64_t mark[2]; /* attempt and step */

    *(void **)&next = dlsym(RTLD_NEXT, "pwrite");
    const ssize_t written = next(descriptor, bytes, size, offset);
    if (size == sizeof(mark)) {
        memcpy(mark, bytes, sizeof(mark));
        stand_still(mark[1]);
    }
    return written;
}

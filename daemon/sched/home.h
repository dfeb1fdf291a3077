/*
 * home: whether the state folder is still the one that the daemon started with.
 *
 * Purpose    A folder that is unmounted, moved or replaced under a running daemon leaves it with open files
 *            that nobody will find again, and with paths that lead to somebody else's. The folder, its
 *            database and the folders in it are known by device and inode.
 * Ownership  A plain value.
 * Threads    Any, once it was noted.
 * Failure    ERR_IO with the word state_gone, which is error_is_disk; no path beyond the folder is named.
 */
#ifndef NEEDLED_HOME_H
#define NEEDLED_HOME_H

#include "daemon/base/error.h"
#include "daemon/base/limits.h"

#include <stddef.h>
#include <sys/types.h>

#define HOME_ENTRIES 5 /* the folder, the database, and what lies beside it */

struct home {
    size_t count; /* 0: nothing was noted, and nothing is ever gone */
    struct home_entry {
        char path[LIMIT_PATH_BYTES];
        const char *name; /* for people; not ours */
        dev_t device;
        ino_t inode;
    } entries[HOME_ENTRIES];
};

enum home_state {
    HOME_SAME,
    HOME_GONE,     /* it may come back */
    HOME_REPLACED, /* another database is there: what was opened at the start is of no use any more */
};

/* As they are now. On failure nothing is noted. */
MUST_CHECK bool home_note(struct home *home, const char *state_folder, const char *database_path,
                          struct error *err);
/* err: for all but HOME_SAME. */
enum home_state home_look(const struct home *home, struct error *err);

#endif

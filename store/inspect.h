/*
 * inspect: a database file, looked at before anything may write to it.
 *
 * Purpose    Is it one of ours, of a version that this program knows, and whole? The header is read as
 *            bytes, so that a foreign file never meets SQLite; the rest through a connection that cannot
 *            write. Pages are read up to INSPECT_TIME_S (0.9 s a gigabyte from memory, else the disk's
 *            speed): a database that takes longer is opened without the rest being looked at.
 * Ownership  A plain value.
 * Threads    Any. Nobody else is to make or remove the file's log meanwhile: the daemon's lock is held.
 * Failure    ERR_CORRUPT names the file, what is wrong and that it was left untouched, with the caller's
 *            advice; not even a log is left beside it.
 */
#ifndef NEEDLED_STORE_INSPECT_H
#define NEEDLED_STORE_INSPECT_H

#include "daemon/base/error.h"

#include <sqlite3.h>
#include <stdint.h>

#define INSPECT_TIME_S 30

struct inspection {
    int version;
    bool complete;    /* every page was looked at */
    bool log_is_lost; /* changes that were made are neither in it nor in its log, see lostlog.h */
    int64_t dangling_count; /* rows that name a record which is not there: no harm, but not ours */
};

MUST_CHECK bool inspect_file(const char *path, const char *advice, struct inspection *ret_found,
                             struct error *err);
/* Whether it is a database of ours that knows of no job, file, model or reservation, and has nothing under the
 * setting's name. False too where that cannot be told without writing: one that has a log is not opened, since
 * SQLite would make the log's index anew. */
bool inspect_is_bare(const char *path, const char *setting);
/* A connection that only reads. Without a log the file is all there is: then it is read without a lock,
 * and nothing is made beside it. Returns SQLite's code; *ret_db is for sqlite3_close. */
int inspect_open(const char *path, sqlite3 **ret_db);

#endif

/*
 * store: the SQLite database, the only truth.
 *
 * Purpose    Opens needled.db in WAL mode with synchronous=FULL, applies numbered migrations, and
 *            holds the prepared statements of one thread. One file a table: files.h, jobs.h,
 *            events.h, models.h, checkpoints.h; one function is one transaction (BEGIN IMMEDIATE if
 *            it writes). Before a migration a copy is written beside it, needled.db.before-v<N>; the
 *            copies of the last two stay.
 * Ownership  store_open / store_close.
 * Threads    A struct store belongs to one thread at a time; open another for another thread.
 * Failure    A file that is no database, is damaged or of a newer version is refused, named and
 *            left untouched; a full disk is ERR_NO_MEMORY and says "disk full".
 */
#ifndef NEEDLED_STORE_H
#define NEEDLED_STORE_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define STORE_ID_SIZE 48    /* "ftjob-" and 24 letters and digits, with room */
#define STORE_NAME_SIZE 256 /* file names, model names */

struct store;

/* migrate: main's first open, which creates the file where missing, applies migrations and checks integrity.
 * Later ones find a file that is missing ERR_IO with the word state_gone. */
MUST_CHECK bool store_open(const char *path, bool migrate, struct store **ret_store,
                           struct error *err);
void store_close(struct store *store); /* NULL is fine */
/* Whether its open with `migrate` found its log cut or gone: changes that were made are missing. */
bool store_lost_log(const struct store *store);
/* What its open with `migrate` did or found, a line for the log; "" nothing. */
const char *store_opening_note(const struct store *store);
/* The folder that path lies in: a name that was made or changed there is on disk. */
MUST_CHECK bool store_sync_folder(const char *path, struct error *err);
const char *store_library_version(void); /* "3.40.1" */
/* How often it waited for another's lock since this was last asked. */
uint64_t store_take_busy_count(struct store *store);
MUST_CHECK bool store_ping(struct store *store, struct error *err); /* a read works */

/* One page of a listing: newest first unless `ascending`, after the record with id `after` ("" starts at
 * the end of the list that comes first), also when that one was deleted within the last day. An unknown
 * `after` is ERR_INVALID with param "after". */
struct store_page {
    const char *after;
    size_t limit;
    bool ascending;
};

#endif

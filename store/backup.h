/*
 * backup: the database as one file, and back.
 *
 * Purpose    A copy of one moment while others read and write; and a checked copy put in the place of
 *            the database, which is kept aside. Only what SQLite holds: uploads, checkpoints and
 *            artifacts are files beside it.
 * Ownership  The files are the caller's.
 * Threads    backup_write: the store's. It reads one long transaction: the write-ahead log cannot be
 *            emptied meanwhile. backup_restore: nobody has the database open, the daemon's lock is held.
 * Failure    As store.h. A file under its final name is whole and on disk; a failed restore leaves the
 *            database as it was.
 */
#ifndef NEEDLED_STORE_BACKUP_H
#define NEEDLED_STORE_BACKUP_H

#include "store/store.h"

#define BACKUP_ASIDE_SIZE 64 /* ".replaced-20261231T235959Z" */

/* Mode 0600; takes the place of a file that is there. */
MUST_CHECK bool backup_write(struct store *store, const char *path, struct error *err);
/* backup: a file that backup_write made, or a database with its log beside it. *ret_aside is what follows
 * path in the name of the database that was there, "" when there was none. */
MUST_CHECK bool backup_restore(const char *backup, const char *path,
                               char ret_aside[BACKUP_ASIDE_SIZE], struct error *err);

#endif

/*
 * restore: a backup in the place of the database, and what lies beside it.
 *
 * Purpose    Puts it back (store/backup.h), brings it up to date, and says where it and the state folder
 *            differ: files that it names and that are gone, files that it does not know. Nothing of these is
 *            changed; the next start puts what nobody names among the strays.
 * Ownership  The text is appended to the caller's buffer.
 * Threads    The caller's; the daemon's lock is held.
 * Failure    As backup.h: the database is as it was. Once it is in its place, what cannot be counted is
 *            said in the text.
 */
#ifndef NEEDLED_RESTORE_H
#define NEEDLED_RESTORE_H

#include "daemon/base/error.h"

struct buf;

MUST_CHECK bool restore_database(const char *state_folder, const char *database, const char *backup,
                                 struct buf *text, struct error *err);

#endif

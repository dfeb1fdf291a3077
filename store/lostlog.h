/*
 * lostlog: whether a database's log has lost changes that were made, before SQLite looks at it.
 *
 * Purpose    SQLite takes a log up to the first frame whose checksum is wrong, and begins the rest anew
 *            without a word. A log that was cut, is gone or was damaged is told by its index, which a killed
 *            process leaves behind: more was written than is still whole. Without an index it is told by a
 *            transaction that ends behind a damaged frame, under the log's own salts.
 * Ownership  None.
 * Threads    Any. Nobody else is to write to the log meanwhile.
 * Failure    What cannot be read counts as not there.
 */
#ifndef NEEDLED_STORE_LOSTLOG_H
#define NEEDLED_STORE_LOSTLOG_H

#include <stdbool.h>

/* path: the database's; its log and the index have -wal and -shm after it. */
bool lostlog_look(const char *path);

#endif

/*
 * wal: keeps the write-ahead log small.
 *
 * Purpose    SQLite writes the log back every 4 MiB of it, but begins it anew only when nobody reads from
 *            it at that moment: with readers that never pause together it would grow for ever. From
 *            WAL_SOFT_BYTES on a commit therefore waits, up to WAL_WAIT_MS, until those that read from
 *            the log have ended, and cuts it; who begins to read meanwhile needs the database alone.
 *            While a reader keeps one transaction open (a backup does) nothing can be cut: the log
 *            grows by what is written, and every 4 MiB it is tried again.
 * Ownership  None.
 * Threads    The store's.
 * Failure    A log that cannot be cut is no failure of the commit it follows.
 */
#ifndef NEEDLED_STORE_WAL_H
#define NEEDLED_STORE_WAL_H

#define WAL_SOFT_BYTES ((int64_t)16 << 20)
#define WAL_WAIT_MS 500

struct store;

void wal_watch(struct store *store);

#endif

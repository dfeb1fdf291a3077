#include "store/wal.h"

#include "store/sql.h"

#define WRITE_BACK_PAGES 1000 /* SQLite's own figure */
#define PAGE_BYTES 4096       /* of our databases */

/* After a commit, with no lock held; pages: what the log holds now. */
static int look_at_log(void *context, sqlite3 *db, const char *name, int pages)
{
    struct store *store = context;

    if (pages < WRITE_BACK_PAGES)
        return SQLITE_OK;
    /* Most pages while others still write. */
    (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if ((int64_t)pages * PAGE_BYTES < WAL_SOFT_BYTES)
        store->log_wanted_pages = 0;
    else if (pages >= store->log_wanted_pages) {
        store->wait_max_ms = WAL_WAIT_MS;
        if (sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) !=
            SQLITE_OK)
            store->log_wanted_pages = pages + WRITE_BACK_PAGES;
        store->wait_max_ms = 0;
    }
    return SQLITE_OK;
}

void wal_watch(struct store *store)
{
    (void)sqlite3_wal_hook(store->db, look_at_log, store);
}

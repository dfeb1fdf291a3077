#include "store/wal.h"

#include "daemon/base/clock.h"
#include "store/sql.h"

#define WRITE_BACK_PAGES 1000 /* SQLite's own figure */
#define PAGE_BYTES 4096       /* of our databases */
#define NS_PER_MS INT64_C(1000000)

/* After a commit, with no lock held; pages: what the log holds now. */
static int look_at_log(void *context, sqlite3 *db, const char *name, int pages)
{
    struct store *store = context;
    const int64_t now_ns = clock_monotonic_ns();
    const bool too_long = (int64_t)pages * PAGE_BYTES >= WAL_SOFT_BYTES;

    if (pages < WRITE_BACK_PAGES)
        return SQLITE_OK;
    /* Most pages while others still write. */
    (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (!too_long || now_ns < store->log_next_try_ns)
        return SQLITE_OK;
    store->wait_max_ms = WAL_WAIT_MS;
    if (sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) != SQLITE_OK)
        store->log_next_try_ns = clock_monotonic_ns() + WAL_RETRY_S * 1000 * NS_PER_MS;
    store->wait_max_ms = 0;
    return SQLITE_OK;
}

void wal_watch(struct store *store)
{
    (void)sqlite3_wal_hook(store->db, look_at_log, store);
}

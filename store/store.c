#include "store/store.h"

#include "daemon/base/clock.h"
#include "daemon/base/limits.h"
#include "store/backup.h"
#include "store/inspect.h"
#include "store/migrations.h"
#include "store/sql.h"
#include "store/wal.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS 10000
#define BUSY_TURNS_MIN 30 /* 2 s of them */
#define SIDE_PATH_BYTES (LIMIT_PATH_BYTES + 16)

static const char advice[] =
    "put a backup in its place with needled --restore FILE, or, to begin anew, move it and the "
    "folders beside it to another place";

/* ---- opening ------------------------------------------------------------------------------------ */

static bool execute(struct store *store, const char *text, struct error *err)
{
    int code = sqlite3_exec(store->db, text, NULL, NULL, NULL);

    return code == SQLITE_OK || sql_fail(store, code, "prepare the tables", err);
}

/* All steps are one transaction: a database that cannot be brought up to date stays as it is. */
static bool migrate_from(struct store *store, int version, struct error *err)
{
    char mark[96];

    (void)snprintf(mark, sizeof(mark), "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   MIGRATION_APPLICATION_ID, MIGRATION_COUNT);
    if (!sql_begin(store, err))
        return false;
    for (; version < MIGRATION_COUNT; version++) {
        if (!execute(store, migrations[version], err))
            goto fail;
    }
    if (!execute(store, mark, err))
        goto fail;
    return sql_commit(store, err);
fail:
    sql_rollback(store);
    return false;
}

/* As SQLite's own, which does not count: a little longer each time, up to the timeout. */
static int wait_for_lock(void *context, int turn)
{
    static const int delays_ms[] = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};
    struct store *store = context;

    if (turn == 0) {
        store->busy_count++;
        store->busy_deadline_ns =
            clock_monotonic_ns() +
            (store->wait_max_ms > 0 ? store->wait_max_ms : BUSY_TIMEOUT_MS) * INT64_C(1000000);
    }
    /* Over is a wait in which it also was asked for: a process that stood still has not waited. */
    if (clock_monotonic_ns() >= store->busy_deadline_ns &&
        (store->wait_max_ms > 0 || turn >= BUSY_TURNS_MIN))
        return 0;
    (void)sqlite3_sleep(
        delays_ms[turn < (int)COUNT_OF(delays_ms) ? turn : (int)COUNT_OF(delays_ms) - 1]);
    return 1;
}

uint64_t store_take_busy_count(struct store *store)
{
    uint64_t count = store->busy_count;

    store->busy_count = 0;
    return count;
}

static bool open_connection(const char *path, int flags, struct store **ret_store,
                            struct error *err)
{
    struct store *store = calloc(1, sizeof(*store));
    int code;

    if (!store)
        return error_set(err, ERR_NO_MEMORY, "no memory for a database connection");
    code = sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        sql_fail(store, code, "open", err);
        goto fail;
    }
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_handler(store->db, wait_for_lock, store);
    wal_watch(store);
    if (!execute(store, "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL", err) ||
        !sql_get_ready(store, err))
        goto fail;
    *ret_store = store;
    return true;
fail:
    store_close(store);
    return false;
}

bool store_sync_folder(const char *path, struct error *err)
{
    char folder[SIDE_PATH_BYTES];
    int descriptor;
    bool ok;

    (void)snprintf(folder, sizeof(folder), "%s", path);
    descriptor = open(dirname(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ok = descriptor >= 0 && fsync(descriptor) == 0;
    if (!ok)
        error_set(err, ERR_IO, "sync the folder of '%s': %s", path, strerrordesc_np(errno));
    if (descriptor >= 0)
        (void)close(descriptor); /* only read */
    return ok;
}

/* A new database is made whole under another name: its final name never holds half of one. */
static bool create(const char *path, struct error *err)
{
    char temporary[SIDE_PATH_BYTES], journal[SIDE_PATH_BYTES + 16];
    struct store *store = NULL;
    bool ok;

    (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
    (void)snprintf(journal, sizeof(journal), "%s-journal", temporary);
    (void)unlink(temporary); /* of a start that was cut off; absent is usual */
    (void)unlink(journal);
    ok = open_connection(temporary, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &store, err) &&
         migrate_from(store, 0, err) && execute(store, "PRAGMA journal_mode = WAL", err);
    store_close(store); /* writes the log back and removes it */
    if (!ok)
        return false;
    if (chmod(temporary, 0600) != 0) /* its log takes over the mode */
        return error_set(err, ERR_IO, "set the mode of '%s': %s", temporary,
                         strerrordesc_np(errno));
    if (rename(temporary, path) != 0)
        return error_set(err, ERR_IO, "rename '%s' to '%s': %s", temporary, path,
                         strerrordesc_np(errno));
    return store_sync_folder(path, err);
}

/* ---- one that is there ---- */

/* The copies of the last two versions stay. */
static bool keep_before(struct store *store, const char *path, struct error *err)
{
    char copy[SIDE_PATH_BYTES];

    (void)snprintf(copy, sizeof(copy), "%s.before-v%d", path, MIGRATION_COUNT); /* made to fit */
    if (!backup_write(store, copy, err))
        return false;
    for (int version = 1; version < MIGRATION_COUNT - 1; version++) {
        (void)snprintf(copy, sizeof(copy), "%s.before-v%d", path, version); /* made to fit */
        (void)unlink(copy); /* absent is usual; one that stays is tried again at the next step */
    }
    return true;
}

static bool bring_up_to_date(struct store *store, const char *path, bool migrate, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;
    int version = 0;

    if (!sql_start(store, "PRAGMA user_version", &statement, err))
        return false;
    ok = sql_next(store, statement, &row, err);
    if (ok && row)
        version = sqlite3_column_int(statement, 0);
    sql_end(statement);
    if (!ok || version == MIGRATION_COUNT)
        return ok;
    if (version > MIGRATION_COUNT)
        return error_set(err, ERR_CORRUPT, "database '%s' has version %d by now, not %d", path,
                         version, MIGRATION_COUNT);
    if (!migrate)
        return error_set(err, ERR_INTERNAL, "database '%s' was not migrated yet", path);
    if (!keep_before(store, path, err) || !migrate_from(store, version, err)) {
        error_wrap(err, "bring the database from version %d to %d (it is left as it was)", version,
                   MIGRATION_COUNT);
        return false;
    }
    (void)snprintf(store->note, sizeof(store->note),
                   "database brought from version %d to %d; a copy of the old one is kept as "
                   "needled.db.before-v%d",
                   version, MIGRATION_COUNT, MIGRATION_COUNT);
    return true;
}

static void add_note(struct store *store, const struct inspection *found)
{
    const size_t used = strlen(store->note);

    if (!found->complete)
        (void)snprintf(store->note + used, sizeof(store->note) - used,
                       "%sthe database is so large that its check was ended after %d s",
                       used ? "; " : "", INSPECT_TIME_S);
    else if (found->dangling_count > 0)
        (void)snprintf(store->note + used, sizeof(store->note) - used,
                       "%srows of the database that name a record which is gone: %lld",
                       used ? "; " : "", (long long)found->dangling_count);
}

bool store_open(const char *path, bool migrate, struct store **ret_store, struct error *err)
{
    struct inspection found = {.complete = true};
    struct store *store = NULL;
    struct stat info;

    if (strlen(path) >= LIMIT_PATH_BYTES)
        return error_set(err, ERR_LIMIT, "database path '%.64s...' is too long", path);
    if (lstat(path, &info) != 0) {
        if (errno != ENOENT)
            return error_set(err, ERR_IO, "open database '%s': %s", path, strerrordesc_np(errno));
        if (!migrate)
            return error_set_word(err, ERR_IO, ERROR_STATE_GONE, "", "database '%s' is gone", path);
        if (!create(path, err)) {
            error_wrap(err, "create database '%s'", path);
            return false;
        }
    } else if (migrate && !inspect_file(path, advice, &found, err)) {
        return false;
    }
    if (!open_connection(path, SQLITE_OPEN_READWRITE, &store, err))
        return false;
    if (!bring_up_to_date(store, path, migrate, err) ||
        !execute(store, "PRAGMA journal_mode = WAL", err)) {
        store_close(store);
        return false;
    }
    store->lost_log = found.log_is_lost;
    add_note(store, &found);
    *ret_store = store;
    return true;
}

bool store_lost_log(const struct store *store)
{
    return store->lost_log;
}

const char *store_opening_note(const struct store *store)
{
    return store->note;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    sql_rollback(store);
    for (size_t i = 0; i < store->statement_count; i++)
        (void)sqlite3_finalize(store->statements[i].statement); /* told at its use */
    (void)sqlite3_close(store->db);                             /* every statement is gone */
    free(store);
}

const char *store_library_version(void)
{
    return sqlite3_libversion();
}

bool store_ping(struct store *store, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, "SELECT count(*) FROM (SELECT 1 FROM jobs LIMIT 1)", &statement, err))
        return false;
    ok = sql_next(store, statement, &row, err);
    sql_end(statement);
    return ok;
}

#include "store/store.h"

#include "daemon/base/clock.h"
#include "daemon/base/limits.h"
#include "store/migrations.h"
#include "store/sql.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS 10000
#define HEADER_BYTES 100 /* of an SQLite file; the format is fixed for good */
#define APPLICATION_ID_OFFSET 68
#define SIDE_PATH_BYTES (LIMIT_PATH_BYTES + 16)

/* ---- a file that is there: looked at before anything may write to it -------------------------- */

static bool refuse_file(const char *path, const char *what, struct error *err)
{
    return error_set(err, ERR_CORRUPT,
                     "'%s' %s; it was left untouched: put a backup in its place, or move it away "
                     "and a new one is made",
                     path, what);
}

static bool check_header(const char *path, struct error *err)
{
    static const char magic[16] = "SQLite format 3";
    unsigned char header[HEADER_BYTES] = {0};
    const unsigned char *at = header + APPLICATION_ID_OFFSET;
    struct stat info;
    ssize_t size;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (descriptor < 0) {
        if (errno == ELOOP)
            return refuse_file(path, "is a symbolic link, not a database", err);
        return error_set(err, ERR_IO, "open database '%s': %s", path, strerrordesc_np(errno));
    }
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(descriptor); /* only read */
        return refuse_file(path, "is not a regular file", err);
    }
    size = read(descriptor, header, sizeof(header));
    (void)close(descriptor); /* only read */
    if (size != (ssize_t)sizeof(header) || memcmp(header, magic, sizeof(magic)) != 0)
        return refuse_file(path, "is not a database", err);
    if (((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]) !=
        MIGRATION_APPLICATION_ID)
        return refuse_file(path, "is a database of another program", err);
    return true;
}

/* First column of a statement's first row, as an int or (ret_text not NULL) as text. */
static int ask(sqlite3 *db, const char *text, int *ret_number, char *ret_text, size_t capacity)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, text, -1, &statement, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        if (ret_text)
            sql_copy_text(statement, 0, ret_text, capacity);
        else
            *ret_number = sqlite3_column_int(statement, 0);
        code = SQLITE_OK;
    } else if (code == SQLITE_DONE) {
        code = SQLITE_ERROR;
    }
    (void)sqlite3_finalize(statement); /* repeats the failure we have */
    return code;
}

static bool check_version(const char *path, int version, struct error *err)
{
    if (version >= 1 && version <= MIGRATION_COUNT)
        return true;
    return error_set(err, ERR_CORRUPT,
                     "database '%s' has version %d, this program knows 1 to %d; it was left "
                     "untouched: use the newer program",
                     path, version, MIGRATION_COUNT);
}

static bool check_content(const char *path, struct error *err)
{
    sqlite3 *db = NULL;
    char answer[128] = "";
    char what[224];
    int version = 0;
    bool ok = false;
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
    if (code == SQLITE_OK)
        code = ask(db, "PRAGMA user_version", &version, NULL, 0);
    if (code == SQLITE_OK && !check_version(path, version, err))
        goto out;
    if (code == SQLITE_OK)
        code = ask(db, "PRAGMA quick_check(1)", NULL, answer, sizeof(answer));
    if (code == SQLITE_OK && strcmp(answer, "ok") == 0) {
        ok = true;
        goto out;
    }
    (void)snprintf(what, sizeof(what), "is damaged (%s; 'sqlite3 FILE .recover' may save its rows)",
                   answer[0] ? answer : sqlite3_errmsg(db));
    if (code == SQLITE_OK || code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        refuse_file(path, what, err);
    else
        error_set(err, ERR_IO, "read database '%s': %s", path, sqlite3_errmsg(db));
out:
    (void)sqlite3_close(db); /* no statement is left */
    return ok;
}

/* ---- opening ------------------------------------------------------------------------------------ */

static bool execute(struct store *store, const char *text, struct error *err)
{
    int code = sqlite3_exec(store->db, text, NULL, NULL, NULL);

    return code == SQLITE_OK || sql_fail(store, code, "prepare the tables", err);
}

static bool migrate_from(struct store *store, int version, struct error *err)
{
    char mark[96];

    for (; version < MIGRATION_COUNT; version++) {
        (void)snprintf(mark, sizeof(mark), "PRAGMA application_id = %d; PRAGMA user_version = %d",
                       MIGRATION_APPLICATION_ID, version + 1);
        if (!sql_begin(store, err))
            return false;
        if (!execute(store, migrations[version], err) || !execute(store, mark, err)) {
            sql_rollback(store);
            return false;
        }
        if (!sql_commit(store, err))
            return false;
    }
    return true;
}

/* As SQLite's own, which does not count: a little longer each time, up to the timeout. */
static int wait_for_lock(void *context, int turn)
{
    static const int delays_ms[] = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};
    struct store *store = context;

    if (turn == 0) {
        store->busy_count++;
        store->busy_deadline_ns = clock_monotonic_ns() + BUSY_TIMEOUT_MS * INT64_C(1000000);
    }
    if (clock_monotonic_ns() >= store->busy_deadline_ns)
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
    if (!execute(store, "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL", err))
        goto fail;
    *ret_store = store;
    return true;
fail:
    store_close(store);
    return false;
}

static bool sync_folder(const char *path, struct error *err)
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
    return sync_folder(path, err);
}

static bool bring_up_to_date(struct store *store, const char *path, bool migrate, struct error *err)
{
    int version = 0;
    int code = ask(store->db, "PRAGMA user_version", &version, NULL, 0);

    if (code != SQLITE_OK)
        return sql_fail(store, code, "read the version", err);
    if (!check_version(path, version, err))
        return false;
    if (version == MIGRATION_COUNT)
        return true;
    if (!migrate)
        return error_set(err, ERR_INTERNAL, "database '%s' was not migrated yet", path);
    return migrate_from(store, version, err);
}

bool store_open(const char *path, bool migrate, struct store **ret_store, struct error *err)
{
    struct store *store = NULL;
    struct stat info;

    if (strlen(path) >= LIMIT_PATH_BYTES)
        return error_set(err, ERR_LIMIT, "database path '%.64s...' is too long", path);
    if (lstat(path, &info) != 0) {
        if (errno != ENOENT)
            return error_set(err, ERR_IO, "open database '%s': %s", path, strerrordesc_np(errno));
        if (!create(path, err)) {
            error_wrap(err, "create database '%s'", path);
            return false;
        }
    } else if (migrate && (!check_header(path, err) || !check_content(path, err))) {
        return false;
    }
    if (!open_connection(path, SQLITE_OPEN_READWRITE, &store, err))
        return false;
    if (!bring_up_to_date(store, path, migrate, err) ||
        !execute(store, "PRAGMA journal_mode = WAL", err)) {
        store_close(store);
        return false;
    }
    *ret_store = store;
    return true;
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

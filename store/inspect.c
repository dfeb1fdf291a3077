#include "store/inspect.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "store/lostlog.h"
#include "store/migrations.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 100 /* of an SQLite file; the format is fixed for good */
#define APPLICATION_ID_OFFSET 68
#define BUSY_TIMEOUT_MS 10000
#define STEPS_BETWEEN_LOOKS 10000 /* of SQLite's machine, at the clock */
#define SIDE_PATH_BYTES (LIMIT_PATH_BYTES + 16)
#define URI_BYTES (3 * LIMIT_PATH_BYTES + 64)

struct inspecting {
    const char *path, *advice;
    sqlite3 *db;
    int64_t deadline_ns;
};

static bool refuse(const struct inspecting *at, const char *what, struct error *err)
{
    return error_set(err, ERR_CORRUPT, "'%s' %s; it was left untouched: %s", at->path, what,
                     at->advice);
}

static bool check_header(const struct inspecting *at, struct error *err)
{
    static const char magic[16] = "SQLite format 3";
    unsigned char header[HEADER_BYTES] = {0};
    const unsigned char *id = header + APPLICATION_ID_OFFSET;
    struct error why = {0};
    ssize_t size;
    int descriptor;

    if (!file_open(at->path, O_RDONLY | O_NOFOLLOW, &descriptor, &why)) {
        if (why.code == ERR_CORRUPT)
            return refuse(at, "is a symbolic link, not a database", err);
        if (why.code == ERR_INVALID)
            return refuse(at, "is not a regular file", err);
        return error_set(err, ERR_IO, "database: %s", why.message);
    }
    size = read(descriptor, header, sizeof(header));
    (void)close(descriptor); /* only read */
    if (size != (ssize_t)sizeof(header) || memcmp(header, magic, sizeof(magic)) != 0)
        return refuse(at, "is not a database", err);
    if (((uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3]) !=
        MIGRATION_APPLICATION_ID)
        return refuse(at, "is a database of another program, or has lost its log", err);
    return true;
}

/* SQLite says of these only that it cannot open the database, or follows the link. */
static bool check_sides(const struct inspecting *at, struct error *err)
{
    static const char *const suffixes[] = {"-wal", "-shm", "-journal"};

    for (size_t i = 0; i < COUNT_OF(suffixes); i++) {
        char side[SIDE_PATH_BYTES];
        struct inspecting beside = *at;
        struct stat info;

        (void)snprintf(side, sizeof(side), "%s%s", at->path, suffixes[i]); /* made to fit */
        beside.path = side;
        if (lstat(side, &info) == 0 && !S_ISREG(info.st_mode))
            return refuse(&beside,
                          S_ISLNK(info.st_mode) ? "is a symbolic link, no part of a database"
                                                : "is not a regular file, no part of a database",
                          err);
    }
    return true;
}

/* ---- through SQLite ----------------------------------------------------------------------------- */

static bool beside(const char *path, const char *suffix, char ret_path[SIDE_PATH_BYTES])
{
    struct stat info;

    (void)snprintf(ret_path, SIDE_PATH_BYTES, "%s%s", path, suffix); /* made to fit */
    return lstat(ret_path, &info) == 0;
}

int inspect_open(const char *path, sqlite3 **ret_db)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    char uri[URI_BYTES] = "file:", side[SIDE_PATH_BYTES];
    size_t used = strlen(uri);

    for (const char *at = path; *at; at++) {
        const bool as_is = strchr(plain, *at) != NULL;

        used += (size_t)snprintf(uri + used, sizeof(uri) - used, as_is ? "%c" : "%%%02X",
                                 (unsigned char)*at); /* three times the path: fits */
    }
    (void)snprintf(uri + used, sizeof(uri) - used, "%s",
                   beside(path, "-wal", side) ? "" : "?immutable=1");
    return sqlite3_open_v2(uri, ret_db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
}

/* ---- what is in it ---- */

static int time_is_over(void *context)
{
    const struct inspecting *at = context;

    return clock_monotonic_ns() >= at->deadline_ns;
}

/* First column of a statement's first row; ret_text may be NULL. */
static int ask(sqlite3 *db, const char *text, int64_t *ret_number, char *ret_text, size_t capacity)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, text, -1, &statement, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        const unsigned char *found = NULL;

        *ret_number = sqlite3_column_int64(statement, 0);
        if (ret_text) {
            found = sqlite3_column_text(statement, 0);
            (void)snprintf(ret_text, capacity, "%s", found ? (const char *)found : "");
        }
        code = ret_text && !found ? SQLITE_NOMEM : SQLITE_OK; /* no text asked for is NULL */
    } else if (code == SQLITE_DONE) {
        code = SQLITE_ERROR;
    }
    (void)sqlite3_finalize(statement); /* repeats the failure we have */
    return code;
}

static bool check_version(const struct inspecting *at, int64_t version, struct error *err)
{
    if (version >= 1 && version <= MIGRATION_COUNT)
        return true;
    if (version < 1)
        return refuse(at,
                      "bears our mark and no version of ours: another program has made it, or its "
                      "log, the file with -wal after its name, is lost",
                      err);
    return error_set(err, ERR_CORRUPT,
                     "database '%s' has version %lld, this program knows 1 to %d; it was left "
                     "untouched: use the newer program",
                     at->path, (long long)version, MIGRATION_COUNT);
}

/* The check tells a page that could not be read as it tells damage, with SQLite's code behind it. */
static int code_behind(const char *answer)
{
    static const char words[] = "unable to get the page. error code=";
    const char *at = strstr(answer, words);
    int code = 0;

    for (at = at ? at + strlen(words) : ""; *at >= '0' && *at <= '9' && code < 100000; at++)
        code = 10 * code + *at - '0';
    if (code == SQLITE_IOERR_SHORT_READ) /* the file was cut */
        return SQLITE_CORRUPT;
    return (code & 0xff) == SQLITE_NOMEM || (code & 0xff) == SQLITE_IOERR ? code : SQLITE_CORRUPT;
}

static bool check_content(struct inspecting *at, struct inspection *found, struct error *err)
{
    char answer[128] = "", what[224], side[SIDE_PATH_BYTES];
    int64_t number = 0;
    int code = ask(at->db, "PRAGMA user_version", &number, NULL, 0);

    if (code == SQLITE_OK && !check_version(at, number, err))
        return false;
    found->version = (int)number;
    if (code == SQLITE_OK) {
        sqlite3_progress_handler(at->db, STEPS_BETWEEN_LOOKS, time_is_over, at);
        code = ask(at->db, "PRAGMA quick_check(1)", &number, answer, sizeof(answer));
    }
    if (code == SQLITE_OK && strcmp(answer, "ok") == 0)
        code = ask(at->db, "SELECT count(*) FROM pragma_foreign_key_check", &found->dangling_count,
                   NULL, 0);
    else if (code == SQLITE_OK)
        code = code_behind(answer);
    found->complete = code == SQLITE_OK;
    if (code == SQLITE_OK || code == SQLITE_INTERRUPT)
        return true;
    if ((code & 0xff) == SQLITE_READONLY && beside(at->path, "-journal", side))
        return refuse(at,
                      "has a journal beside it, the file with -journal after its name, which would "
                      "undo changes in it and is none of ours",
                      err);
    if (code != SQLITE_CORRUPT && code != SQLITE_NOTADB)
        return error_set(err, ERR_IO, "read database '%s': %s", at->path, sqlite3_errstr(code));
    (void)snprintf(what, sizeof(what), "is damaged (%s; 'sqlite3 FILE .recover' may save its rows)",
                   answer[0] ? answer : sqlite3_errmsg(at->db));
    return refuse(at, what, err);
}

static bool ask_bare(sqlite3 *db, const char *setting)
{
    static const char text[] =
        "SELECT NOT EXISTS (SELECT 1 FROM jobs) AND NOT EXISTS (SELECT 1 FROM files)"
        " AND NOT EXISTS (SELECT 1 FROM models) AND NOT EXISTS (SELECT 1 FROM reservations)"
        " AND NOT EXISTS (SELECT 1 FROM settings WHERE name = ?1 AND value <> '')";
    sqlite3_stmt *statement = NULL;
    bool bare = false;

    if (sqlite3_prepare_v2(db, text, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, setting, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        bare = sqlite3_column_int(statement, 0) != 0;
    (void)sqlite3_finalize(statement); /* only read */
    return bare;
}

bool inspect_is_bare(const char *path, const char *setting)
{
    const struct inspecting at = {.path = path, .advice = ""};
    char side[SIDE_PATH_BYTES];
    sqlite3 *db = NULL;
    bool bare;

    if (strlen(path) >= LIMIT_PATH_BYTES || !check_header(&at, NULL) || !check_sides(&at, NULL) ||
        beside(path, "-wal", side))
        return false;
    bare = inspect_open(path, &db) == SQLITE_OK && ask_bare(db, setting);
    (void)sqlite3_close(db); /* no statement is left */
    return bare;
}

bool inspect_file(const char *path, const char *advice, struct inspection *ret_found,
                  struct error *err)
{
    struct inspecting at = {.path = path,
                            .advice = advice,
                            .deadline_ns =
                                clock_monotonic_ns() + INSPECT_TIME_S * INT64_C(1000000000)};
    struct inspection found = {0};
    char side[SIDE_PATH_BYTES];
    bool has_log, has_index, ok;

    if (strlen(path) >= LIMIT_PATH_BYTES)
        return error_set(err, ERR_LIMIT, "database path '%.64s...' is too long", path);
    if (!check_header(&at, err) || !check_sides(&at, err))
        return false;
    has_log = beside(path, "-wal", side);
    has_index = beside(path, "-shm", side);
    found.log_is_lost = lostlog_look(path);
    if (inspect_open(path, &at.db) == SQLITE_OK) {
        (void)sqlite3_busy_timeout(at.db, BUSY_TIMEOUT_MS);
        ok = check_content(&at, &found, err);
    } else {
        ok = error_set(err, ERR_IO, "open database '%s': %s", path, sqlite3_errmsg(at.db));
    }
    (void)sqlite3_close(at.db); /* no statement is left */
    if (!ok && has_log && !has_index && beside(path, "-shm", side))
        (void)unlink(side); /* SQLite made it to read the log; one that stays does no harm */
    if (ok)
        *ret_found = found;
    return ok;
}

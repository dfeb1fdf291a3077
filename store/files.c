#include "store/files.h"

#include "daemon/base/clock.h"
#include "store/sql.h"

#include <inttypes.h>
#include <string.h>

#define COLUMNS                                                                                    \
    "id, filename, purpose, size_bytes, created_unix_s, sha256, line_count, example_count, "       \
    "owner, "                                                                                      \
    "expires_unix_s"

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct file_record *file = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, file->id, sizeof(file->id));
    sql_copy_text(statement, 1, file->filename, sizeof(file->filename));
    sql_copy_text(statement, 2, file->purpose, sizeof(file->purpose));
    file->size_bytes = sqlite3_column_int64(statement, 3);
    file->created_unix_s = sqlite3_column_int64(statement, 4);
    sql_copy_text(statement, 5, file->sha256, sizeof(file->sha256));
    file->line_count = sqlite3_column_int64(statement, 6);
    file->example_count = sqlite3_column_int64(statement, 7);
    sql_copy_text(statement, 8, file->owner, sizeof(file->owner));
    file->expires_unix_s = sqlite3_column_int64(statement, 9);
    return true;
}

static const struct sql_kind kind = {sizeof(struct file_record), read_row, NULL};

static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM files WHERE id = ?1", "file",
                                         &kind};

bool files_insert(struct store *store, const struct file_record *file, const char *report_json,
                  struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO files (" COLUMNS ", report_json)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, file->id);
    sql_bind_text(store, statement, 2, file->filename);
    sql_bind_text(store, statement, 3, file->purpose);
    sql_bind_int(store, statement, 4, file->size_bytes);
    sql_bind_int(store, statement, 5, file->created_unix_s);
    sql_bind_text(store, statement, 6, file->sha256);
    sql_bind_int(store, statement, 7, file->line_count);
    sql_bind_int(store, statement, 8, file->example_count);
    sql_bind_text(store, statement, 9, file->owner);
    sql_bind_int(store, statement, 10, file->expires_unix_s);
    sql_bind_text(store, statement, 11, report_json);
    return sql_run(store, statement, err);
}

bool files_stored_bytes(struct store *store, const char *owner, int64_t *ret_bytes,
                        struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT (SELECT coalesce(sum(size_bytes), 0) FROM files WHERE owner = ?1)"
                   " + (SELECT coalesce(sum(size_bytes), 0) FROM reservations WHERE owner = ?1"
                   " AND state != 'completed')",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, owner);
    return sql_read_int(store, statement, ret_bytes, err);
}

bool files_check_room(struct store *store, const char *owner, int64_t bytes_max, int64_t more_bytes,
                      struct error *err)
{
    int64_t stored_bytes = 0;
    bool ok;

    if (bytes_max == 0)
        return true;
    ok = files_stored_bytes(store, owner, &stored_bytes, err);
    if (ok && more_bytes > bytes_max - stored_bytes)
        return error_set_word(err, ERR_LIMIT, "quota_exceeded", "bytes",
                              "%" PRId64 " bytes are too many: of the %" PRId64
                              " bytes this key may store, %" PRId64 " are taken",
                              more_bytes, bytes_max, stored_bytes);
    return ok;
}

bool files_insert_within(struct store *store, const struct file_record *file,
                         const char *report_json, int64_t bytes_max, struct error *err)
{
    return sql_begin(store, err) &&
           sql_finish(store,
                      files_check_room(store, file->owner, bytes_max, file->size_bytes, err) &&
                          files_insert(store, file, report_json, err),
                      err);
}

bool files_get(struct store *store, const char *id, struct file_record *ret_file, struct error *err)
{
    return sql_get(store, &lookup, id, ret_file, err);
}

bool files_know(struct store *store, const char *id, bool *ret_known, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT 1 FROM files WHERE id = ?1 UNION ALL SELECT 1 FROM reservations"
                   " WHERE file_id = ?1 AND state != 'completed' LIMIT 1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_read_any(store, statement, ret_known, err);
}

bool files_get_report(struct store *store, const char *id, char **ret_json, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, "SELECT coalesce(report_json, '{}') FROM files WHERE id = ?1", &statement,
                   err))
        return false;
    sql_bind_text(store, statement, 1, id);
    ok = sql_next(store, statement, &row, err);
    if (ok)
        ok = row ? sql_take_text(statement, 0, ret_json, err) : sql_not_found("file", id, err);
    sql_end(statement);
    return ok;
}

bool files_list(struct store *store, const struct files_filter *filter,
                const struct store_page *page, struct file_record **ret_files, size_t *ret_count,
                bool *ret_has_more, struct error *err)
{
    static const struct sql_listing listing =
        SQL_LISTING(COLUMNS, "files",
                    " AND (?3 IS NULL OR purpose = ?3)"
                    " AND (?4 IS NULL OR instr(lower(filename), lower(?4)) > 0)");
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start_page(store, &listing, page, &statement, err))
        return false;
    sql_bind_text(store, statement, 3, filter->purpose);
    sql_bind_text(store, statement, 4, filter->search);
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_files = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

/* The file's unfinished job, if any, into ret_job. */
static bool find_user(struct store *store, const char *id, char ret_job[STORE_ID_SIZE],
                      struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT id FROM jobs WHERE (training_file = ?1 OR validation_file = ?1"
                   " OR instr(inputs_json, ?1) > 0)" /* ids are of one length */
                   " AND state IN ('validating_files', 'queued', 'running', 'paused') LIMIT 1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_read_text(store, statement, ret_job, STORE_ID_SIZE, err);
}

/* Its job has no result file any more. */
static bool forget_result(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE jobs SET result_file = ''"
                   " WHERE result_file = ?1 AND result_file != ''",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err);
}

/* Inside a transaction. */
static bool delete_row(struct store *store, const char *id, struct error *err)
{
    char job[STORE_ID_SIZE];
    sqlite3_stmt *statement = NULL;

    if (!find_user(store, id, job, err))
        return false;
    if (job[0])
        return error_set_word(err, ERR_CONFLICT, "file_in_use", "file_id",
                              "file '%.64s' is needed by job '%s'", id, job);
    return sql_start(store, "DELETE FROM files WHERE id = ?1", &statement, err) &&
           sql_run_on(store, statement, "file", id, err) && forget_result(store, id, err);
}

bool files_delete(struct store *store, const char *id, struct error *err)
{
    return sql_begin(store, err) && sql_finish(store, delete_row(store, id, err), err);
}

bool files_sweep(struct store *store, char ret_id[STORE_ID_SIZE], bool *ret_found,
                 struct error *err)
{
    sqlite3_stmt *statement = NULL;
    char id[STORE_ID_SIZE];

    /* One statement is one transaction: no job can come between the question and the deletion. */
    if (!sql_start(store,
                   "DELETE FROM files WHERE seq = (SELECT seq FROM files AS old"
                   " WHERE expires_unix_s > 0 AND expires_unix_s <= ?1 AND NOT EXISTS"
                   " (SELECT 1 FROM jobs WHERE (training_file = old.id OR validation_file = old.id"
                   " OR instr(inputs_json, old.id) > 0)"
                   " AND state IN ('validating_files', 'queued', 'running', 'paused'))"
                   " ORDER BY expires_unix_s LIMIT 1) RETURNING id",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, clock_unix_s());
    if (!sql_read_text(store, statement, id, sizeof(id), err))
        return false;
    *ret_found = id[0] != '\0';
    memcpy(ret_id, id, sizeof(id));
    return true;
}

#include "store/attempts.h"

#include "store/sql.h"

#define COLUMNS                                                                                    \
    "jobs.id, jobs.attempt_count, attempts.is_reading, attempts.death_count,"                      \
    " attempts.death_step, attempts.kept_step, attempts.kept_unix_s, attempts.kept_bytes"

/* NULL is read as 0: nothing is known of the job. */
static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct attempt_record *attempt = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, attempt->job_id, sizeof(attempt->job_id));
    attempt->attempt_count = sqlite3_column_int64(statement, 1);
    attempt->is_reading = sqlite3_column_int64(statement, 2) != 0;
    attempt->death_count = sqlite3_column_int64(statement, 3);
    attempt->death_step = sqlite3_column_int64(statement, 4);
    attempt->kept_step = sqlite3_column_int64(statement, 5);
    attempt->kept_unix_s = sqlite3_column_int64(statement, 6);
    attempt->kept_bytes = sqlite3_column_int64(statement, 7);
    return true;
}

static const struct sql_kind kind = {sizeof(struct attempt_record), read_row, NULL};

bool attempts_get(struct store *store, const char *job_id, struct attempt_record *ret_attempt,
                  struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct attempt_record attempt = {0};
    bool row = false, ok;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM jobs LEFT JOIN attempts ON attempts.job_id = jobs.id"
                   " WHERE jobs.id = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    ok = sql_next(store, statement, &row, err) && (!row || read_row(statement, &attempt, err));
    sql_end(statement);
    if (ok)
        *ret_attempt = attempt;
    return ok;
}

/* text: a literal that has the limit as ?1. */
static bool list(struct store *store, const char *text, size_t limit,
                 struct attempt_record **ret_attempts, size_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store, text, &statement, err))
        return false;
    sql_bind_int(store, statement, 1, (int64_t)limit);
    if (!sql_read_rows(store, statement, &kind, limit, &rows, err))
        return false;
    *ret_attempts = rows.records;
    *ret_count = rows.count;
    return true;
}

bool attempts_list_broken(struct store *store, size_t limit, struct attempt_record **ret_attempts,
                          size_t *ret_count, struct error *err)
{
    return list(store,
                "SELECT " COLUMNS " FROM jobs LEFT JOIN attempts ON attempts.job_id = jobs.id"
                " WHERE state = 'running' OR (state = 'validating_files' AND is_reading)"
                " ORDER BY jobs.seq LIMIT ?1",
                limit, ret_attempts, ret_count, err);
}

bool attempts_list_suspects(struct store *store, size_t limit, struct attempt_record **ret_attempts,
                            size_t *ret_count, struct error *err)
{
    return list(store,
                "SELECT " COLUMNS " FROM attempts JOIN jobs ON attempts.job_id = jobs.id"
                " WHERE death_count > 0 AND state IN ('validating_files', 'queued', 'running')"
                " ORDER BY jobs.seq LIMIT ?1",
                limit, ret_attempts, ret_count, err);
}

bool attempts_begin_reading(struct store *store, const char *job_id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO attempts (job_id, is_reading) VALUES (?1, 1)"
                   " ON CONFLICT (job_id) DO UPDATE SET is_reading = 1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    return sql_run(store, statement, err);
}

bool attempts_end_reading(struct store *store, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    return sql_start(store, "UPDATE attempts SET is_reading = 0 WHERE is_reading", &statement,
                     err) &&
           sql_run(store, statement, err);
}

bool attempts_keep(struct store *store, const struct attempt_record *kept, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO attempts (job_id, kept_step, kept_unix_s, kept_bytes)"
                   " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (job_id) DO UPDATE SET kept_step = ?2,"
                   " kept_unix_s = ?3, kept_bytes = ?4,"
                   " death_count = CASE WHEN ?2 > death_step THEN 0 ELSE death_count END",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, kept->job_id);
    sql_bind_int(store, statement, 2, kept->kept_step);
    sql_bind_int(store, statement, 3, kept->kept_unix_s);
    sql_bind_int(store, statement, 4, kept->kept_bytes);
    return sql_run(store, statement, err);
}

bool attempts_set_death(struct store *store, const struct attempt_record *attempt,
                        struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO attempts (job_id, death_count, death_step) VALUES (?1, ?2, ?3)"
                   " ON CONFLICT (job_id) DO UPDATE SET is_reading = 0, death_count = ?2,"
                   " death_step = ?3",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, attempt->job_id);
    sql_bind_int(store, statement, 2, attempt->death_count);
    sql_bind_int(store, statement, 3, attempt->death_step);
    return sql_run(store, statement, err);
}

bool attempts_clear(struct store *store, const char *job_id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE attempts SET is_reading = 0, death_count = 0"
                   " WHERE job_id = ?1 AND (is_reading OR death_count > 0)",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    return sql_run(store, statement, err);
}

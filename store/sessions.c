#include "store/sessions.h"

#include "daemon/base/clock.h"
#include "store/sql.h"

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct session_record *session = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, session->token_sha256, sizeof(session->token_sha256));
    sql_copy_text(statement, 1, session->owner, sizeof(session->owner));
    sql_copy_text(statement, 2, session->key_sha256, sizeof(session->key_sha256));
    session->expires_unix_s = sqlite3_column_int64(statement, 3);
    return true;
}

static const struct sql_kind kind = {sizeof(struct session_record), read_row, NULL};

static bool delete_old(struct store *store, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "DELETE FROM sessions WHERE expires_unix_s <= ?1", &statement, err))
        return false;
    sql_bind_int(store, statement, 1, clock_unix_s());
    return sql_run(store, statement, err);
}

static bool insert(struct store *store, const struct session_record *session, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO sessions (token_sha256, owner, key_sha256, expires_unix_s)"
                   " VALUES (?1, ?2, ?3, ?4)",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, session->token_sha256);
    sql_bind_text(store, statement, 2, session->owner);
    sql_bind_text(store, statement, 3, session->key_sha256);
    sql_bind_int(store, statement, 4, session->expires_unix_s);
    return sql_run(store, statement, err);
}

bool sessions_insert(struct store *store, const struct session_record *session, struct error *err)
{
    return sql_begin(store, err) &&
           sql_finish(store, delete_old(store, err) && insert(store, session, err), err);
}

bool sessions_extend(struct store *store, const char *token_sha256, int64_t expires_unix_s,
                     struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "UPDATE sessions SET expires_unix_s = ?2 WHERE token_sha256 = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, token_sha256);
    sql_bind_int(store, statement, 2, expires_unix_s);
    return sql_run(store, statement, err);
}

bool sessions_delete(struct store *store, const char *token_sha256, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "DELETE FROM sessions WHERE token_sha256 = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, token_sha256);
    return sql_run(store, statement, err);
}

bool sessions_list(struct store *store, size_t limit, struct session_record **ret_sessions,
                   size_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!delete_old(store, err) ||
        !sql_start(store,
                   "SELECT token_sha256, owner, key_sha256, expires_unix_s FROM sessions"
                   " ORDER BY expires_unix_s DESC, token_sha256",
                   &statement, err) ||
        !sql_read_rows(store, statement, &kind, limit, &rows, err))
        return false;
    *ret_sessions = rows.records;
    *ret_count = rows.count;
    return true;
}

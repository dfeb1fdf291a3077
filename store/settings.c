#include "store/settings.h"

#include "store/sql.h"

#include <assert.h>
#include <string.h>

bool settings_get_or_set(struct store *store, const char *name, const char *proposal,
                         char ret_value[SETTING_VALUE_SIZE], struct error *err)
{
    sqlite3_stmt *statement = NULL;

    assert(strlen(proposal) < SETTING_VALUE_SIZE);
    /* An update that changes nothing: the row comes back whoever made it. */
    if (!sql_start(store,
                   "INSERT INTO settings (name, value) VALUES (?1, ?2)"
                   " ON CONFLICT (name) DO UPDATE SET value = value RETURNING value",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, name);
    sql_bind_text(store, statement, 2, proposal);
    return sql_read_text(store, statement, ret_value, SETTING_VALUE_SIZE, err);
}

bool settings_exchange(struct store *store, const char *name, const char *value,
                       char ret_before[SETTING_VALUE_SIZE], struct error *err)
{
    char before[SETTING_VALUE_SIZE] = "";
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    assert(strlen(value) < SETTING_VALUE_SIZE);
    if (!sql_begin(store, err))
        return false;
    ok = sql_start(store, "SELECT value FROM settings WHERE name = ?1", &statement, err);
    if (ok) {
        sql_bind_text(store, statement, 1, name);
        ok = sql_next(store, statement, &row, err);
        if (ok && row)
            sql_copy_text(statement, 0, before, sizeof(before));
        sql_end(statement);
    }
    ok = ok && sql_start(store, "INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)",
                         &statement, err);
    if (ok) {
        sql_bind_text(store, statement, 1, name);
        sql_bind_text(store, statement, 2, value);
        ok = sql_run(store, statement, err);
    }
    if (!ok) {
        sql_rollback(store);
        return false;
    }
    if (!sql_commit(store, err))
        return false;
    memcpy(ret_before, before, sizeof(before));
    return true;
}

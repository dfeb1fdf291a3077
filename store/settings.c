#include "store/settings.h"

#include "store/sql.h"

#include <assert.h>
#include <string.h>

bool settings_get_or_set(struct store *store, const char *name, const char *proposal,
                         char ret_value[SETTING_VALUE_SIZE], struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    assert(strlen(proposal) < SETTING_VALUE_SIZE);
    /* An update that changes nothing: the row comes back whoever made it. */
    if (!sql_start(store,
                   "INSERT INTO settings (name, value) VALUES (?1, ?2)"
                   " ON CONFLICT (name) DO UPDATE SET value = value RETURNING value",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, name);
    sql_bind_text(store, statement, 2, proposal);
    ok = sql_next(store, statement, &row, err);
    if (ok && row)
        sql_copy_text(statement, 0, ret_value, SETTING_VALUE_SIZE);
    while (ok && row) /* the write counts once the statement has run to its end */
        ok = sql_next(store, statement, &row, err);
    sql_end(statement);
    return ok;
}

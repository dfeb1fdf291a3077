#include "store/figures.h"

#include "store/sql.h"

#include <string.h>

bool figures_count_jobs(struct store *store, int64_t ret_counts[JOB_STATE_COUNT], struct error *err)
{
    int64_t counts[JOB_STATE_COUNT] = {0};
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, "SELECT state, count(*) FROM jobs GROUP BY state", &statement, err))
        return false;
    while ((ok = sql_next(store, statement, &row, err)) && row) {
        enum job_state state;
        char name[32];

        sql_copy_text(statement, 0, name, sizeof(name));
        if (job_state_from_name(name, &state))
            counts[state] = sqlite3_column_int64(statement, 1);
    }
    sql_end(statement);
    if (ok)
        memcpy(ret_counts, counts, sizeof(counts));
    return ok;
}

bool figures_are_none(struct store *store, bool *ret_none, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, none = false, ok;

    if (!sql_start(store,
                   "SELECT NOT EXISTS (SELECT 1 FROM jobs) AND NOT EXISTS (SELECT 1 FROM files)"
                   " AND NOT EXISTS (SELECT 1 FROM models)"
                   " AND NOT EXISTS (SELECT 1 FROM reservations)",
                   &statement, err))
        return false;
    ok = sql_next(store, statement, &row, err);
    if (ok && row)
        none = sqlite3_column_int(statement, 0) != 0;
    sql_end(statement);
    if (ok)
        *ret_none = none;
    return ok;
}

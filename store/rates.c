#include "store/rates.h"

#include "store/sql.h"

bool rates_set(struct store *store, const struct rate_record *rate, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO rates (device, base_model, setting, tokens_per_second,"
                   " measured_unix_s) VALUES (?1, ?2, ?3, ?4, ?5)"
                   " ON CONFLICT (device, base_model, setting) DO UPDATE SET"
                   " tokens_per_second = ?4, measured_unix_s = ?5",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, rate->device);
    sql_bind_text(store, statement, 2, rate->base_model);
    sql_bind_text(store, statement, 3, rate->setting);
    sql_bind_double(store, statement, 4, rate->tokens_per_second);
    sql_bind_int(store, statement, 5, rate->measured_unix_s);
    return sql_run(store, statement, err);
}

bool rates_get(struct store *store, struct rate_record *rate, bool *ret_found, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store,
                   "SELECT tokens_per_second, measured_unix_s FROM rates"
                   " WHERE device = ?1 AND base_model = ?2 AND setting = ?3",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, rate->device);
    sql_bind_text(store, statement, 2, rate->base_model);
    sql_bind_text(store, statement, 3, rate->setting);
    ok = sql_next(store, statement, &row, err);
    *ret_found = ok && row;
    if (*ret_found) {
        rate->tokens_per_second = sql_read_double(statement, 0);
        rate->measured_unix_s = sqlite3_column_int64(statement, 1);
    }
    sql_end(statement);
    return ok;
}

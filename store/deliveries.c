#include "store/deliveries.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "store/sql.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENT_DIGITS 24

#define COLUMNS                                                                                    \
    "d.seq, d.webhook_id, d.event_id, d.body, d.created_unix_s, d.next_unix_s, d.attempt_count,"   \
    " d.last_status, d.last_error"

void delivery_release(struct delivery_record *delivery)
{
    if (!delivery)
        return;
    free(delivery->body);
    delivery->body = NULL;
}

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct delivery_record *delivery = ret_record;

    delivery->seq = sqlite3_column_int64(statement, 0);
    sql_copy_text(statement, 1, delivery->webhook_id, sizeof(delivery->webhook_id));
    sql_copy_text(statement, 2, delivery->event_id, sizeof(delivery->event_id));
    delivery->created_unix_s = sqlite3_column_int64(statement, 4);
    delivery->next_unix_s = sqlite3_column_int64(statement, 5);
    delivery->attempt_count = sqlite3_column_int64(statement, 6);
    delivery->last_status = sqlite3_column_int64(statement, 7);
    sql_copy_text(statement, 8, delivery->last_error, sizeof(delivery->last_error));
    return sql_take_text(statement, 3, &delivery->body, err);
}

static void release_row(void *record)
{
    delivery_release(record);
}

static const struct sql_kind kind = {sizeof(struct delivery_record), read_row, release_row};

bool deliveries_insert(struct store *store, const char *job_id, const char *state,
                       struct error *err)
{
    char event_id[STORE_ID_SIZE], type[64];
    sqlite3_stmt *statement = NULL;

    (void)snprintf(type, sizeof(type), "fine_tuning.job.%s", state); /* short names */
    if (!file_random_id(event_id, sizeof(event_id), "evt_", EVENT_DIGITS, err) ||
        !sql_start(
            store,
            "INSERT INTO deliveries (webhook_id, event_id, body, created_unix_s, next_unix_s)"
            " SELECT w.id, ?1, json_object('id', ?1, 'object', 'event', 'created_at', ?2,"
            " 'type', ?3, 'data', json_object('id', j.id)), ?2, ?2"
            " FROM jobs j CROSS JOIN webhooks w WHERE j.id = ?4 AND w.enabled = 1"
            " AND instr(w.types, ',' || ?3 || ',') > 0"
            " AND (w.all_jobs = 1 OR w.owner = j.owner)",
            &statement, err))
        return false;
    sql_bind_text(store, statement, 1, event_id);
    sql_bind_int(store, statement, 2, clock_unix_s());
    sql_bind_text(store, statement, 3, type);
    sql_bind_text(store, statement, 4, job_id);
    return sql_run(store, statement, err);
}

bool deliveries_list_due(struct store *store, int64_t now_unix_s, const char *waits_json,
                         struct delivery_record **ret_deliveries, size_t *ret_count,
                         struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM webhooks w CROSS JOIN deliveries d ON d.seq ="
                   " (SELECT seq FROM deliveries WHERE webhook_id = w.id AND next_unix_s > 0"
                   " AND (next_unix_s <= ?1 OR next_unix_s > ?1 + coalesce("
                   "(SELECT value FROM json_each(?2) WHERE key = attempt_count - 1), 0))"
                   " ORDER BY next_unix_s, seq LIMIT 1) WHERE w.enabled = 1",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, now_unix_s);
    sql_bind_text(store, statement, 2, waits_json);
    if (!sql_read_rows(store, statement, &kind, SIZE_MAX, &rows, err))
        return false;
    *ret_deliveries = rows.records;
    *ret_count = rows.count;
    return true;
}

bool deliveries_find_next(struct store *store, int64_t *ret_next_unix_s, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    return sql_start(store,
                     "SELECT coalesce(min(d.next_unix_s), 0) FROM deliveries d JOIN webhooks w"
                     " ON w.id = d.webhook_id WHERE d.next_unix_s > 0 AND w.enabled = 1",
                     &statement, err) &&
           sql_read_int(store, statement, ret_next_unix_s, err);
}

bool deliveries_count_waiting(struct store *store, int64_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    return sql_start(store, "SELECT count(*) FROM deliveries WHERE next_unix_s > 0", &statement,
                     err) &&
           sql_read_int(store, statement, ret_count, err);
}

bool deliveries_update(struct store *store, const struct delivery_record *delivery,
                       struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE deliveries SET next_unix_s = ?2, attempt_count = ?3, last_status = ?4,"
                   " last_error = ?5 WHERE seq = ?1",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, delivery->seq);
    sql_bind_int(store, statement, 2, delivery->next_unix_s);
    sql_bind_int(store, statement, 3, delivery->attempt_count);
    sql_bind_int(store, statement, 4, delivery->last_status);
    sql_bind_text(store, statement, 5, delivery->last_error);
    return sql_run(store, statement, err);
}

bool deliveries_update_gone(struct store *store, const struct delivery_record *delivery,
                            const char *url, bool *ret_switched_off, struct error *err)
{
    return sql_begin(store, err) && sql_finish(store,
                                               deliveries_update(store, delivery, err) &&
                                                   webhooks_switch_off(store, delivery->webhook_id,
                                                                       url, ret_switched_off, err),
                                               err);
}

bool deliveries_list(struct store *store, const char *webhook_id, size_t limit,
                     struct delivery_record **ret_deliveries, size_t *ret_count, bool *ret_has_more,
                     struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM deliveries d WHERE d.webhook_id = ?1"
                   " ORDER BY d.seq DESC",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, webhook_id);
    if (!sql_read_rows(store, statement, &kind, limit, &rows, err))
        return false;
    *ret_deliveries = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

bool deliveries_sweep(struct store *store, int64_t before_unix_s, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "DELETE FROM deliveries WHERE created_unix_s < ?1 AND (next_unix_s = 0"
                   " OR webhook_id IN (SELECT id FROM webhooks WHERE enabled = 0))",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, before_unix_s);
    return sql_run(store, statement, err);
}

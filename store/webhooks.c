#include "store/webhooks.h"

#include "store/sql.h"

#include <inttypes.h>

#define COLUMNS                                                                                    \
    "id, owner, all_jobs, name, url, types, secret, old_secret, old_secret_until_unix_s, enabled," \
    " created_unix_s, updated_unix_s"

const char *const webhook_types[] = {"fine_tuning.job.succeeded", "fine_tuning.job.failed",
                                     "fine_tuning.job.cancelled", NULL};

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct webhook_record *webhook = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, webhook->id, sizeof(webhook->id));
    sql_copy_text(statement, 1, webhook->owner, sizeof(webhook->owner));
    webhook->all_jobs = sqlite3_column_int(statement, 2) != 0;
    sql_copy_text(statement, 3, webhook->name, sizeof(webhook->name));
    sql_copy_text(statement, 4, webhook->url, sizeof(webhook->url));
    sql_copy_text(statement, 5, webhook->types, sizeof(webhook->types));
    sql_copy_text(statement, 6, webhook->secret, sizeof(webhook->secret));
    sql_copy_text(statement, 7, webhook->old_secret, sizeof(webhook->old_secret));
    webhook->old_secret_until_unix_s = sqlite3_column_int64(statement, 8);
    webhook->enabled = sqlite3_column_int(statement, 9) != 0;
    webhook->created_unix_s = sqlite3_column_int64(statement, 10);
    webhook->updated_unix_s = sqlite3_column_int64(statement, 11);
    return true;
}

static const struct sql_kind kind = {sizeof(struct webhook_record), read_row, NULL};

static bool not_found(const char *id, struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "no webhook endpoint '%.64s'", id);
}

static bool check_count(struct store *store, const char *owner, int64_t count_max,
                        struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t count = 0;
    bool row = false, ok;

    if (!sql_start(store, "SELECT count(*) FROM webhooks WHERE owner = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, owner);
    ok = sql_next(store, statement, &row, err);
    if (ok && row)
        count = sqlite3_column_int64(statement, 0);
    sql_end(statement);
    if (ok && count >= count_max)
        return error_set_word(err, ERR_LIMIT, "quota_exceeded", "",
                              "this key has %" PRId64 " webhook endpoints, more are not taken: "
                              "delete one first",
                              count);
    return ok;
}

static bool insert(struct store *store, const struct webhook_record *webhook, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(
            store,
            "INSERT INTO webhooks (id, owner, all_jobs, name, url, types, secret, enabled,"
            " created_unix_s, updated_unix_s) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?8)",
            &statement, err))
        return false;
    sql_bind_text(store, statement, 1, webhook->id);
    sql_bind_text(store, statement, 2, webhook->owner);
    sql_bind_int(store, statement, 3, webhook->all_jobs);
    sql_bind_text(store, statement, 4, webhook->name);
    sql_bind_text(store, statement, 5, webhook->url);
    sql_bind_text(store, statement, 6, webhook->types);
    sql_bind_text(store, statement, 7, webhook->secret);
    sql_bind_int(store, statement, 8, webhook->created_unix_s);
    return sql_run(store, statement, err);
}

bool webhooks_insert(struct store *store, const struct webhook_record *webhook, int64_t count_max,
                     struct error *err)
{
    if (!sql_begin(store, err))
        return false;
    if (!check_count(store, webhook->owner, count_max, err) || !insert(store, webhook, err)) {
        sql_rollback(store);
        return false;
    }
    return sql_commit(store, err);
}

bool webhooks_get(struct store *store, const char *id, struct webhook_record *ret_webhook,
                  struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, "SELECT " COLUMNS " FROM webhooks WHERE id = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    ok = sql_next(store, statement, &row, err);
    if (ok)
        ok = row ? read_row(statement, ret_webhook, err) : not_found(id, err);
    sql_end(statement);
    return ok;
}

bool webhooks_list(struct store *store, const char *owner, const struct store_page *page,
                   struct webhook_record **ret_webhooks, size_t *ret_count, bool *ret_has_more,
                   struct error *err)
{
    static const struct sql_listing listing =
        SQL_LISTING(COLUMNS, "webhooks", " AND (?3 IS NULL OR owner = ?3)");
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start_page(store, &listing, page, &statement, err))
        return false;
    sql_bind_text(store, statement, 3, owner);
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_webhooks = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

bool webhooks_update(struct store *store, const struct webhook_record *webhook, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE webhooks SET name = ?2, url = ?3, types = ?4, secret = ?5,"
                   " old_secret = ?6, old_secret_until_unix_s = ?7, enabled = ?8,"
                   " updated_unix_s = ?9 WHERE id = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, webhook->id);
    sql_bind_text(store, statement, 2, webhook->name);
    sql_bind_text(store, statement, 3, webhook->url);
    sql_bind_text(store, statement, 4, webhook->types);
    sql_bind_text(store, statement, 5, webhook->secret);
    sql_bind_text(store, statement, 6, webhook->old_secret);
    sql_bind_int(store, statement, 7, webhook->old_secret_until_unix_s);
    sql_bind_int(store, statement, 8, webhook->enabled);
    sql_bind_int(store, statement, 9, webhook->updated_unix_s);
    return sql_run(store, statement, err) &&
           (sql_changed_rows(store) > 0 || not_found(webhook->id, err));
}

bool webhooks_delete(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "DELETE FROM webhooks WHERE id = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err) && (sql_changed_rows(store) > 0 || not_found(id, err));
}

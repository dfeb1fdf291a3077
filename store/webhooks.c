#include "store/webhooks.h"

#include "daemon/base/clock.h"
#include "store/sql.h"

#include <inttypes.h>

#define COLUMNS                                                                                    \
    "id, owner, all_jobs, name, url, types, secret, old_secret, old_secret_until_unix_s, enabled," \
    " created_unix_s, updated_unix_s"

/* A key may be revoked beside what is done with it: its webhooks stay off. */
#define OWNER_IN_FORCE(owner)                                                                      \
    "NOT EXISTS (SELECT 1 FROM keys WHERE keys.id = " owner " AND revoked_unix_s > 0)"

const char *const webhook_types[] = {"fine_tuning.job.succeeded", "fine_tuning.job.failed",
                                     "fine_tuning.job.cancelled", NULL};

static const char what[] = "webhook endpoint";

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

static bool check_count(struct store *store, const char *owner, int64_t count_max,
                        struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t count = 0;

    if (!sql_start(store, "SELECT count(*) FROM webhooks WHERE owner = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, owner);
    if (!sql_read_int(store, statement, &count, err))
        return false;
    return count < count_max ||
           error_set_word(err, ERR_LIMIT, "quota_exceeded", "",
                          "this key has %" PRId64 " webhook endpoints, more are not taken: "
                          "delete one first",
                          count);
}

static bool insert(struct store *store, const struct webhook_record *webhook, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO webhooks (id, owner, all_jobs, name, url, types, secret, enabled,"
                   " created_unix_s, updated_unix_s) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
                   " " OWNER_IN_FORCE("?2") ", ?8, ?8)",
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
    return sql_begin(store, err) && sql_finish(store,
                                               check_count(store, webhook->owner, count_max, err) &&
                                                   insert(store, webhook, err),
                                               err);
}

bool webhooks_get(struct store *store, const char *id, struct webhook_record *ret_webhook,
                  struct error *err)
{
    static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM webhooks WHERE id = ?1", what,
                                             &kind};

    return sql_get(store, &lookup, id, ret_webhook, err);
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

/* A statement that changes one webhook and RETURNs it. */
static bool change_row(struct store *store, sqlite3_stmt *statement, const char *id,
                       struct webhook_record *ret_webhook, struct error *err)
{
    bool found = false;

    return sql_read_record(store, statement, &kind, ret_webhook, &found, err) &&
           (found || sql_not_found(what, id, err));
}

bool webhooks_update(struct store *store, const char *id, const struct webhook_change *change,
                     struct webhook_record *ret_webhook, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE webhooks SET name = coalesce(?2, name), url = coalesce(?3, url),"
                   " types = coalesce(?4, types), enabled = " OWNER_IN_FORCE(
                       "owner") ","
                                " updated_unix_s = ?5 WHERE id = ?1 RETURNING " COLUMNS,
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    sql_bind_text(store, statement, 2, change->name);
    sql_bind_text(store, statement, 3, change->url);
    sql_bind_text(store, statement, 4, change->types);
    sql_bind_int(store, statement, 5, clock_unix_s());
    return change_row(store, statement, id, ret_webhook, err);
}

bool webhooks_rotate(struct store *store, const char *id, const char *secret, int64_t keep_old_s,
                     struct webhook_record *ret_webhook, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE webhooks SET old_secret = CASE WHEN ?3 > 0 THEN secret ELSE '' END,"
                   " old_secret_until_unix_s = CASE WHEN ?3 > 0 THEN ?4 + ?3 ELSE 0 END,"
                   " secret = ?2, updated_unix_s = ?4 WHERE id = ?1 RETURNING " COLUMNS,
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    sql_bind_text(store, statement, 2, secret);
    sql_bind_int(store, statement, 3, keep_old_s);
    sql_bind_int(store, statement, 4, clock_unix_s());
    return change_row(store, statement, id, ret_webhook, err);
}

bool webhooks_switch_off(struct store *store, const char *id, const char *url, bool *ret_changed,
                         struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE webhooks SET enabled = 0 WHERE id = ?1 AND url = ?2 AND enabled != 0",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    sql_bind_text(store, statement, 2, url);
    if (!sql_run(store, statement, err))
        return false;
    *ret_changed = sql_changed_rows(store) > 0;
    return true;
}

bool webhooks_delete(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    return sql_start(store, "DELETE FROM webhooks WHERE id = ?1", &statement, err) &&
           sql_run_on(store, statement, what, id, err);
}

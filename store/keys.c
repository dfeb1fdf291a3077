#include "store/keys.h"

#include "daemon/base/clock.h"
#include "store/sql.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                    \
    "id, name, scope, secret_sha256, hint, jobs_max, bytes_max, created_unix_s, last_used_unix_s," \
    " revoked_unix_s"

static const char *const scope_names[] = {"read", "submit", "admin"};
static_assert(COUNT_OF(scope_names) == KEY_SCOPE_COUNT, "a name for every scope");

const char *key_scope_name(enum key_scope scope)
{
    assert((size_t)scope < KEY_SCOPE_COUNT);
    return scope_names[scope];
}

bool key_scope_from_name(const char *name, enum key_scope *ret_scope)
{
    for (size_t i = 0; i < KEY_SCOPE_COUNT; i++) {
        if (strcmp(name, scope_names[i]) == 0) {
            *ret_scope = (enum key_scope)i;
            return true;
        }
    }
    return false;
}

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct key_record *key = ret_record;
    char scope[16];

    sql_copy_text(statement, 0, key->id, sizeof(key->id));
    sql_copy_text(statement, 1, key->name, sizeof(key->name));
    sql_copy_text(statement, 2, scope, sizeof(scope));
    if (!key_scope_from_name(scope, &key->scope))
        return error_set(err, ERR_CORRUPT, "key '%s' has the unknown scope '%s'", key->id, scope);
    sql_copy_text(statement, 3, key->secret_sha256, sizeof(key->secret_sha256));
    sql_copy_text(statement, 4, key->hint, sizeof(key->hint));
    key->jobs_max = sqlite3_column_int64(statement, 5);
    key->bytes_max = sqlite3_column_int64(statement, 6);
    key->created_unix_s = sqlite3_column_int64(statement, 7);
    key->last_used_unix_s = sqlite3_column_int64(statement, 8);
    key->revoked_unix_s = sqlite3_column_int64(statement, 9);
    return true;
}

static const struct sql_kind kind = {sizeof(struct key_record), read_row, NULL};

static bool count_keys(struct store *store, int64_t *ret_live, int64_t *ret_all, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, "SELECT count(*) FILTER (WHERE revoked_unix_s = 0), count(*) FROM keys",
                   &statement, err))
        return false;
    ok = sql_next(store, statement, &row, err);
    if (ok && row) {
        *ret_live = sqlite3_column_int64(statement, 0);
        *ret_all = sqlite3_column_int64(statement, 1);
    }
    sql_end(statement);
    return ok;
}

static bool insert(struct store *store, const struct key_record *key, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO keys (id, name, scope, secret_sha256, hint, jobs_max, bytes_max,"
                   " created_unix_s) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, key->id);
    sql_bind_text(store, statement, 2, key->name);
    sql_bind_text(store, statement, 3, key_scope_name(key->scope));
    sql_bind_text(store, statement, 4, key->secret_sha256);
    sql_bind_text(store, statement, 5, key->hint);
    sql_bind_int(store, statement, 6, key->jobs_max);
    sql_bind_int(store, statement, 7, key->bytes_max);
    sql_bind_int(store, statement, 8, key->created_unix_s);
    return sql_run(store, statement, err);
}

/* Inside a transaction. */
static bool check_count(struct store *store, int64_t count_max, struct error *err)
{
    int64_t live = 0, all = 0;

    return count_keys(store, &live, &all, err) &&
           (live < count_max ||
            error_set_word(err, ERR_LIMIT, "quota_exceeded", "",
                           "there are %" PRId64 " keys, more are not taken: revoke one first",
                           live));
}

bool keys_insert(struct store *store, const struct key_record *key, int64_t count_max,
                 struct error *err)
{
    return sql_begin(store, err) &&
           sql_finish(store, check_count(store, count_max, err) && insert(store, key, err), err);
}

bool keys_get(struct store *store, const char *id, struct key_record *ret_key, struct error *err)
{
    static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM keys WHERE id = ?1", "key",
                                             &kind};

    return sql_get(store, &lookup, id, ret_key, err);
}

bool keys_list(struct store *store, const struct store_page *page, struct key_record **ret_keys,
               size_t *ret_count, bool *ret_has_more, struct error *err)
{
    static const struct sql_listing listing = SQL_LISTING(COLUMNS, "keys", "");
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start_page(store, &listing, page, &statement, err))
        return false;
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_keys = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

bool keys_list_live(struct store *store, struct key_record **ret_keys, size_t *ret_count,
                    bool *ret_ever, struct error *err)
{
    int64_t live = 0, all = 0;
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!count_keys(store, &live, &all, err) ||
        !sql_start(store, "SELECT " COLUMNS " FROM keys WHERE revoked_unix_s = 0", &statement,
                   err) ||
        !sql_read_rows(store, statement, &kind, SIZE_MAX, &rows, err))
        return false;
    *ret_keys = rows.records;
    *ret_count = rows.count;
    *ret_ever = all > 0;
    return true;
}

static bool set_revoked(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE keys SET revoked_unix_s = ?2 WHERE id = ?1 AND revoked_unix_s = 0",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    sql_bind_int(store, statement, 2, clock_unix_s());
    if (!sql_run(store, statement, err) ||
        !sql_start(store, "UPDATE webhooks SET enabled = 0 WHERE owner = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err);
}

bool keys_revoke(struct store *store, const char *id, struct error *err)
{
    struct key_record key;

    return sql_begin(store, err) &&
           sql_finish(store, keys_get(store, id, &key, err) && set_revoked(store, id, err), err);
}

static bool set_used(struct store *store, const struct key_use *use, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE keys SET last_used_unix_s = ?2 WHERE id = ?1"
                   " AND last_used_unix_s < ?2",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, use->id);
    sql_bind_int(store, statement, 2, use->unix_s);
    return sql_run(store, statement, err);
}

bool keys_set_used(struct store *store, const struct key_use *uses, size_t count, struct error *err)
{
    bool ok = true;

    if (count == 0)
        return true;
    if (!sql_begin(store, err))
        return false;
    for (size_t i = 0; i < count && ok; i++)
        ok = set_used(store, &uses[i], err);
    return sql_finish(store, ok, err);
}

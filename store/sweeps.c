#include "store/sweeps.h"

#include "store/jobs_insert.h"
#include "store/sql.h"

#include <stdlib.h>

#define COLUMNS "id, owner, request_json, varied_json, created_unix_s"

void sweep_record_release(struct sweep_record *sweep)
{
    if (!sweep)
        return;
    free(sweep->request_json);
    free(sweep->varied_json);
    sweep->request_json = sweep->varied_json = NULL;
}

void sweeps_free(struct sweep_record *sweeps, size_t count)
{
    for (size_t i = 0; sweeps && i < count; i++)
        sweep_record_release(&sweeps[i]);
    free(sweeps);
}

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct sweep_record *sweep = ret_record;

    *sweep = (struct sweep_record){0};
    sql_copy_text(statement, 0, sweep->id, sizeof(sweep->id));
    sql_copy_text(statement, 1, sweep->owner, sizeof(sweep->owner));
    sweep->created_unix_s = sqlite3_column_int64(statement, 4);
    if (sql_take_text(statement, 2, &sweep->request_json, err) &&
        sql_take_text(statement, 3, &sweep->varied_json, err))
        return true;
    sweep_record_release(sweep);
    return false;
}

static void release_row(void *record)
{
    sweep_record_release(record);
}

static const struct sql_kind kind = {sizeof(struct sweep_record), read_row, release_row};

static bool insert(struct store *store, const struct sweep_record *sweep, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "INSERT INTO sweeps (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5)",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, sweep->id);
    sql_bind_text(store, statement, 2, sweep->owner);
    sql_bind_text(store, statement, 3, sweep->request_json);
    sql_bind_text(store, statement, 4, sweep->varied_json);
    sql_bind_int(store, statement, 5, sweep->created_unix_s);
    return sql_run(store, statement, err);
}

bool sweeps_insert(struct store *store, const struct sweep_record *sweep,
                   const struct job_record *jobs, const struct event_draft *events, size_t count,
                   struct error *err)
{
    bool ok;

    if (!sql_begin(store, err))
        return false;
    ok = insert(store, sweep, err);
    for (size_t i = 0; i < count && ok; i++)
        ok = jobs_insert_row(store, &jobs[i], &events[i], err);
    return sql_finish(store, ok, err);
}

bool sweeps_get(struct store *store, const char *id, struct sweep_record *ret_sweep,
                struct error *err)
{
    static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM sweeps WHERE id = ?1",
                                             "sweep", &kind};

    return sql_get(store, &lookup, id, ret_sweep, err);
}

bool sweeps_list(struct store *store, const struct store_page *page,
                 struct sweep_record **ret_sweeps, size_t *ret_count, bool *ret_has_more,
                 struct error *err)
{
    static const struct sql_listing listing = SQL_LISTING(COLUMNS, "sweeps", "");
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start_page(store, &listing, page, &statement, err))
        return false;
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_sweeps = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

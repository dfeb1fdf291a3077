#include "store/line.h"

#include "store/events_insert.h"
#include "store/sql.h"

#define WAITING " FROM jobs WHERE state IN ('validating_files', 'queued')"

static bool read_entry(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct line_entry *entry = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, entry->id, sizeof(entry->id));
    entry->place.priority = sqlite3_column_int64(statement, 1);
    entry->place.position = sqlite3_column_int64(statement, 2);
    return true;
}

bool line_list(struct store *store, struct line_entry **ret_entries, size_t *ret_count,
               struct error *err)
{
    static const struct sql_kind kind = {sizeof(struct line_entry), read_entry, NULL};
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store,
                   "SELECT id, priority, position" WAITING " ORDER BY priority DESC, position",
                   &statement, err) ||
        !sql_read_rows(store, statement, &kind, SIZE_MAX, &rows, err))
        return false;
    *ret_entries = rows.records;
    *ret_count = rows.count;
    return true;
}

bool line_rank(struct store *store, const struct job_place *place, int64_t *ret_rank,
               struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT count(*)" WAITING " AND priority >= ?1"
                   " AND (priority > ?1 OR position <= ?2)",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, place->priority);
    sql_bind_int(store, statement, 2, place->position);
    return sql_read_int(store, statement, ret_rank, err);
}

static bool write_place(struct store *store, const struct line_entry *entry, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "UPDATE jobs SET priority = ?2, position = ?3 WHERE id = ?1", &statement,
                   err))
        return false;
    sql_bind_text(store, statement, 1, entry->id);
    sql_bind_int(store, statement, 2, entry->place.priority);
    sql_bind_int(store, statement, 3, entry->place.position);
    return sql_run(store, statement, err);
}

bool line_write(struct store *store, const struct line_entry *entries, size_t count,
                const char *job_id, const struct event_draft *event, struct error *err)
{
    bool ok = true;

    if (!sql_begin(store, err))
        return false;
    for (size_t i = 0; i < count && ok; i++)
        ok = write_place(store, &entries[i], err);
    return sql_finish(store, ok && events_insert(store, job_id, event, 1, err), err);
}

#include "store/events.h"

#include "daemon/base/clock.h"
#include "store/events_insert.h"
#include "store/sql.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS "row, number, job_id, created_unix_s, level, type, message, data_json"
#define NUMBER_DIGITS_MAX 18 /* fits an int64_t */
static const char id_prefix[] = "ftevent-";

const char *event_level_name(enum event_level level)
{
    static const char *const names[] = {"info", "warn", "error"};

    assert((size_t)level < COUNT_OF(names));
    return names[level];
}

bool event_type_is_known(const char *type)
{
    static const char *const types[] = {"message",    "metrics", "validation",
                                        "checkpoint", "state",   "done"};

    for (size_t i = 0; i < COUNT_OF(types); i++) {
        if (strcmp(types[i], type) == 0)
            return true;
    }
    return false;
}

void events_free(struct event_record *events, size_t count)
{
    for (size_t i = 0; events && i < count; i++) {
        free(events[i].message);
        free(events[i].data_json);
    }
    free(events);
}

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct event_record *event = ret_record;

    event->row = sqlite3_column_int64(statement, 0);
    event->number = sqlite3_column_int64(statement, 1);
    sql_copy_text(statement, 2, event->job_id, sizeof(event->job_id));
    event->created_unix_s = sqlite3_column_int64(statement, 3);
    event->level = (enum event_level)sqlite3_column_int(statement, 4); /* checked by the table */
    sql_copy_text(statement, 5, event->type, sizeof(event->type));
    if (!sql_take_text(statement, 6, &event->message, err))
        return false;
    if (!sql_take_text(statement, 7, &event->data_json, err)) {
        free(event->message);
        return false;
    }
    return true;
}

static void release_row(void *record)
{
    struct event_record *event = record;

    free(event->message);
    free(event->data_json);
}

static const struct sql_kind kind = {sizeof(struct event_record), read_row, release_row};

/* ---- writing ------------------------------------------------------------------------------------ */

static bool take_numbers(struct store *store, const char *job_id, size_t count, int64_t *ret_first,
                         struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t last = 0;

    if (!sql_start(store,
                   "UPDATE jobs SET last_event_number = last_event_number + ?2 WHERE id = ?1"
                   " RETURNING last_event_number",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    sql_bind_int(store, statement, 2, (int64_t)count);
    if (!sql_read_int(store, statement, &last, err))
        return false;
    *ret_first = last - (int64_t)count + 1;
    return last > 0 || sql_not_found("job", job_id, err);
}

bool events_insert(struct store *store, const char *job_id, const struct event_draft *events,
                   size_t count, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t first, now = clock_unix_s();

    assert(store->in_transaction);
    if (count == 0)
        return true;
    if (!take_numbers(store, job_id, count, &first, err) ||
        !sql_start(store,
                   "INSERT INTO events (job_id, number, created_unix_s, level, type, message,"
                   " data_json) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                   &statement, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct event_draft *event = &events[i];

        sql_bind_text(store, statement, 1, job_id);
        sql_bind_int(store, statement, 2, first + (int64_t)i);
        sql_bind_int(store, statement, 3, event->created_unix_s ? event->created_unix_s : now);
        sql_bind_int(store, statement, 4, event->level);
        sql_bind_text(store, statement, 5, event->type);
        sql_bind_text(store, statement, 6, event->message);
        sql_bind_text(store, statement, 7, event->data_json);
        if (!sql_run(store, statement, err))
            return false;
    }
    return true;
}

static bool keep_progress(struct store *store, const char *job_id, int64_t completed_steps,
                          int64_t trained_tokens, double last_train_loss, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE jobs SET completed_steps = CASE WHEN ?2 < 0 THEN completed_steps ELSE"
                   " ?2 END, trained_tokens = CASE WHEN ?2 < 0 THEN trained_tokens ELSE ?3 END,"
                   " last_train_loss = CASE WHEN ?2 < 0 THEN last_train_loss ELSE ?4 END"
                   " WHERE id = ?1 AND state NOT IN ('succeeded', 'failed', 'cancelled')",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    sql_bind_int(store, statement, 2, completed_steps);
    sql_bind_int(store, statement, 3, trained_tokens);
    sql_bind_double(store, statement, 4, last_train_loss);
    if (!sql_run(store, statement, err))
        return false;
    if (sql_changed_rows(store) == 0)
        return error_set(err, ERR_CONFLICT, "job '%.64s' has ended or does not exist", job_id);
    return true;
}

bool events_append(struct store *store, const char *job_id, const struct event_draft *events,
                   size_t count, int64_t completed_steps, int64_t trained_tokens,
                   double last_train_loss, struct error *err)
{
    return sql_begin(store, err) &&
           sql_finish(store,
                      keep_progress(store, job_id, completed_steps, trained_tokens, last_train_loss,
                                    err) &&
                          events_insert(store, job_id, events, count, err),
                      err);
}

/* ---- reading ------------------------------------------------------------------------------------ */

static bool parse_number(const char *text, int64_t *ret_number)
{
    int64_t number = 0;
    size_t length = strspn(text, "0123456789");

    if (length == 0 || length > NUMBER_DIGITS_MAX || text[length] != '\0')
        return false;
    for (size_t i = 0; i < length; i++)
        number = 10 * number + (text[i] - '0');
    *ret_number = number;
    return true;
}

bool events_resolve_row(const char *event_id, int64_t *ret_row, struct error *err)
{
    const size_t prefix =
        strncmp(event_id, id_prefix, strlen(id_prefix)) == 0 ? strlen(id_prefix) : 0;

    return parse_number(event_id + prefix, ret_row) ||
           error_set_param(err, ERR_INVALID, "after",
                           "'%.64s' is no event: a number or '%s' and a number is needed", event_id,
                           id_prefix);
}

bool events_resolve(struct store *store, const char *job_id, const char *event_id,
                    int64_t *ret_number, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t event_row;
    bool row = false, ok;

    if (parse_number(event_id, ret_number))
        return true;
    if (!events_resolve_row(event_id, &event_row, err))
        return false;
    /* One that was thinned away (upkeep.h) stood behind the newest before it: its number is free. */
    if (!sql_start(store,
                   "SELECT number FROM events WHERE row = ?1 AND job_id = ?2 UNION ALL"
                   " SELECT 1 + max(number) FROM events WHERE job_id = ?2 AND row < ?1"
                   " AND NOT EXISTS (SELECT 1 FROM events WHERE row = ?1) AND EXISTS"
                   " (SELECT 1 FROM events WHERE job_id = ?2 AND row > ?1) HAVING count(*) > 0",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, event_row);
    sql_bind_text(store, statement, 2, job_id);
    ok = sql_next(store, statement, &row, err);
    if (ok && row)
        *ret_number = sqlite3_column_int64(statement, 0);
    sql_end(statement);
    if (ok && !row)
        return error_set_param(err, ERR_INVALID, "after", "'%.64s' is no event of job '%.64s'",
                               event_id, job_id);
    return ok;
}

#define OF_TYPES " AND (?1 = '' OR instr(?1, ',' || type || ',') > 0)"

bool events_list(struct store *store, const struct events_filter *filter,
                 const struct store_page *page, struct event_record **ret_events, size_t *ret_count,
                 bool *ret_has_more, struct error *err)
{
    static const char newest_first[] = "SELECT " COLUMNS " FROM events WHERE job_id = ?3 AND"
                                       " number < ?2" OF_TYPES " ORDER BY number DESC";
    static const char oldest_first[] = "SELECT " COLUMNS " FROM events WHERE job_id = ?3 AND"
                                       " number > ?2" OF_TYPES " ORDER BY number";
    int64_t place = page->ascending ? INT64_MIN : INT64_MAX;
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (page->after && page->after[0] &&
        !events_resolve(store, filter->job_id, page->after, &place, err))
        return false;
    if (!sql_start(store, page->ascending ? oldest_first : newest_first, &statement, err))
        return false;
    sql_bind_text(store, statement, 1, filter->types);
    sql_bind_int(store, statement, 2, place);
    sql_bind_text(store, statement, 3, filter->job_id);
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_events = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

bool events_since(struct store *store, const char *job_id, int64_t after_number, size_t limit,
                  struct event_record **ret_events, size_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM events WHERE job_id = ?1 AND number > ?2"
                   " ORDER BY number LIMIT ?3",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    sql_bind_int(store, statement, 2, after_number);
    sql_bind_int(store, statement, 3, (int64_t)limit);
    if (!sql_read_rows(store, statement, &kind, limit, &rows, err))
        return false;
    *ret_events = rows.records;
    *ret_count = rows.count;
    return true;
}

/* ---- of all jobs ------------------------------------------------------------------------------ */

bool events_list_all(struct store *store, const char *types, const struct store_page *page,
                     struct event_record **ret_events, size_t *ret_count, bool *ret_has_more,
                     struct error *err)
{
    static const char newest_first[] =
        "SELECT " COLUMNS " FROM events WHERE row < ?2" OF_TYPES " ORDER BY row DESC";
    static const char oldest_first[] =
        "SELECT " COLUMNS " FROM events WHERE row > ?2" OF_TYPES " ORDER BY row";
    int64_t place = page->ascending ? INT64_MIN : INT64_MAX;
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (page->after && page->after[0] && !events_resolve_row(page->after, &place, err))
        return false;
    if (!sql_start(store, page->ascending ? oldest_first : newest_first, &statement, err))
        return false;
    sql_bind_text(store, statement, 1, types);
    sql_bind_int(store, statement, 2, place);
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_events = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

bool events_since_row(struct store *store, const char *types, int64_t after_row, size_t limit,
                      struct event_record **ret_events, size_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM events WHERE row > ?2" OF_TYPES
                   " ORDER BY row LIMIT ?3",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, types);
    sql_bind_int(store, statement, 2, after_row);
    sql_bind_int(store, statement, 3, (int64_t)limit);
    if (!sql_read_rows(store, statement, &kind, limit, &rows, err))
        return false;
    *ret_events = rows.records;
    *ret_count = rows.count;
    return true;
}

bool events_newest_row(struct store *store, int64_t *ret_row, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    return sql_start(store, "SELECT max(row) FROM events", &statement, err) &&
           sql_read_int(store, statement, ret_row, err); /* no rows: NULL, which reads 0 */
}

/* ---- steps -------------------------------------------------------------------------------------- */

/* One of the two kinds of rows that are one step's; NAN where it has no such number. */
static void add_numbers(sqlite3_stmt *statement, struct events_step *step)
{
    double *const numbers[] = {&step->train_loss, &step->train_accuracy, &step->full_valid_loss,
                               &step->full_valid_accuracy};

    char text[40]; /* as it was written: SQLite's own reading may be off by the last bit */

    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        sql_copy_text(statement, (int)i + 1, text, sizeof(text));
        if (text[0] != '\0' && strcmp(text, "null") != 0)
            *numbers[i] = strtod(text, NULL);
    }
}

bool events_read_steps(struct store *store, const char *job_id,
                       bool (*take)(void *context, const struct events_step *step,
                                    struct error *err),
                       void *context, struct error *err)
{
    const struct events_step none = {0, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    struct events_step step = none;
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    /* max() makes the other columns those of its row. */
    if (!sql_start(store,
                   "SELECT json_extract(data_json, '$.step') AS step,"
                   " data_json -> '$.train_loss', data_json -> '$.train_mean_token_accuracy',"
                   " data_json -> '$.full_valid_loss',"
                   " data_json -> '$.full_valid_mean_token_accuracy', max(number)"
                   " FROM events WHERE job_id = ?1 AND type IN ('metrics', 'validation')"
                   " GROUP BY step, type ORDER BY step, type DESC",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_id);
    while ((ok = sql_next(store, statement, &row, err)) && row) {
        const int64_t number = sqlite3_column_int64(statement, 0);

        if (number != step.step && step.step > 0 && !(ok = take(context, &step, err)))
            break;
        if (number != step.step)
            step = none;
        step.step = number;
        add_numbers(statement, &step);
    }
    sql_end(statement);
    return ok && (step.step == 0 || take(context, &step, err));
}

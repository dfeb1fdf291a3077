#include "store/upkeep.h"

#include "store/sql.h"

#include <assert.h>

#define STEP_NUMBERS 5000 /* events looked at in one transaction */

/* The next job, and which of its events are metrics; none: job_id "". */
static bool find_job(struct store *store, struct upkeep *upkeep, int64_t metrics_max,
                     int64_t finished_until_unix_s, int64_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store,
                   "SELECT j.id, min(e.number), max(e.number), count(e.number) FROM"
                   " (SELECT id FROM jobs WHERE result_file != '' AND finished_unix_s <= ?2"
                   " AND (metrics_max = 0 OR metrics_max > ?1) LIMIT 1) AS j LEFT JOIN events AS e"
                   " ON e.job_id = j.id AND e.type = 'metrics' GROUP BY j.id",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, metrics_max);
    sql_bind_int(store, statement, 2, finished_until_unix_s);
    ok = sql_next(store, statement, &row, err);
    *upkeep = (struct upkeep){0};
    if (ok && row) {
        sql_copy_text(statement, 0, upkeep->job_id, sizeof(upkeep->job_id));
        upkeep->first_number = upkeep->next_number = sqlite3_column_int64(statement, 1);
        upkeep->last_number = sqlite3_column_int64(statement, 2);
        *ret_count = sqlite3_column_int64(statement, 3);
    }
    sql_end(statement);
    return ok;
}

static bool mark(struct store *store, struct upkeep *upkeep, int64_t metrics_max, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "UPDATE jobs SET metrics_max = ?2 WHERE id = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, upkeep->job_id);
    sql_bind_int(store, statement, 2, metrics_max);
    if (!sql_run(store, statement, err))
        return false;
    upkeep->job_id[0] = '\0';
    return true;
}

/* The numbers are cut into as many pieces of one length as events may stay, less the last of all, which
 * stays besides: of each piece the first stays. What was deleted already changes nothing of that. */
static bool thin_step(struct store *store, struct upkeep *upkeep, int64_t metrics_max,
                      struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "DELETE FROM events WHERE job_id = ?1 AND number >= ?2 AND number < ?3"
                   " AND type = 'metrics' AND number != ?5 AND EXISTS (SELECT 1 FROM events AS"
                   " sooner WHERE sooner.job_id = ?1 AND sooner.type = 'metrics'"
                   " AND sooner.number < events.number AND sooner.number >= ?4 +"
                   " ((events.number - ?4) * ?6 / ?7 * ?7 + ?6 - 1) / ?6)",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, upkeep->job_id);
    sql_bind_int(store, statement, 2, upkeep->next_number);
    sql_bind_int(store, statement, 3, upkeep->next_number + STEP_NUMBERS);
    sql_bind_int(store, statement, 4, upkeep->first_number);
    sql_bind_int(store, statement, 5, upkeep->last_number);
    sql_bind_int(store, statement, 6, metrics_max - 1);
    sql_bind_int(store, statement, 7, upkeep->last_number - upkeep->first_number + 1);
    if (!sql_run(store, statement, err))
        return false;
    upkeep->next_number += STEP_NUMBERS;
    return true;
}

bool upkeep_thin(struct store *store, struct upkeep *upkeep, int64_t metrics_max,
                 int64_t finished_until_unix_s, bool *ret_more, struct error *err)
{
    int64_t count = 0;

    assert(metrics_max >= UPKEEP_METRICS_MIN);
    *ret_more = false;
    if (upkeep->job_id[0] == '\0') {
        if (!find_job(store, upkeep, metrics_max, finished_until_unix_s, &count, err))
            return false;
        if (upkeep->job_id[0] == '\0')
            return true;
        if (count <= metrics_max)
            upkeep->next_number = upkeep->last_number + 1; /* it has few: nothing to do */
    }
    *ret_more = true;
    return upkeep->next_number <= upkeep->last_number ? thin_step(store, upkeep, metrics_max, err)
                                                      : mark(store, upkeep, metrics_max, err);
}

bool upkeep_forget(struct store *store, int64_t before_unix_s, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "DELETE FROM gone WHERE gone_unix_s < max(?1, coalesce((SELECT gone_unix_s FROM"
                   " gone ORDER BY gone_unix_s DESC LIMIT 1 OFFSET 100000), 0))",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, before_unix_s);
    return sql_run(store, statement, err);
}

#include "store/jobs.h"

#include "daemon/base/clock.h"
#include "store/attempts.h"
#include "store/checkpoints.h"
#include "store/deliveries.h"
#include "store/events_insert.h"
#include "store/job_needs.h"
#include "store/jobs_insert.h"
#include "store/files.h"
#include "store/models.h"
#include "store/sql.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- states ------------------------------------------------------------------------------------- */

static const char *const state_names[] = {"validating_files", "queued", "running",  "paused",
                                          "succeeded",        "failed", "cancelled"};
static_assert(COUNT_OF(state_names) == JOB_STATE_COUNT, "a name for every state");

/* The one table: row from, column to. */
static const bool transitions[JOB_STATE_COUNT][JOB_STATE_COUNT] = {
    [JOB_VALIDATING_FILES] = {[JOB_QUEUED] = true, [JOB_FAILED] = true, [JOB_CANCELLED] = true},
    [JOB_QUEUED] =
        {[JOB_RUNNING] = true, [JOB_PAUSED] = true, [JOB_FAILED] = true, [JOB_CANCELLED] = true},
    [JOB_RUNNING] = {[JOB_QUEUED] = true, /* stopped, recovered, or its device failed */
                     [JOB_PAUSED] = true,
                     [JOB_SUCCEEDED] = true,
                     [JOB_FAILED] = true,
                     [JOB_CANCELLED] = true},
    [JOB_PAUSED] = {[JOB_QUEUED] = true, [JOB_CANCELLED] = true},
};

const char *job_state_name(enum job_state state)
{
    assert((size_t)state < JOB_STATE_COUNT);
    return state_names[state];
}

bool job_state_from_name(const char *name, enum job_state *ret_state)
{
    for (size_t i = 0; i < JOB_STATE_COUNT; i++) {
        if (strcmp(name, state_names[i]) == 0) {
            *ret_state = (enum job_state)i;
            return true;
        }
    }
    return false;
}

bool job_state_is_final(enum job_state state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

bool job_state_may_become(enum job_state from, enum job_state to)
{
    assert((size_t)from < JOB_STATE_COUNT && (size_t)to < JOB_STATE_COUNT);
    return transitions[from][to];
}

/* ---- records ------------------------------------------------------------------------------------ */

#define COLUMNS                                                                                    \
    "id, state, base_model, training_file, validation_file, suffix, seed, device_wanted,"          \
    " device_used, numerics, hyperparameters_json, metadata_json, plan_json, warnings_json,"       \
    " state_reason, created_unix_s, started_unix_s, finished_unix_s, total_steps,"                 \
    " completed_steps, trained_tokens, last_train_loss, fine_tuned_model, error_code,"             \
    " error_param, error_message, error_lines_json, attempt_count, fault_count, owner,"            \
    " request_sha256, idempotency_key, inputs_json, max_depth, parent_model, result_file,"         \
    " priority, position, sweep_id"

void job_record_release(struct job_record *job)
{
    if (!job)
        return;
    free(job->hyperparameters_json);
    free(job->metadata_json);
    free(job->plan_json);
    free(job->warnings_json);
    free(job->error_lines_json);
    free(job->inputs_json);
    job->hyperparameters_json = job->metadata_json = job->plan_json = NULL;
    job->warnings_json = job->error_lines_json = job->inputs_json = NULL;
}

void jobs_free(struct job_record *jobs, size_t count)
{
    for (size_t i = 0; jobs && i < count; i++)
        job_record_release(&jobs[i]);
    free(jobs);
}

static bool take_texts(sqlite3_stmt *statement, struct job_record *job, struct error *err)
{
    return sql_take_text(statement, 10, &job->hyperparameters_json, err) &&
           sql_take_text(statement, 11, &job->metadata_json, err) &&
           sql_take_text(statement, 12, &job->plan_json, err) &&
           sql_take_text(statement, 13, &job->warnings_json, err) &&
           sql_take_text(statement, 26, &job->error_lines_json, err) &&
           sql_take_text(statement, 32, &job->inputs_json, err);
}

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct job_record *job = ret_record;
    char state[32];

    *job = (struct job_record){0};
    sql_copy_text(statement, 0, job->id, sizeof(job->id));
    sql_copy_text(statement, 1, state, sizeof(state));
    if (!job_state_from_name(state, &job->state))
        return error_set(err, ERR_CORRUPT, "job '%s' has the unknown state '%s'", job->id, state);
    sql_copy_text(statement, 2, job->base_model, sizeof(job->base_model));
    sql_copy_text(statement, 3, job->training_file, sizeof(job->training_file));
    sql_copy_text(statement, 4, job->validation_file, sizeof(job->validation_file));
    sql_copy_text(statement, 5, job->suffix, sizeof(job->suffix));
    job->seed = sqlite3_column_int64(statement, 6);
    sql_copy_text(statement, 7, job->device_wanted, sizeof(job->device_wanted));
    sql_copy_text(statement, 8, job->device_used, sizeof(job->device_used));
    sql_copy_text(statement, 9, job->numerics, sizeof(job->numerics));
    sql_copy_text(statement, 14, job->state_reason, sizeof(job->state_reason));
    job->created_unix_s = sqlite3_column_int64(statement, 15);
    job->started_unix_s = sqlite3_column_int64(statement, 16);
    job->finished_unix_s = sqlite3_column_int64(statement, 17);
    job->total_steps = sqlite3_column_int64(statement, 18);
    job->completed_steps = sqlite3_column_int64(statement, 19);
    job->trained_tokens = sqlite3_column_int64(statement, 20);
    job->last_train_loss = sql_read_double(statement, 21);
    sql_copy_text(statement, 22, job->fine_tuned_model, sizeof(job->fine_tuned_model));
    sql_copy_text(statement, 23, job->error_code, sizeof(job->error_code));
    sql_copy_text(statement, 24, job->error_param, sizeof(job->error_param));
    sql_copy_text(statement, 25, job->error_message, sizeof(job->error_message));
    job->attempt_count = sqlite3_column_int64(statement, 27);
    job->fault_count = sqlite3_column_int64(statement, 28);
    sql_copy_text(statement, 29, job->owner, sizeof(job->owner));
    sql_copy_text(statement, 30, job->request_sha256, sizeof(job->request_sha256));
    sql_copy_text(statement, 31, job->idempotency_key, sizeof(job->idempotency_key));
    job->max_depth = sqlite3_column_int64(statement, 33);
    sql_copy_text(statement, 34, job->parent_model, sizeof(job->parent_model));
    sql_copy_text(statement, 35, job->result_file, sizeof(job->result_file));
    job->place.priority = sqlite3_column_int64(statement, 36);
    job->place.position = sqlite3_column_int64(statement, 37);
    sql_copy_text(statement, 38, job->sweep_id, sizeof(job->sweep_id));
    if (!take_texts(statement, job, err)) {
        job_record_release(job);
        return false;
    }
    return true;
}

static void release_row(void *record)
{
    job_record_release(record);
}

static const struct sql_kind kind = {sizeof(struct job_record), read_row, release_row};

static void bind_record(struct store *store, sqlite3_stmt *statement, const struct job_record *job)
{
    sql_bind_text(store, statement, 1, job->id);
    sql_bind_text(store, statement, 2, job_state_name(JOB_VALIDATING_FILES));
    sql_bind_text(store, statement, 3, job->base_model);
    sql_bind_text(store, statement, 4, job->training_file);
    sql_bind_text(store, statement, 5, job->validation_file);
    sql_bind_text(store, statement, 6, job->suffix);
    sql_bind_int(store, statement, 7, job->seed);
    sql_bind_text(store, statement, 8, job->device_wanted);
    sql_bind_text(store, statement, 9, job->device_used);
    sql_bind_text(store, statement, 10, job->numerics);
    sql_bind_text(store, statement, 11, job->hyperparameters_json);
    sql_bind_text(store, statement, 12, job->metadata_json);
    sql_bind_text(store, statement, 13, job->plan_json);
    sql_bind_text(store, statement, 14, job->warnings_json);
    sql_bind_text(store, statement, 15, job->state_reason);
    sql_bind_int(store, statement, 16, job->created_unix_s);
    sql_bind_int(store, statement, 17, job->started_unix_s);
    sql_bind_int(store, statement, 18, job->finished_unix_s);
    sql_bind_int(store, statement, 19, job->total_steps);
    sql_bind_int(store, statement, 20, job->completed_steps);
    sql_bind_int(store, statement, 21, job->trained_tokens);
    /* No step was made, whatever the caller's zeroes say. */
    sql_bind_double(store, statement, 22, job->completed_steps > 0 ? job->last_train_loss : NAN);
    sql_bind_text(store, statement, 23, job->fine_tuned_model);
    sql_bind_text(store, statement, 24, job->error_code);
    sql_bind_text(store, statement, 25, job->error_param);
    sql_bind_text(store, statement, 26, job->error_message);
    sql_bind_text(store, statement, 27, job->error_lines_json);
    sql_bind_int(store, statement, 28, job->attempt_count);
    sql_bind_int(store, statement, 29, job->fault_count);
    sql_bind_text(store, statement, 30, job->owner);
    sql_bind_text(store, statement, 31, job->request_sha256);
    sql_bind_text(store, statement, 32, job->idempotency_key[0] ? job->idempotency_key : NULL);
    sql_bind_text(store, statement, 33, job->inputs_json);
    sql_bind_int(store, statement, 34, job->max_depth);
    sql_bind_text(store, statement, 35, job->parent_model);
    sql_bind_text(store, statement, 36, job->result_file);
    sql_bind_int(store, statement, 37, job->place.priority);
    sql_bind_text(store, statement, 38, job->sweep_id);
}

bool jobs_insert_row(struct store *store, const struct job_record *job,
                     const struct event_draft *event, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!job_needs_check(store, job, err) ||
        !sql_start(store,
                   "INSERT INTO jobs (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
                   " ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25,"
                   " ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, NULL, ?38)",
                   &statement, err))
        return false;
    bind_record(store, statement, job);
    if (!sql_run(store, statement, err) ||
        !sql_start(store, "UPDATE jobs SET position = seq WHERE id = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job->id);
    return sql_run(store, statement, err) &&
           events_insert(store, job->id, event, event ? 1 : 0, err);
}

bool jobs_insert(struct store *store, const struct job_record *job, const struct event_draft *event,
                 struct error *err)
{
    return sql_begin(store, err) && sql_finish(store, jobs_insert_row(store, job, event, err), err);
}

bool jobs_count_unfinished(struct store *store, const char *owner, int64_t *ret_count,
                           struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT count(*) FROM jobs WHERE owner = ?1"
                   " AND state IN ('validating_files', 'queued', 'running', 'paused')",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, owner);
    return sql_read_int(store, statement, ret_count, err);
}

bool jobs_check_room(struct store *store, const char *owner, int64_t jobs_max, int64_t more_count,
                     struct error *err)
{
    int64_t count = 0;
    bool ok;

    if (jobs_max == 0)
        return true;
    ok = jobs_count_unfinished(store, owner, &count, err);
    if (ok && more_count > jobs_max - count)
        return error_set_word(err, ERR_LIMIT, "queue_limit_reached", "jobs",
                              "this key has %" PRId64 " unfinished jobs, %" PRId64
                              " more are too many: it may have %" PRId64
                              "; wait for one to end, or cancel one",
                              count, more_count, jobs_max);
    return ok;
}

bool jobs_get(struct store *store, const char *id, struct job_record *ret_job, struct error *err)
{
    static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM jobs WHERE id = ?1", "job",
                                             &kind};

    return sql_get(store, &lookup, id, ret_job, err);
}

/* The job of that key; another request under it is refused. */
static bool find_by_key(struct store *store, const struct job_record *asked,
                        char ret_id[STORE_ID_SIZE], struct error *err)
{
    char found[STORE_ID_SIZE] = "", sha256[sizeof(asked->request_sha256)] = "";
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, "SELECT id, request_sha256 FROM jobs WHERE idempotency_key = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, asked->idempotency_key);
    ok = sql_next(store, statement, &row, err);
    if (ok && row) {
        sql_copy_text(statement, 0, found, sizeof(found));
        sql_copy_text(statement, 1, sha256, sizeof(sha256));
    }
    sql_end(statement);
    if (ok && row && strcmp(sha256, asked->request_sha256) != 0)
        return error_set_word(err, ERR_INVALID, "idempotency_key_reused", "Idempotency-Key",
                              "this Idempotency-Key made job '%s' with another body: send the same "
                              "body, or another key",
                              found);
    if (ok)
        memcpy(ret_id, found, sizeof(found));
    return ok;
}

bool jobs_find_repeat(struct store *store, const struct job_record *asked, int64_t since_unix_s,
                      char ret_id[STORE_ID_SIZE], struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (asked->idempotency_key[0])
        return find_by_key(store, asked, ret_id, err);
    if (!sql_start(store,
                   "SELECT id FROM jobs WHERE request_sha256 = ?1 AND created_unix_s >= ?2"
                   " AND owner = ?3 AND state != 'cancelled' ORDER BY seq DESC LIMIT 1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, asked->request_sha256);
    sql_bind_int(store, statement, 2, since_unix_s);
    sql_bind_text(store, statement, 3, asked->owner);
    return sql_read_text(store, statement, ret_id, STORE_ID_SIZE, err);
}

/* ?3: pairs that are all there; ?4: 1 where there must be none; ?5: states; ?6: a part of what a job is
 * called, which without a suffix is its base and the end of its id. */
#define FILTER                                                                                     \
    " AND (?5 IS NULL OR instr(?5, ',' || state || ',') > 0)"                                      \
    " AND (?6 IS NULL OR instr(lower(suffix || char(10) || id || char(10) || base_model || '-'"    \
    " || substr(id, -8) || char(10) || parent_model || char(10) || fine_tuned_model), lower(?6)) " \
    "> 0)"                                                                                         \
    " AND (?4 = 0 OR metadata_json IS NULL OR metadata_json = '{}')"                               \
    " AND (?3 IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(?3) AS want WHERE NOT EXISTS"         \
    " (SELECT 1 FROM json_each(jobs.metadata_json) AS has"                                         \
    " WHERE has.key = json_extract(want.value, '$[0]')"                                            \
    " AND has.value = json_extract(want.value, '$[1]'))))"

static void bind_filter(struct store *store, sqlite3_stmt *statement,
                        const struct jobs_filter *filter)
{
    sql_bind_text(store, statement, 3, filter->metadata_json);
    sql_bind_int(store, statement, 4, filter->without_metadata);
    sql_bind_text(store, statement, 5, filter->states);
    sql_bind_text(store, statement, 6, filter->search);
}

bool jobs_count(struct store *store, const struct jobs_filter *filter, int64_t *ret_count,
                struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "SELECT count(*) FROM jobs WHERE TRUE" FILTER, &statement, err))
        return false;
    bind_filter(store, statement, filter);
    return sql_read_int(store, statement, ret_count, err);
}

bool jobs_list(struct store *store, const struct jobs_filter *filter, const struct store_page *page,
               struct job_record **ret_jobs, size_t *ret_count, bool *ret_has_more,
               struct error *err)
{
    static const struct sql_listing listing = SQL_LISTING(COLUMNS, "jobs", FILTER);
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start_page(store, &listing, page, &statement, err))
        return false;
    bind_filter(store, statement, filter);
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_jobs = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

static bool read_all(struct store *store, sqlite3_stmt *statement, size_t limit,
                     struct job_record **ret_jobs, size_t *ret_count, struct error *err)
{
    struct sql_rows rows;

    if (!sql_read_rows(store, statement, &kind, limit, &rows, err))
        return false;
    *ret_jobs = rows.records;
    *ret_count = rows.count;
    return true;
}

bool jobs_list_state(struct store *store, enum job_state state, const struct job_place *after,
                     size_t limit, struct job_record **ret_jobs, size_t *ret_count,
                     struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM jobs WHERE state = ?1 AND priority <= ?2"
                   " AND (priority < ?2 OR position > ?3)"
                   " ORDER BY priority DESC, position LIMIT ?4",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job_state_name(state));
    sql_bind_int(store, statement, 2, after->priority);
    sql_bind_int(store, statement, 3, after->position);
    sql_bind_int(store, statement, 4, (int64_t)limit);
    return read_all(store, statement, limit, ret_jobs, ret_count, err);
}

bool jobs_list_waiting(struct store *store, size_t limit, struct job_record **ret_jobs,
                       size_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM jobs WHERE state IN ('validating_files', 'queued')"
                   " ORDER BY priority DESC, position LIMIT ?1",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, (int64_t)limit);
    return read_all(store, statement, limit, ret_jobs, ret_count, err);
}

bool jobs_list_sweep(struct store *store, const char *sweep_id, struct job_record **ret_jobs,
                     size_t *ret_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT " COLUMNS " FROM jobs WHERE sweep_id = ?1 AND sweep_id != ''"
                   " ORDER BY seq",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, sweep_id);
    return read_all(store, statement, SIZE_MAX, ret_jobs, ret_count, err);
}

/* ---- changes ------------------------------------------------------------------------------------ */

#define CHANGES                                                                                    \
    " device_used = coalesce(?3, device_used), state_reason = coalesce(?4, state_reason),"         \
    " fine_tuned_model = coalesce(?5, fine_tuned_model),"                                          \
    " error_code = coalesce(?6, error_code), error_param = coalesce(?7, error_param),"             \
    " error_message = coalesce(?8, error_message),"                                                \
    " error_lines_json = coalesce(?9, error_lines_json), plan_json = coalesce(?10, plan_json),"    \
    " warnings_json = coalesce(?11, warnings_json),"                                               \
    " total_steps = CASE WHEN ?12 < 0 THEN total_steps ELSE ?12 END,"                              \
    " completed_steps = CASE WHEN ?13 < 0 THEN completed_steps ELSE ?13 END,"                      \
    " trained_tokens = CASE WHEN ?14 < 0 THEN trained_tokens ELSE ?14 END,"                        \
    " fault_count = fault_count + ?15, result_file = coalesce(?20, result_file)"

static void bind_change(struct store *store, sqlite3_stmt *statement, const char *id,
                        const struct job_change *change)
{
    sql_bind_text(store, statement, 1, id);
    sql_bind_text(store, statement, 3, change->device_used);
    sql_bind_text(store, statement, 4, change->state_reason);
    sql_bind_text(store, statement, 5, change->fine_tuned_model);
    sql_bind_text(store, statement, 6, change->error_code);
    sql_bind_text(store, statement, 7, change->error_param);
    sql_bind_text(store, statement, 8, change->error_message);
    sql_bind_text(store, statement, 9, change->error_lines_json);
    sql_bind_text(store, statement, 10, change->plan_json);
    sql_bind_text(store, statement, 11, change->warnings_json);
    sql_bind_int(store, statement, 12, change->total_steps);
    sql_bind_int(store, statement, 13, change->completed_steps);
    sql_bind_int(store, statement, 14, change->trained_tokens);
    sql_bind_int(store, statement, 15, change->device_fault);
    sql_bind_text(store, statement, 20, change->result_file ? change->result_file->id : NULL);
}

/* What comes with a change, in its transaction; then the commit. */
static bool complete(struct store *store, const char *id, const struct job_change *change,
                     const struct event_draft *events, size_t event_count, struct error *err)
{
    for (size_t i = 0; i < change->model_count; i++) {
        if (!models_insert(store, &change->models[i], err))
            goto fail;
    }
    if (change->checkpoint && !checkpoints_insert(store, change->checkpoint, err))
        goto fail;
    if (change->result_file && !files_insert(store, change->result_file, NULL, err))
        goto fail;
    if (change->death && !attempts_set_death(store, change->death, err))
        goto fail;
    if (!events_insert(store, id, events, event_count, err))
        goto fail;
    return sql_commit(store, err);
fail:
    sql_rollback(store);
    return false;
}

/* Why a conditional statement hit no row. */
static bool explain(struct store *store, const char *id, const char *wanted, struct error *err)
{
    struct job_record job = {0};

    if (!jobs_get(store, id, &job, err))
        return false;
    job_record_release(&job);
    return error_set(err, ERR_CONFLICT, "job '%.64s' is %s, not %s", id, job_state_name(job.state),
                     wanted);
}

bool jobs_move(struct store *store, const char *id, enum job_state from, enum job_state to,
               const struct job_change *change, const struct event_draft *events,
               size_t event_count, struct error *err)
{
    const struct job_change none = JOB_CHANGE_NONE;
    sqlite3_stmt *statement = NULL;

    if (!job_state_may_become(from, to))
        return error_set(err, ERR_CONFLICT, "a job that is %s cannot become %s",
                         job_state_name(from), job_state_name(to));
    if (!change)
        change = &none;
    if (!sql_begin(store, err))
        return false;
    if (!sql_start(store,
                   "UPDATE jobs SET state = ?2, started_unix_s = CASE WHEN ?16 AND started_unix_s"
                   " = 0 THEN max(?18, created_unix_s) ELSE started_unix_s END,"
                   " finished_unix_s = CASE WHEN ?17 THEN max(?18, created_unix_s, started_unix_s)"
                   " ELSE finished_unix_s END, attempt_count = attempt_count + ?16," CHANGES
                   " WHERE id = ?1 AND state = ?19",
                   &statement, err))
        goto fail;
    bind_change(store, statement, id, change);
    sql_bind_text(store, statement, 2, job_state_name(to));
    sql_bind_int(store, statement, 16, to == JOB_RUNNING);
    sql_bind_int(store, statement, 17, job_state_is_final(to));
    sql_bind_int(store, statement, 18, clock_unix_s());
    sql_bind_text(store, statement, 19, job_state_name(from));
    if (!sql_run(store, statement, err))
        goto fail;
    if (sql_changed_rows(store) == 0) {
        explain(store, id, job_state_name(from), err);
        goto fail;
    }
    if (!change->death && (from == JOB_VALIDATING_FILES || from == JOB_RUNNING) &&
        !attempts_clear(store, id, err))
        goto fail;
    if (job_state_is_final(to) && !deliveries_insert(store, id, job_state_name(to), err))
        goto fail;
    return complete(store, id, change, events, event_count, err);
fail:
    sql_rollback(store);
    return false;
}

bool jobs_update(struct store *store, const char *id, const struct job_change *change,
                 const struct event_draft *events, size_t event_count, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_begin(store, err))
        return false;
    if (!sql_start(store,
                   "UPDATE jobs SET" CHANGES
                   " WHERE id = ?1 AND state NOT IN ('succeeded', 'failed', 'cancelled')",
                   &statement, err))
        goto fail;
    bind_change(store, statement, id, change);
    if (!sql_run(store, statement, err))
        goto fail;
    if (sql_changed_rows(store) == 0) {
        explain(store, id, "unfinished", err);
        goto fail;
    }
    return complete(store, id, change, events, event_count, err);
fail:
    sql_rollback(store);
    return false;
}

#include "store/retention.h"

#include "store/sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define UNFINISHED "('validating_files', 'queued', 'running', 'paused')"
/* A job that reads the file f, or did after ?1. */
#define READS_FILE                                                                                 \
    "EXISTS (SELECT 1 FROM jobs WHERE (training_file = f.id OR validation_file = f.id"             \
    " OR instr(inputs_json, f.id) > 0) AND (state IN " UNFINISHED " OR finished_unix_s > ?1))"
/* The same of the model m, which a job goes on from. */
#define STARTS_FROM                                                                                \
    "EXISTS (SELECT 1 FROM jobs WHERE parent_model = m.id AND parent_model != ''"                  \
    " AND (state IN " UNFINISHED " OR finished_unix_s > ?1))"
#define EPOCHS "artifact LIKE 'checkpoints/%'"
#define MODEL "SELECT m.id, m.artifact, m.job_id, m.step FROM models AS m WHERE "
#define LATER INT64_MAX /* in the place of ?1: how long ago makes no difference */

/* Each finds at most one; ?1 is a date, ?2 a number. */
static const char old_upload[] = "SELECT f.id, '', '', 0 FROM files AS f WHERE f.purpose = "
                                 "'fine-tune' AND f.created_unix_s <= ?1"
                                 " AND NOT " READS_FILE " ORDER BY f.created_unix_s, f.seq LIMIT 1";
static const char upload_too_many[] =
    "SELECT f.id, '', '', 0 FROM files AS f WHERE f.purpose = 'fine-tune' AND NOT " READS_FILE
    " AND (SELECT sum(size_bytes) FROM files WHERE purpose = 'fine-tune') > ?2"
    " ORDER BY f.created_unix_s, f.seq LIMIT 1";
static const char old_model[] =
    MODEL "m.created_unix_s <= ?1 AND NOT " STARTS_FROM " ORDER BY m.created_unix_s, m.seq LIMIT 1";
static const char model_too_many[] =
    MODEL "NOT " STARTS_FROM " AND (SELECT sum(size_bytes) FROM"
          " (SELECT DISTINCT artifact, size_bytes FROM models)) > ?2"
          " ORDER BY m.created_unix_s, m.seq LIMIT 1";
static const char epoch_too_many[] =
    MODEL "m." EPOCHS " AND NOT " STARTS_FROM
          " AND (SELECT count(*) FROM models AS n WHERE n.job_id = m.job_id AND n.step > m.step AND"
          " n." EPOCHS ") >= ?2"
          " AND m.seq != coalesce((SELECT b.seq FROM models AS b WHERE b.job_id = m.job_id AND"
          " b.step > 0 AND b.valid_loss IS NOT NULL ORDER BY b.valid_loss, b.step DESC LIMIT 1), 0)"
          " ORDER BY m.seq LIMIT 1";

struct rule {
    const char *text;
    bool is_model;
    int64_t until_unix_s, number;
    const char *reason, *unit; /* with the limit between them */
    int64_t limit;
};

static bool find(struct store *store, const struct rule *rule, struct retention_victim *victim,
                 bool *ret_found, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store, rule->text, &statement, err))
        return false;
    sql_bind_int(store, statement, 1, rule->until_unix_s);
    if (sqlite3_bind_parameter_count(statement) > 1)
        sql_bind_int(store, statement, 2, rule->number);
    ok = sql_next(store, statement, &row, err);
    if (ok && row) {
        *victim = (struct retention_victim){.is_model = rule->is_model};
        sql_copy_text(statement, 0, victim->id, sizeof(victim->id));
        sql_copy_text(statement, 1, victim->artifact, sizeof(victim->artifact));
        sql_copy_text(statement, 2, victim->job_id, sizeof(victim->job_id));
        victim->step = sqlite3_column_int64(statement, 3);
        (void)snprintf(victim->reason, sizeof(victim->reason), "%s %" PRId64 " %s", rule->reason,
                       rule->limit, rule->unit);
    }
    sql_end(statement);
    *ret_found = ok && row;
    return ok;
}

static bool run_with_id(struct store *store, const char *text, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, text, &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err);
}

static bool remember(struct store *store, const struct retention_victim *victim, int64_t now_unix_s,
                     struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(
            store,
            "INSERT OR REPLACE INTO removed (id, reason, removed_unix_s) VALUES (?1, ?2, ?3)",
            &statement, err))
        return false;
    sql_bind_text(store, statement, 1, victim->id);
    sql_bind_text(store, statement, 2, victim->reason);
    sql_bind_int(store, statement, 3, now_unix_s);
    if (!sql_run(store, statement, err) ||
        !sql_start(store, "DELETE FROM removed WHERE seq <= (SELECT max(seq) FROM removed) - ?1",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, RETENTION_REMEMBERED);
    return sql_run(store, statement, err);
}

static bool take(struct store *store, const struct rule *rule, int64_t now_unix_s,
                 struct retention_victim *victim, bool *ret_found, struct error *err)
{
    if (!sql_begin(store, err))
        return false;
    if (!find(store, rule, victim, ret_found, err))
        goto fail;
    if (*ret_found && (!run_with_id(store,
                                    rule->is_model ? "DELETE FROM models WHERE id = ?1"
                                                   : "DELETE FROM files WHERE id = ?1",
                                    victim->id, err) ||
                       !remember(store, victim, now_unix_s, err)))
        goto fail;
    return sql_commit(store, err);
fail:
    sql_rollback(store);
    return false;
}

bool retention_take(struct store *store, const struct retention_limits *limits, int64_t now_unix_s,
                    struct retention_victim *ret_victim, bool *ret_found, struct error *err)
{
    const struct rule rules[] = {
        {epoch_too_many, true, LATER, limits->checkpoints_per_job,
         "of a job's epoch checkpoints are kept the newest", "and the best",
         limits->checkpoints_per_job},
        {old_upload, false, now_unix_s - limits->upload_age_s, 0, "uploads are kept for",
         "s after their last use", limits->upload_age_s},
        {upload_too_many, false, LATER, limits->upload_bytes, "uploads together may take", "bytes",
         limits->upload_bytes},
        {old_model, true, now_unix_s - limits->model_age_s, 0, "models are kept for",
         "s after their last use", limits->model_age_s},
        {model_too_many, true, LATER, limits->model_bytes, "models together may take", "bytes",
         limits->model_bytes},
    };

    *ret_found = false;
    for (size_t i = 0; i < COUNT_OF(rules) && !*ret_found; i++) {
        if (rules[i].limit > 0 && !take(store, &rules[i], now_unix_s, ret_victim, ret_found, err))
            return false;
    }
    return true;
}

void retention_explain(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    char reason[160], date[32];
    struct tm when;
    bool row = false;
    time_t removed;

    if (!sql_start(store, "SELECT reason, removed_unix_s FROM removed WHERE id = ?1", &statement,
                   NULL))
        return;
    sql_bind_text(store, statement, 1, id);
    if (sql_next(store, statement, &row, NULL) && row) {
        sql_copy_text(statement, 0, reason, sizeof(reason));
        removed = (time_t)sqlite3_column_int64(statement, 1);
        (void)gmtime_r(&removed, &when);                                 /* a date of ours */
        (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &when); /* always fits */
        error_set_word(err, ERR_NOT_FOUND, "gone", err->param, "'%.128s' was removed at %s: %s", id,
                       date, reason);
    }
    sql_end(statement);
}

#include "store/models.h"

#include "store/sql.h"

#define COLUMNS                                                                                    \
    "id, base_model, job_id, artifact, size_bytes, created_unix_s, sha256, device, numerics, "     \
    "step, valid_loss, owner, parent_model"
#define MODELS_MAX 100000 /* answered at once: the call has no pages */

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct model_record *model = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, model->id, sizeof(model->id));
    sql_copy_text(statement, 1, model->base_model, sizeof(model->base_model));
    sql_copy_text(statement, 2, model->job_id, sizeof(model->job_id));
    sql_copy_text(statement, 3, model->artifact, sizeof(model->artifact));
    model->size_bytes = sqlite3_column_int64(statement, 4);
    model->created_unix_s = sqlite3_column_int64(statement, 5);
    sql_copy_text(statement, 6, model->sha256, sizeof(model->sha256));
    sql_copy_text(statement, 7, model->device, sizeof(model->device));
    sql_copy_text(statement, 8, model->numerics, sizeof(model->numerics));
    model->step = sqlite3_column_int64(statement, 9);
    model->valid_loss = sql_read_double(statement, 10);
    sql_copy_text(statement, 11, model->owner, sizeof(model->owner));
    sql_copy_text(statement, 12, model->parent_model, sizeof(model->parent_model));
    return true;
}

static const struct sql_kind kind = {sizeof(struct model_record), read_row, NULL};

bool models_insert(struct store *store, const struct model_record *model, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    /* A resumed job writes the checkpoint of an epoch again: the same model, the newer file. */
    if (!sql_start(store,
                   "INSERT INTO models (" COLUMNS ")"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
                   " ON CONFLICT (id) DO UPDATE SET artifact = ?4, size_bytes = ?5, sha256 = ?7,"
                   " device = ?8, numerics = ?9, step = ?10, valid_loss = ?11 WHERE job_id = ?3",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, model->id);
    sql_bind_text(store, statement, 2, model->base_model);
    sql_bind_text(store, statement, 3, model->job_id);
    sql_bind_text(store, statement, 4, model->artifact);
    sql_bind_int(store, statement, 5, model->size_bytes);
    sql_bind_int(store, statement, 6, model->created_unix_s);
    sql_bind_text(store, statement, 7, model->sha256);
    sql_bind_text(store, statement, 8, model->device);
    sql_bind_text(store, statement, 9, model->numerics);
    sql_bind_int(store, statement, 10, model->step);
    sql_bind_double(store, statement, 11, model->valid_loss);
    sql_bind_text(store, statement, 12, model->owner);
    sql_bind_text(store, statement, 13, model->parent_model);
    if (!sql_run(store, statement, err))
        return false;
    if (sql_changed_rows(store) == 0)
        return error_set(err, ERR_CONFLICT, "model '%.128s' is another job's", model->id);
    return true;
}

bool models_get(struct store *store, const char *id, struct model_record *ret_model,
                struct error *err)
{
    static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM models WHERE id = ?1",
                                             "model", &kind};

    return sql_get(store, &lookup, id, ret_model, err);
}

bool models_list(struct store *store, struct model_record **ret_models, size_t *ret_count,
                 struct error *err)
{
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store, "SELECT " COLUMNS " FROM models ORDER BY created_unix_s DESC, seq DESC",
                   &statement, err) ||
        !sql_read_rows(store, statement, &kind, MODELS_MAX, &rows, err))
        return false;
    *ret_models = rows.records;
    *ret_count = rows.count;
    return true;
}

/* The unfinished job that goes on from it, "" none. */
static bool find_user(struct store *store, const char *id, char ret_job[STORE_ID_SIZE],
                      struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "SELECT id FROM jobs WHERE parent_model = ?1 AND parent_model != '' AND state IN"
                   " ('validating_files', 'queued', 'running', 'paused') LIMIT 1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_read_text(store, statement, ret_job, STORE_ID_SIZE, err);
}

/* Inside a transaction. */
static bool delete_row(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    char job[STORE_ID_SIZE];

    if (!find_user(store, id, job, err))
        return false;
    if (job[0])
        return error_set_word(err, ERR_CONFLICT, "model_in_use", "model",
                              "model '%.128s' is needed by job '%s', which goes on from it: wait "
                              "for its end or cancel it",
                              id, job);
    return sql_start(store, "DELETE FROM models WHERE id = ?1", &statement, err) &&
           sql_run_on(store, statement, "model", id, err);
}

bool models_delete(struct store *store, const char *id, struct error *err)
{
    return sql_begin(store, err) && sql_finish(store, delete_row(store, id, err), err);
}

bool models_has_artifact(struct store *store, const char *artifact, bool *ret_used,
                         struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "SELECT 1 FROM models WHERE artifact = ?1 LIMIT 1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, artifact);
    return sql_read_any(store, statement, ret_used, err);
}

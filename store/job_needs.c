#include "store/job_needs.h"

#include "store/models.h"
#include "store/sql.h"

#include <string.h>

/* A model is not deleted while a job goes on from it, and a job not made after it is deleted. */
static bool check_parent(struct store *store, const struct job_record *job, struct error *err)
{
    struct model_record parent;
    struct error own = {0};

    if (!job->parent_model[0] || models_get(store, job->parent_model, &parent, &own))
        return true;
    if (own.code == ERR_NOT_FOUND)
        return error_set_param(err, ERR_NOT_FOUND, "model", "there is no model '%.200s' any more",
                               job->parent_model);
    if (err)
        *err = own;
    return false;
}

/* Neither are its files, and both sides look inside their transaction. */
static bool check_files(struct store *store, const struct job_record *job, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    char missing[STORE_ID_SIZE] = "";
    bool row = false, ok;

    if (!sql_start(store,
                   "SELECT wanted FROM (SELECT ?1 AS wanted UNION ALL SELECT ?2 UNION ALL"
                   " SELECT atom FROM json_tree(nullif(?3, '')) WHERE type = 'text')"
                   " WHERE wanted != '' AND wanted NOT IN (SELECT id FROM files) LIMIT 1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, job->training_file);
    sql_bind_text(store, statement, 2, job->validation_file);
    sql_bind_text(store, statement, 3, job->inputs_json ? job->inputs_json : "");
    ok = sql_next(store, statement, &row, err);
    if (ok && row)
        sql_copy_text(statement, 0, missing, sizeof(missing));
    sql_end(statement);
    if (ok && row)
        return error_set_param(err, ERR_INVALID,
                               strcmp(missing, job->validation_file) == 0 ? "validation_file"
                                                                          : "training_file",
                               "there is no file '%.64s' any more", missing);
    return ok;
}

bool job_needs_check(struct store *store, const struct job_record *job, struct error *err)
{
    return check_parent(store, job, err) && check_files(store, job, err);
}

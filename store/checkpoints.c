#include "store/checkpoints.h"

#include "store/sql.h"

#define COLUMNS                                                                                    \
    "id, job_id, model_id, created_unix_s, step, train_loss, train_accuracy, valid_loss, "         \
    "valid_accuracy"

#define AVAILABLE ", EXISTS (SELECT 1 FROM models WHERE models.id = model_id)"

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct checkpoint_record *checkpoint = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, checkpoint->id, sizeof(checkpoint->id));
    sql_copy_text(statement, 1, checkpoint->job_id, sizeof(checkpoint->job_id));
    sql_copy_text(statement, 2, checkpoint->model_id, sizeof(checkpoint->model_id));
    checkpoint->created_unix_s = sqlite3_column_int64(statement, 3);
    checkpoint->step = sqlite3_column_int64(statement, 4);
    checkpoint->train_loss = sql_read_double(statement, 5);
    checkpoint->train_accuracy = sql_read_double(statement, 6);
    checkpoint->valid_loss = sql_read_double(statement, 7);
    checkpoint->valid_accuracy = sql_read_double(statement, 8);
    checkpoint->available = sqlite3_column_int(statement, 9) != 0;
    return true;
}

static const struct sql_kind kind = {sizeof(struct checkpoint_record), read_row, NULL};

bool checkpoints_insert(struct store *store, const struct checkpoint_record *checkpoint,
                        struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO checkpoints (" COLUMNS ")"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
                   " ON CONFLICT (job_id, step) DO UPDATE SET model_id = ?3, train_loss = ?6,"
                   " train_accuracy = ?7, valid_loss = ?8, valid_accuracy = ?9",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, checkpoint->id);
    sql_bind_text(store, statement, 2, checkpoint->job_id);
    sql_bind_text(store, statement, 3, checkpoint->model_id);
    sql_bind_int(store, statement, 4, checkpoint->created_unix_s);
    sql_bind_int(store, statement, 5, checkpoint->step);
    sql_bind_double(store, statement, 6, checkpoint->train_loss);
    sql_bind_double(store, statement, 7, checkpoint->train_accuracy);
    sql_bind_double(store, statement, 8, checkpoint->valid_loss);
    sql_bind_double(store, statement, 9, checkpoint->valid_accuracy);
    return sql_run(store, statement, err);
}

bool checkpoints_get_model(struct store *store, const char *id, char ret_model_id[STORE_NAME_SIZE],
                           struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "SELECT model_id FROM checkpoints WHERE id = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_read_text(store, statement, ret_model_id, STORE_NAME_SIZE, err) &&
           (ret_model_id[0] || sql_not_found("checkpoint", id, err));
}

bool checkpoints_list(struct store *store, const char *job_id, const struct store_page *page,
                      struct checkpoint_record **ret_checkpoints, size_t *ret_count,
                      bool *ret_has_more, struct error *err)
{
    static const struct sql_listing listing =
        SQL_LISTING(COLUMNS AVAILABLE, "checkpoints", " AND job_id = ?3");
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start_page(store, &listing, page, &statement, err))
        return false;
    sql_bind_text(store, statement, 3, job_id);
    if (!sql_read_rows(store, statement, &kind, page->limit, &rows, err))
        return false;
    *ret_checkpoints = rows.records;
    *ret_count = rows.count;
    *ret_has_more = rows.has_more;
    return true;
}

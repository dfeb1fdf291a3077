#include "store/owners.h"

#include "store/sql.h"

#include <assert.h>

static const char *const questions[] = {
    [OWNED_FILE] = "SELECT owner FROM files WHERE id = ?1",
    [OWNED_UPLOAD] = "SELECT owner FROM reservations WHERE id = ?1",
    [OWNED_JOB] = "SELECT owner FROM jobs WHERE id = ?1",
    [OWNED_SWEEP] = "SELECT owner FROM sweeps WHERE id = ?1",
    [OWNED_MODEL] = "SELECT owner FROM models WHERE id = ?1",
    [OWNED_WEBHOOK] = "SELECT owner FROM webhooks WHERE id = ?1",
};

bool owners_find(struct store *store, enum owned kind, const char *id, bool *ret_found,
                 char ret_owner[STORE_ID_SIZE], struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool ok;

    assert((size_t)kind < COUNT_OF(questions));
    if (!sql_start(store, questions[kind], &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    ok = sql_next(store, statement, ret_found, err);
    if (ok && *ret_found)
        sql_copy_text(statement, 0, ret_owner, STORE_ID_SIZE);
    sql_end(statement);
    return ok;
}

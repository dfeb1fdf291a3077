#include "store/sql.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum error_code code_of(int sqlite_code)
{
    if (sqlite_code == SQLITE_IOERR_NOMEM)
        return ERR_NO_MEMORY;
    switch (sqlite_code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
        return ERR_NO_MEMORY;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERR_UNAVAILABLE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return ERR_CORRUPT;
    case SQLITE_CONSTRAINT:
        return ERR_CONFLICT;
    case SQLITE_TOOBIG:
        return ERR_LIMIT;
    case SQLITE_ERROR:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_SCHEMA:
        return ERR_INTERNAL;
    }
    return ERR_IO;
}

/* The system's reason. Rolling back may have written over the connection's; that of the log's last failure
 * stays with the log's file. */
static int system_number(const struct store *store, int code)
{
    const int number = sqlite3_system_errno(store->db);
    sqlite3_file *log = NULL;
    int kept = 0;

    if ((code & 0xff) == SQLITE_FULL)
        return ENOSPC;
    if ((code & 0xff) != SQLITE_IOERR || error_disk_word(number)[0])
        return number;
    if (!store->db ||
        sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) != SQLITE_OK ||
        !log || !log->pMethods)
        return number;
    (void)log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &kept); /* 0: it knows none */
    return kept != 0 ? kept : number;
}

/* Whose fault a failed write is: a used-up quota, too, is an input/output error to SQLite. */
static const char *disk_word(int number, int code)
{
    const char *word = error_disk_word(number);

    if (code == SQLITE_IOERR_NOMEM)
        return "";
    switch (code & 0xff) {
    case SQLITE_FULL:
        return ERROR_DISK_FULL;
    case SQLITE_CANTOPEN:
        return word;
    case SQLITE_IOERR: /* rolling back may have lost the system's reason */
        return word[0] ? word : ERROR_DISK_FAULT;
    case SQLITE_READONLY:
        return ERROR_DISK_FAULT;
    }
    return "";
}

/* A file of the database's could not be opened for that alone. */
static bool is_open_files(int number, int code)
{
    return ((code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_IOERR) &&
           error_number_is_open_files(number);
}

bool sql_fail(struct store *store, int code, const char *doing, struct error *err)
{
    /* Without memory there is no handle at all. */
    const char *path = store->db ? sqlite3_db_filename(store->db, "main") : NULL;
    const int number = system_number(store, code);
    const char *word = disk_word(number, code);
    const bool full = strcmp(word, ERROR_DISK_FULL) == 0;

    if (is_open_files(number, code))
        return error_set_word(err, ERR_UNAVAILABLE, ERROR_OPEN_FILES, "", "%s in database '%s': %s",
                              doing, path ? path : "", strerrordesc_np(number));

    return error_set_word(err, full ? ERR_NO_MEMORY : code_of(code), word, "",
                          "%s in database '%s': %s%s%s", doing, path ? path : "",
                          full ? error_disk_limit(number) : "", full ? ": " : "",
                          sqlite3_errmsg(store->db));
}

static const char rollback[] = "ROLLBACK";

bool sql_get_ready(struct store *store, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    return sql_start(store, rollback, &statement, err);
}

/* SQLite may have done it by itself (disk full). Made ready at the opening, it needs no memory; should it fail
 * all the same, the next statement does it: none works in what another one left. */
static void roll_back(struct store *store)
{
    for (size_t i = 0; i < store->statement_count && !sqlite3_get_autocommit(store->db); i++) {
        if (store->statements[i].text == rollback) {
            (void)sqlite3_step(store->statements[i].statement);
            (void)sqlite3_reset(store->statements[i].statement);
        }
    }
}

bool sql_start(struct store *store, const char *text, sqlite3_stmt **ret_statement,
               struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int code;

    if (!store->in_transaction)
        roll_back(store);
    for (size_t i = 0; i < store->statement_count; i++) {
        if (store->statements[i].text == text) {
            assert(!sqlite3_stmt_busy(store->statements[i].statement));
            *ret_statement = store->statements[i].statement;
            return true;
        }
    }
    assert(store->statement_count < SQL_STATEMENT_MAX);
    code = sqlite3_prepare_v3(store->db, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
    if (code != SQLITE_OK)
        return sql_fail(store, code, "prepare a statement", err);
    store->statements[store->statement_count].text = text;
    store->statements[store->statement_count].statement = statement;
    store->statement_count++;
    *ret_statement = statement;
    return true;
}

static void keep_failure(struct store *store, int code)
{
    assert(code != SQLITE_RANGE && code != SQLITE_MISUSE);
    if (store->bind_failure == SQLITE_OK)
        store->bind_failure = code;
}

void sql_bind_text(struct store *store, sqlite3_stmt *statement, int index, const char *text)
{
    keep_failure(store, sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC));
}

void sql_bind_int(struct store *store, sqlite3_stmt *statement, int index, int64_t number)
{
    keep_failure(store, sqlite3_bind_int64(statement, index, number));
}

void sql_bind_double(struct store *store, sqlite3_stmt *statement, int index, double number)
{
    keep_failure(store, isnan(number) ? sqlite3_bind_null(statement, index)
                                      : sqlite3_bind_double(statement, index, number));
}

bool sql_next(struct store *store, sqlite3_stmt *statement, bool *ret_row, struct error *err)
{
    int code = store->bind_failure;

    store->bind_failure = SQLITE_OK;
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return sql_fail(store, code, "read or write", err);
    *ret_row = code == SQLITE_ROW;
    return true;
}

void sql_end(sqlite3_stmt *statement)
{
    if (!statement)
        return;
    (void)sqlite3_reset(statement); /* repeats the failure sql_next has told already */
    (void)sqlite3_clear_bindings(statement);
}

bool sql_run(struct store *store, sqlite3_stmt *statement, struct error *err)
{
    bool row = false;
    bool ok = sql_next(store, statement, &row, err);

    assert(!row);
    sql_end(statement);
    return ok;
}

int64_t sql_changed_rows(const struct store *store)
{
    return sqlite3_changes64(store->db);
}

/* ---- columns ---------------------------------------------------------------------------------- */

void sql_copy_text(sqlite3_stmt *statement, int column, char *ret_text, size_t capacity)
{
    const unsigned char *text = sqlite3_column_text(statement, column);

    (void)snprintf(ret_text, capacity, "%s", text ? (const char *)text : "");
}

bool sql_take_text(sqlite3_stmt *statement, int column, char **ret_text, struct error *err)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    char *copy;

    if (!text) {
        if (sqlite3_column_type(statement, column) != SQLITE_NULL)
            return error_set(err, ERR_NO_MEMORY, "no memory for a text of the database");
        *ret_text = NULL;
        return true;
    }
    copy = strdup((const char *)text);
    if (!copy)
        return error_set(err, ERR_NO_MEMORY, "no memory for a text of the database");
    *ret_text = copy;
    return true;
}

double sql_read_double(sqlite3_stmt *statement, int column)
{
    if (sqlite3_column_type(statement, column) == SQLITE_NULL)
        return NAN;
    return sqlite3_column_double(statement, column);
}

/* ---- transactions ----------------------------------------------------------------------------- */

bool sql_begin(struct store *store, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    assert(!store->in_transaction);
    if (!sql_start(store, "BEGIN IMMEDIATE", &statement, err) || !sql_run(store, statement, err))
        return false;
    store->in_transaction = true;
    return true;
}

bool sql_commit(struct store *store, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    assert(store->in_transaction);
    if (!sql_start(store, "COMMIT", &statement, err) || !sql_run(store, statement, err)) {
        sql_rollback(store);
        return false;
    }
    store->in_transaction = false;
    return true;
}

void sql_rollback(struct store *store)
{
    if (!store->in_transaction)
        return;
    store->in_transaction = false;
    roll_back(store);
}

bool sql_finish(struct store *store, bool ok, struct error *err)
{
    if (ok)
        return sql_commit(store, err);
    sql_rollback(store);
    return false;
}

/* ---- one row ---------------------------------------------------------------------------------- */

/* What is left of it; then it is ended. */
static bool run_out(struct store *store, sqlite3_stmt *statement, bool ok, bool row,
                    struct error *err)
{
    while (ok && row)
        ok = sql_next(store, statement, &row, err);
    sql_end(statement);
    return ok;
}

bool sql_read_record(struct store *store, sqlite3_stmt *statement, const struct sql_kind *kind,
                     void *ret_record, bool *ret_found, struct error *err)
{
    bool row = false, have = false;
    bool ok = sql_next(store, statement, &row, err);

    if (ok && row)
        ok = have = kind->read_row(statement, ret_record, err);
    ok = run_out(store, statement, ok, row, err);
    if (!ok && have && kind->release)
        kind->release(ret_record);
    if (ok)
        *ret_found = have;
    return ok;
}

bool sql_read_int(struct store *store, sqlite3_stmt *statement, int64_t *ret_number,
                  struct error *err)
{
    bool row = false;
    bool ok = sql_next(store, statement, &row, err);
    const int64_t number = ok && row ? sqlite3_column_int64(statement, 0) : 0;

    ok = run_out(store, statement, ok, row, err);
    if (ok)
        *ret_number = number;
    return ok;
}

bool sql_read_text(struct store *store, sqlite3_stmt *statement, char *ret_text, size_t capacity,
                   struct error *err)
{
    bool row = false;
    bool ok = sql_next(store, statement, &row, err);

    ret_text[0] = '\0';
    if (ok && row)
        sql_copy_text(statement, 0, ret_text, capacity);
    return run_out(store, statement, ok, row, err);
}

bool sql_read_any(struct store *store, sqlite3_stmt *statement, bool *ret_any, struct error *err)
{
    bool row = false;
    bool ok = sql_next(store, statement, &row, err);
    const bool any = row;

    ok = run_out(store, statement, ok, row, err);
    if (ok)
        *ret_any = any;
    return ok;
}

bool sql_not_found(const char *what, const char *id, struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "no %s '%.128s'", what, id);
}

bool sql_get(struct store *store, const struct sql_lookup *lookup, const char *id, void *ret_record,
             struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool found = false;

    if (!sql_start(store, lookup->text, &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_read_record(store, statement, lookup->kind, ret_record, &found, err) &&
           (found || sql_not_found(lookup->what, id, err));
}

bool sql_run_on(struct store *store, sqlite3_stmt *statement, const char *what, const char *id,
                struct error *err)
{
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err) &&
           (sql_changed_rows(store) > 0 || sql_not_found(what, id, err));
}

/* ---- pages ------------------------------------------------------------------------------------ */

struct place {
    int64_t created_unix_s, seq;
};

static bool find_place(struct store *store, const char *lookup, const struct store_page *page,
                       struct place *ret_place, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false;

    if (!page->after || page->after[0] == '\0') {
        int64_t end = page->ascending ? INT64_MIN : INT64_MAX;

        *ret_place = (struct place){end, end};
        return true;
    }
    if (!sql_start(store, lookup, &statement, err))
        return false;
    sql_bind_text(store, statement, 1, page->after);
    if (!sql_next(store, statement, &row, err)) {
        sql_end(statement);
        return false;
    }
    if (row)
        *ret_place =
            (struct place){sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1)};
    sql_end(statement);
    if (!row)
        return error_set_param(err, ERR_INVALID, "after", "'%.64s' is not in this list",
                               page->after);
    return true;
}

bool sql_start_page(struct store *store, const struct sql_listing *listing,
                    const struct store_page *page, sqlite3_stmt **ret_statement, struct error *err)
{
    const char *text = page->ascending ? listing->oldest_first : listing->newest_first;
    struct place place;

    if (!find_place(store, listing->place, page, &place, err) ||
        !sql_start(store, text, ret_statement, err))
        return false;
    sql_bind_int(store, *ret_statement, 1, place.created_unix_s);
    sql_bind_int(store, *ret_statement, 2, place.seq);
    return true;
}

bool sql_read_rows(struct store *store, sqlite3_stmt *statement, const struct sql_kind *kind,
                   size_t limit, struct sql_rows *ret_rows, struct error *err)
{
    size_t size = kind->record_size, count = 0, capacity = 0;
    char *records = NULL;
    bool row = false;

    for (;;) {
        if (!sql_next(store, statement, &row, err))
            goto fail;
        if (!row || count == limit)
            break;
        if (count == capacity) {
            size_t wanted = capacity ? 2 * capacity : 16;
            char *grown = realloc(records, wanted * size);

            if (!grown) {
                error_set(err, ERR_NO_MEMORY, "no memory for %zu records", wanted);
                goto fail;
            }
            records = grown;
            capacity = wanted;
        }
        memset(records + count * size, 0, size);
        if (!kind->read_row(statement, records + count * size, err))
            goto fail;
        count++;
    }
    sql_end(statement);
    *ret_rows = (struct sql_rows){.records = records, .count = count, .has_more = row};
    return true;
fail:
    sql_end(statement);
    for (size_t i = 0; kind->release && i < count; i++)
        kind->release(records + i * size);
    free(records);
    return false;
}

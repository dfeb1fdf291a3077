/*
 * sql: prepared statements and transactions of one store.
 *
 * Purpose    What the table files share: statements prepared once and reset after each use, bound
 *            and read with the house's types, SQLite's codes turned into errors.
 * Ownership  A statement belongs to its store; sql_end (or sql_run) gives it back. Bound texts are
 *            borrowed until then.
 * Threads    The store's.
 * Failure    A failed bind is kept and comes out of the next sql_next or sql_run.
 */
#ifndef NEEDLED_STORE_SQL_H
#define NEEDLED_STORE_SQL_H

#include "store/store.h"

#include <sqlite3.h>

#define SQL_STATEMENT_MAX 160 /* static texts in the room; asserted */

struct store {
    sqlite3 *db;
    struct {
        const char *text; /* static: compared by address */
        sqlite3_stmt *statement;
    } statements[SQL_STATEMENT_MAX];
    size_t statement_count;
    uint64_t busy_count;      /* waits for a lock */
    int64_t busy_deadline_ns; /* of the wait that goes on */
    int bind_failure;         /* SQLITE_OK, or the first one since the last sql_next */
    bool in_transaction;
    int log_wanted_pages; /* of the log, before it is to be cut again; see wal.c */
    int wait_max_ms;      /* for a lock; 0: as usual */
    char note[320];       /* of its opening, */
    bool lost_log;        /* and whether it had lost its log by then */
};

/* Fills err from the connection's last failure; returns false. */
bool sql_fail(struct store *store, int code, const char *doing, struct error *err);

/* text must be a string literal. */
MUST_CHECK bool sql_start(struct store *store, const char *text, sqlite3_stmt **ret_statement,
                          struct error *err);
void sql_bind_text(struct store *store, sqlite3_stmt *statement, int index, const char *text);
void sql_bind_int(struct store *store, sqlite3_stmt *statement, int index, int64_t number);
void sql_bind_double(struct store *store, sqlite3_stmt *statement, int index, double number);
/* One row further; *ret_row false after the last. */
MUST_CHECK bool sql_next(struct store *store, sqlite3_stmt *statement, bool *ret_row,
                         struct error *err);
void sql_end(sqlite3_stmt *statement); /* NULL is fine */
/* A statement without rows: runs it to its end, also ends it on failure. */
MUST_CHECK bool sql_run(struct store *store, sqlite3_stmt *statement, struct error *err);
int64_t sql_changed_rows(const struct store *store); /* of the last write */

void sql_copy_text(sqlite3_stmt *statement, int column, char *ret_text, size_t capacity);
/* A copy for the caller to free(); NULL for an SQL NULL. */
MUST_CHECK bool sql_take_text(sqlite3_stmt *statement, int column, char **ret_text,
                              struct error *err);
double sql_read_double(sqlite3_stmt *statement, int column); /* NAN for an SQL NULL */

/* For a new connection: makes ready what must need no memory later. */
MUST_CHECK bool sql_get_ready(struct store *store, struct error *err);
/* BEGIN IMMEDIATE: the write lock is taken before the first read. */
MUST_CHECK bool sql_begin(struct store *store, struct error *err);
MUST_CHECK bool sql_commit(struct store *store, struct error *err); /* rolls back on failure */
void sql_rollback(struct store *store);
/* The end of a transaction whose work went so: a commit or a rollback. True: all is well. */
MUST_CHECK bool sql_finish(struct store *store, bool ok, struct error *err);

/* A kind of record, as the rows of its table give it. */
struct sql_kind {
    size_t record_size;
    bool (*read_row)(sqlite3_stmt *statement, void *ret_record, struct error *err);
    void (*release)(void *record); /* NULL: plain values */
};

/* For a statement of one row at most. Each runs it to its end, which is when a write counts, and ends
 * it: the row as a record (*ret_found false: there is none); its first column, 0 or "" where there is no
 * row; whether there is one. */
MUST_CHECK bool sql_read_record(struct store *store, sqlite3_stmt *statement,
                                const struct sql_kind *kind, void *ret_record, bool *ret_found,
                                struct error *err);
MUST_CHECK bool sql_read_int(struct store *store, sqlite3_stmt *statement, int64_t *ret_number,
                             struct error *err);
MUST_CHECK bool sql_read_text(struct store *store, sqlite3_stmt *statement, char *ret_text,
                              size_t capacity, struct error *err);
MUST_CHECK bool sql_read_any(struct store *store, sqlite3_stmt *statement, bool *ret_any,
                             struct error *err);

/* The record with that id (?1); ERR_NOT_FOUND says "no <what> '<id>'". */
struct sql_lookup {
    const char *text, *what;
    const struct sql_kind *kind;
};
MUST_CHECK bool sql_get(struct store *store, const struct sql_lookup *lookup, const char *id,
                        void *ret_record, struct error *err);
bool sql_not_found(const char *what, const char *id, struct error *err); /* false */
/* A statement that changes the row with that id, ?1 of it: none is ERR_NOT_FOUND. */
MUST_CHECK bool sql_run_on(struct store *store, sqlite3_stmt *statement, const char *what,
                           const char *id, struct error *err);

/* A listing in the order (created_unix_s, seq): where the record with id ?1 stands in it, or stood until
 * it was deleted (upkeep.h), and the rows past a place (?1, ?2) either way. filter: "" or " AND ...",
 * with parameters from ?3 on. */
struct sql_listing {
    const char *place, *newest_first, *oldest_first;
};
#define SQL_LISTING(columns, table, filter)                                                        \
    {                                                                                              \
        "SELECT created_unix_s, seq, 0 AS late FROM " table " WHERE id = ?1 UNION ALL"             \
        " SELECT created_unix_s, seq, 1 FROM gone WHERE list = '" table "' AND id = ?1"            \
        " ORDER BY late LIMIT 1",                                                                  \
            "SELECT " columns " FROM " table " WHERE (created_unix_s, seq) < (?1, ?2)" filter      \
            " ORDER BY created_unix_s DESC, seq DESC",                                             \
            "SELECT " columns " FROM " table " WHERE (created_unix_s, seq) > (?1, ?2)" filter      \
            " ORDER BY created_unix_s, seq",                                                       \
    }
/* Starts the statement of a page: past the record `page->after`, or from the end the list comes from. */
MUST_CHECK bool sql_start_page(struct store *store, const struct sql_listing *listing,
                               const struct store_page *page, sqlite3_stmt **ret_statement,
                               struct error *err);

/* Reads rows into a grown array, at most limit; a further row sets has_more. */
struct sql_rows {
    void *records; /* NULL when there are none; for the caller to free() */
    size_t count;
    bool has_more;
};
MUST_CHECK bool sql_read_rows(struct store *store, sqlite3_stmt *statement,
                              const struct sql_kind *kind, size_t limit, struct sql_rows *ret_rows,
                              struct error *err);

#endif

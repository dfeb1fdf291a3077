#include "store/reservations.h"

#include "daemon/base/clock.h"
#include "store/sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS                                                                                    \
    "id, owner, filename, size_bytes, created_unix_s, expires_unix_s, lifetime_s, state, file_id"

static bool read_row(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    struct reservation_record *reservation = ret_record;

    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, reservation->id, sizeof(reservation->id));
    sql_copy_text(statement, 1, reservation->owner, sizeof(reservation->owner));
    sql_copy_text(statement, 2, reservation->filename, sizeof(reservation->filename));
    reservation->size_bytes = sqlite3_column_int64(statement, 3);
    reservation->created_unix_s = sqlite3_column_int64(statement, 4);
    reservation->expires_unix_s = sqlite3_column_int64(statement, 5);
    reservation->lifetime_s = sqlite3_column_int64(statement, 6);
    sql_copy_text(statement, 7, reservation->state, sizeof(reservation->state));
    sql_copy_text(statement, 8, reservation->file_id, sizeof(reservation->file_id));
    return true;
}

static bool check_count(struct store *store, const struct reservation_record *reservation,
                        int64_t count_max, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int64_t count = 0;

    if (!sql_start(store,
                   "SELECT count(*) FROM reservations WHERE owner = ?1 AND state != 'completed'"
                   " AND expires_unix_s > ?2",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, reservation->owner);
    sql_bind_int(store, statement, 2, reservation->created_unix_s);
    if (!sql_read_int(store, statement, &count, err))
        return false;
    return count < count_max ||
           error_set_word(err, ERR_LIMIT, "quota_exceeded", "",
                          "%" PRId64 " uploads are reserved and not completed, more are not "
                          "taken: complete them or wait until they end",
                          count);
}

static bool insert(struct store *store, const struct reservation_record *reservation,
                   struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(
            store,
            "INSERT INTO reservations (id, owner, filename, size_bytes, created_unix_s,"
            " expires_unix_s, lifetime_s, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'open')",
            &statement, err))
        return false;
    sql_bind_text(store, statement, 1, reservation->id);
    sql_bind_text(store, statement, 2, reservation->owner);
    sql_bind_text(store, statement, 3, reservation->filename);
    sql_bind_int(store, statement, 4, reservation->size_bytes);
    sql_bind_int(store, statement, 5, reservation->created_unix_s);
    sql_bind_int(store, statement, 6, reservation->expires_unix_s);
    sql_bind_int(store, statement, 7, reservation->lifetime_s);
    return sql_run(store, statement, err);
}

bool reservations_insert(struct store *store, const struct reservation_record *reservation,
                         int64_t count_max, int64_t bytes_max, struct error *err)
{
    return sql_begin(store, err) &&
           sql_finish(store,
                      check_count(store, reservation, count_max, err) &&
                          files_check_room(store, reservation->owner, bytes_max,
                                           reservation->size_bytes, err) &&
                          insert(store, reservation, err),
                      err);
}

bool reservations_get(struct store *store, const char *id,
                      struct reservation_record *ret_reservation, struct error *err)
{
    static const struct sql_kind kind = {sizeof(struct reservation_record), read_row, NULL};
    static const struct sql_lookup lookup = {"SELECT " COLUMNS " FROM reservations WHERE id = ?1",
                                             "upload", &kind};

    return sql_get(store, &lookup, id, ret_reservation, err) &&
           (ret_reservation->expires_unix_s > clock_unix_s() ||
            error_set(err, ERR_NOT_FOUND,
                      "upload '%.64s' has expired: reserve a new one and send the bytes again",
                      id));
}

static bool refuse_state(const struct reservation_record *reservation, struct error *err)
{
    if (strcmp(reservation->state, "open") == 0)
        return error_set_word(err, ERR_CONFLICT, "invalid_upload", "",
                              "nothing was uploaded for '%s' yet: PUT %" PRId64
                              " bytes to its url first",
                              reservation->id, reservation->size_bytes);
    if (strcmp(reservation->state, "stored") == 0)
        return error_set_word(err, ERR_CONFLICT, "invalid_upload", "",
                              "the bytes of '%s' were uploaded before: complete it",
                              reservation->id);
    return error_set_word(err, ERR_CONFLICT, "invalid_upload", "",
                          "upload '%s' was completed before: it is file '%s'", reservation->id,
                          reservation->file_id);
}

/* In a transaction: the reservation in that state. */
static bool expect_state(struct store *store, const char *id, const char *state,
                         struct reservation_record *ret_reservation, struct error *err)
{
    return reservations_get(store, id, ret_reservation, err) &&
           (strcmp(ret_reservation->state, state) == 0 || refuse_state(ret_reservation, err));
}

static bool set_stored(struct store *store, const char *id, const struct file_record *file,
                       const char *report_json, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "UPDATE reservations SET state = 'stored', file_id = ?2, sha256 = ?3,"
                   " line_count = ?4, example_count = ?5, report_json = ?6 WHERE id = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    sql_bind_text(store, statement, 2, file->id);
    sql_bind_text(store, statement, 3, file->sha256);
    sql_bind_int(store, statement, 4, file->line_count);
    sql_bind_int(store, statement, 5, file->example_count);
    sql_bind_text(store, statement, 6, report_json);
    return sql_run(store, statement, err);
}

bool reservations_set_stored(struct store *store, const char *id, const struct file_record *file,
                             const char *report_json, struct error *err)
{
    struct reservation_record reservation;

    return sql_begin(store, err) && sql_finish(store,
                                               expect_state(store, id, "open", &reservation, err) &&
                                                   set_stored(store, id, file, report_json, err),
                                               err);
}

/* The file's record is the reservation's, in one statement each. */
static bool make_file(struct store *store, const char *id, int64_t now_unix_s, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store,
                   "INSERT INTO files (id, filename, purpose, size_bytes, created_unix_s, sha256,"
                   " line_count, example_count, report_json, owner, expires_unix_s)"
                   " SELECT file_id, filename, 'fine-tune', size_bytes, ?2, sha256, line_count,"
                   " example_count, report_json, owner,"
                   " CASE WHEN lifetime_s > 0 THEN ?2 + lifetime_s ELSE 0 END"
                   " FROM reservations WHERE id = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    sql_bind_int(store, statement, 2, now_unix_s);
    if (!sql_run(store, statement, err) ||
        !sql_start(store,
                   "UPDATE reservations SET state = 'completed', report_json = NULL WHERE id = ?1",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err);
}

bool reservations_complete(struct store *store, const char *id, struct file_record *ret_file,
                           struct error *err)
{
    struct reservation_record reservation;

    return sql_begin(store, err) &&
           sql_finish(store,
                      expect_state(store, id, "stored", &reservation, err) &&
                          make_file(store, id, clock_unix_s(), err) &&
                          files_get(store, reservation.file_id, ret_file, err),
                      err);
}

static bool delete_row(struct store *store, const char *id, struct error *err)
{
    sqlite3_stmt *statement = NULL;

    if (!sql_start(store, "DELETE FROM reservations WHERE id = ?1", &statement, err))
        return false;
    sql_bind_text(store, statement, 1, id);
    return sql_run(store, statement, err);
}

bool reservations_delete(struct store *store, const char *id,
                         struct reservation_record *ret_reservation, struct error *err)
{
    return sql_begin(store, err) &&
           sql_finish(store,
                      reservations_get(store, id, ret_reservation, err) &&
                          (strcmp(ret_reservation->state, "completed") != 0 ||
                           refuse_state(ret_reservation, err)) &&
                          delete_row(store, id, err),
                      err);
}

static bool read_left_over(sqlite3_stmt *statement, void *ret_record, struct error *err)
{
    (void)err; /* nothing here can fail */
    sql_copy_text(statement, 0, ret_record, STORE_ID_SIZE);
    return true;
}

bool reservations_sweep(struct store *store, size_t limit, char (**ret_file_ids)[STORE_ID_SIZE],
                        size_t *ret_count, struct error *err)
{
    static const struct sql_kind kind = {STORE_ID_SIZE, read_left_over, NULL};
    sqlite3_stmt *statement = NULL;
    struct sql_rows rows;

    if (!sql_start(store,
                   "DELETE FROM reservations WHERE seq IN (SELECT seq FROM reservations"
                   " WHERE expires_unix_s <= ?1 LIMIT ?2)"
                   " RETURNING CASE WHEN state = 'stored' THEN file_id ELSE '' END",
                   &statement, err))
        return false;
    sql_bind_int(store, statement, 1, clock_unix_s());
    sql_bind_int(store, statement, 2, (int64_t)limit);
    if (!sql_read_rows(store, statement, &kind, limit + 1, &rows, err))
        return false;
    *ret_file_ids = rows.records;
    *ret_count = rows.count;
    return true;
}

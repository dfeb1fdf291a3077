/*
 * reservations: uploads in three calls, between the first and the last.
 *
 * Purpose    open: announced, a link was given. stored: its bytes lie in uploads/ under the id of the
 *            file to be. completed: that file is there; the row stays until its end, so that a second
 *            call is told so.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    ERR_NOT_FOUND for one that is not there or over; ERR_CONFLICT with the word
 *            invalid_upload in the wrong state; ERR_LIMIT with the word quota_exceeded.
 */
#ifndef NEEDLED_STORE_RESERVATIONS_H
#define NEEDLED_STORE_RESERVATIONS_H

#include "store/files.h"

struct reservation_record {
    char id[STORE_ID_SIZE]; /* upload-... */
    char owner[STORE_ID_SIZE];
    char filename[STORE_NAME_SIZE]; /* a label */
    int64_t size_bytes;             /* announced */
    int64_t created_unix_s, expires_unix_s;
    int64_t lifetime_s;          /* of the file, from its creation; 0: for ever */
    char state[16];              /* "open", "stored", "completed" */
    char file_id[STORE_ID_SIZE]; /* "" while open */
};

/* Open. At most count_max of an owner at once; bytes_max as files_insert_within. */
MUST_CHECK bool reservations_insert(struct store *store,
                                    const struct reservation_record *reservation, int64_t count_max,
                                    int64_t bytes_max, struct error *err);
/* One that is not over. */
MUST_CHECK bool reservations_get(struct store *store, const char *id,
                                 struct reservation_record *ret_reservation, struct error *err);
/* open -> stored. Of the file: id, sha256 and counts. */
MUST_CHECK bool reservations_set_stored(struct store *store, const char *id,
                                        const struct file_record *file, const char *report_json,
                                        struct error *err);
/* stored -> completed, together with the file's record. */
MUST_CHECK bool reservations_complete(struct store *store, const char *id,
                                      struct file_record *ret_file, struct error *err);
/* Removes one that was not completed. *ret_reservation: what it was, for its bytes. */
MUST_CHECK bool reservations_delete(struct store *store, const char *id,
                                    struct reservation_record *ret_reservation, struct error *err);
/* Removes those that are over, at most limit. *ret_file_ids: the bytes nobody will need, an array of
 * STORE_ID_SIZE each for the caller to free(). */
MUST_CHECK bool reservations_sweep(struct store *store, size_t limit,
                                   char (**ret_file_ids)[STORE_ID_SIZE], size_t *ret_count,
                                   struct error *err);

#endif

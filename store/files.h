/*
 * files: uploaded and produced files.
 *
 * Purpose    Records of what lies in uploads/ (named by id) and of result files.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    ERR_NOT_FOUND names the id; deleting a file that an unfinished job needs is
 *            ERR_CONFLICT.
 */
#ifndef NEEDLED_STORE_FILES_H
#define NEEDLED_STORE_FILES_H

#include "store/store.h"

struct file_record {
    char id[STORE_ID_SIZE];         /* file-... */
    char filename[STORE_NAME_SIZE]; /* a label: no folder part */
    char purpose[32];               /* fine-tune, fine-tune-results */
    int64_t size_bytes, created_unix_s;
    char sha256[65];
    int64_t line_count, example_count;
    char owner[STORE_ID_SIZE]; /* a key's id; "" the operator */
    int64_t expires_unix_s;    /* 0: never */
};

MUST_CHECK bool files_insert(struct store *store, const struct file_record *file,
                             const char *report_json, struct error *err);
/* The same if what the owner has stored and reserved stays within bytes_max (0: no limit); else
 * ERR_LIMIT with the word quota_exceeded. */
MUST_CHECK bool files_insert_within(struct store *store, const struct file_record *file,
                                    const char *report_json, int64_t bytes_max, struct error *err);
/* That check alone, inside the caller's transaction. */
MUST_CHECK bool files_check_room(struct store *store, const char *owner, int64_t bytes_max,
                                 int64_t more_bytes, struct error *err);
/* What the owner has stored and reserved. */
MUST_CHECK bool files_stored_bytes(struct store *store, const char *owner, int64_t *ret_bytes,
                                   struct error *err);
MUST_CHECK bool files_get(struct store *store, const char *id, struct file_record *ret_file,
                          struct error *err);
/* Whether bytes under that id are a file's, or those of a reservation that is not completed. */
MUST_CHECK bool files_know(struct store *store, const char *id, bool *ret_known, struct error *err);
/* The upload's report as JSON, for the caller to free(). */
MUST_CHECK bool files_get_report(struct store *store, const char *id, char **ret_json,
                                 struct error *err);
/* What a list is of; NULL: all. search is a part of the name, letters of ASCII in either case. */
struct files_filter {
    const char *purpose, *search;
};
/* *ret_files is an array for the caller to free(). */
MUST_CHECK bool files_list(struct store *store, const struct files_filter *filter,
                           const struct store_page *page, struct file_record **ret_files,
                           size_t *ret_count, bool *ret_has_more, struct error *err);
MUST_CHECK bool files_delete(struct store *store, const char *id, struct error *err);
/* Removes one file that has expired and that no unfinished job needs; false in *ret_found: there is
 * none. Its bytes are the caller's to remove. */
MUST_CHECK bool files_sweep(struct store *store, char ret_id[STORE_ID_SIZE], bool *ret_found,
                            struct error *err);

#endif

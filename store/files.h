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
};

MUST_CHECK bool files_insert(struct store *store, const struct file_record *file,
                             const char *report_json, struct error *err);
MUST_CHECK bool files_get(struct store *store, const char *id, struct file_record *ret_file,
                          struct error *err);
/* The upload's report as JSON, for the caller to free(). */
MUST_CHECK bool files_get_report(struct store *store, const char *id, char **ret_json,
                                 struct error *err);
/* purpose NULL: all. *ret_files is an array for the caller to free(). */
MUST_CHECK bool files_list(struct store *store, const char *purpose, const struct store_page *page,
                           struct file_record **ret_files, size_t *ret_count, bool *ret_has_more,
                           struct error *err);
MUST_CHECK bool files_delete(struct store *store, const char *id, struct error *err);

#endif

/*
 * datasets: uploads on their way to disk, read as the trainer reads.
 *
 * Purpose    A file is streamed under a temporary name, hashed, its lines parsed as they pass
 *            (daemon/train/dataset.h, the trainer's own code); what no rule set accepts is refused
 *            and leaves nothing. The rest becomes a file record with its report.
 * Ownership  upload_open / upload_finish or upload_abort.
 * Threads    One upload, one thread at a time; different uploads in parallel.
 * Failure    ERR_INVALID with the first bad lines; upload_finish gives them as objects too. Disk
 *            full is ERR_NO_MEMORY; past the size limit ERR_LIMIT.
 */
#ifndef NEEDLED_DATASETS_H
#define NEEDLED_DATASETS_H

#include "daemon/base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct dataset_report;
struct file_record;
struct json;
struct reservation_record;
struct store;
struct upload;

MUST_CHECK bool upload_open(const char *state_folder, const char *filename, const char *purpose,
                            struct upload **ret_upload, struct error *err);
/* A large upload may have one of a few threads to parse it; *helpers counts them, starts at 0 and
 * outlives the uploads it is given to. NULL (as at first): none. */
void upload_set_helpers(struct upload *upload, atomic_int *helpers);
MUST_CHECK bool upload_append(struct upload *upload, const void *bytes, size_t size,
                              struct error *err);
/* Whose the file is, and until when. */
struct upload_terms {
    const char *owner;  /* a key's id; "" the operator */
    int64_t bytes_max;  /* what that one may store; 0: no limit */
    int64_t lifetime_s; /* 0: for ever */
};
/* Whole on disk, checked, committed. Frees the upload in every case. On refusal *ret_lines (may be
 * NULL) gets the array of {file, line, column, field, rule, reason} for the answer, for the caller. */
MUST_CHECK bool upload_finish(struct upload *upload, struct store *store,
                              const struct upload_terms *terms, struct file_record *ret_file,
                              struct json **ret_lines, struct error *err);
/* The same as the bytes of a reservation, which becomes a file when it is completed. */
MUST_CHECK bool upload_finish_reserved(struct upload *upload, struct store *store,
                                       const char *reservation_id,
                                       struct reservation_record *ret_reservation,
                                       struct json **ret_lines, struct error *err);
void upload_abort(struct upload *upload); /* leaves nothing; NULL is fine */

/* Before the first upload and the first job: removes what a killed daemon had not finished to write, and
 * whole files that neither a file nor a reservation names. */
MUST_CHECK bool datasets_recover(const char *state_folder, struct store *store, struct error *err);
/* Removes files and reservations that are over, rows and bytes. */
MUST_CHECK bool datasets_sweep(const char *state_folder, struct store *store, struct error *err);

/* {file, line, column, field, rule, reason} of a report's findings, for a job's error and an answer.
 * files are the names they were uploaded under: one for each that was read. */
struct json *report_lines_json(const struct dataset_report *report, const char *const *files,
                               bool upload);
/* Puts that name, cut where it is long, in front of what was found in the file. */
void report_name_file(const char *file, struct error *err);

/* Path of a stored upload by its id; refuses ids that are not plain letters, digits, - and _. */
MUST_CHECK bool dataset_path(char *ret_path, size_t capacity, const char *state_folder,
                             const char *file_id, struct error *err);
/* The same for a model's adapter file by its record's artifact: "<job>.safetensors" lies in artifacts/,
 * "checkpoints/<job>/<name>" where it says. */
MUST_CHECK bool artifact_path(char *ret_path, size_t capacity, const char *state_folder,
                              const char *artifact, struct error *err);

#endif

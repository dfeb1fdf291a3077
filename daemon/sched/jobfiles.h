/*
 * jobfiles: where the files of a job lie.
 *
 * Purpose    Turns a job record into what the trainer takes: paths and resolved hyper-parameters.
 * Ownership  A plain value; train_job borrows from it and from the record.
 * Threads    Any.
 * Failure    A base or file that is gone is named, with param.
 */
#ifndef NEEDLED_JOBFILES_H
#define NEEDLED_JOBFILES_H

#include "daemon/base/limits.h"
#include "daemon/train/trainer.h"
#include "store/jobs.h"

#define JOBFILES_PATH_BYTES LIMIT_PATH_BYTES

struct scheduler_options;

enum jobfiles_kind { JOBFILES_TRAINING, JOBFILES_VALIDATION, JOBFILES_TEST, JOBFILES_KIND_COUNT };

struct jobfiles_list {
    char ids[LIMIT_JOB_FILES][STORE_ID_SIZE];
    size_t count;
};
/* The ids of a job's files of a kind, in their order. */
MUST_CHECK bool jobfiles_list_ids(const struct job_record *job, enum jobfiles_kind kind,
                                  struct jobfiles_list *ret_list, struct error *err);
/* The field of the create that names them: "training_file" or, in the other shape, "training_files". */
const char *jobfiles_param(const struct job_record *job, enum jobfiles_kind kind);

struct jobfiles { /* large: not for a stack */
    char base[JOBFILES_PATH_BYTES], start[JOBFILES_PATH_BYTES];
    char data[JOBFILES_KIND_COUNT][LIMIT_JOB_FILES][JOBFILES_PATH_BYTES];
    const char *paths[JOBFILES_KIND_COUNT][LIMIT_JOB_FILES];
    char digests[JOBFILES_KIND_COUNT][LIMIT_JOB_FILES][SHA256_HEX_SIZE],
        start_digest[SHA256_HEX_SIZE];
    const char *sha256s[JOBFILES_KIND_COUNT][LIMIT_JOB_FILES]; /* as their records have them */
    char checkpoints[JOBFILES_PATH_BYTES], adapter[JOBFILES_PATH_BYTES];
    struct train_job job;
    struct train_files test;
};

/* The checkpoint folder is made where missing. store: to look up the model that it goes on from. */
MUST_CHECK bool jobfiles_find(const struct scheduler_options *options, struct store *store,
                              const struct job_record *job, struct jobfiles *ret_files,
                              struct error *err);
/* What a job's checkpoint folder holds; 0 where there is none. */
uint64_t jobfiles_held_bytes(const char *state_folder, const char *job_id);
/* Where its checkpoints lie. */
MUST_CHECK bool jobfiles_find_checkpoints(const char *state_folder, const char *job_id,
                                          char *ret_path, size_t capacity, struct error *err);
/* Removes a file nobody needs; one that stays costs space and is logged. */
void jobfiles_remove(const char *path);
/* Removes the resume checkpoints of a job that has ended, and its folder if nothing else is in it. */
void jobfiles_remove_resume(const char *state_folder, const char *job_id);

/* "ft:<base>:local:<suffix>:<8 characters>": the same whenever the job is run. */
void jobfiles_model_name(const struct job_record *job, char *ret_name, size_t capacity);

#endif

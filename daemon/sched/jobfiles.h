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

struct jobfiles {
    char base[JOBFILES_PATH_BYTES], training[JOBFILES_PATH_BYTES], validation[JOBFILES_PATH_BYTES];
    char checkpoints[JOBFILES_PATH_BYTES], adapter[JOBFILES_PATH_BYTES];
    struct train_job job;
};

/* The checkpoint folder is made where missing. */
MUST_CHECK bool jobfiles_find(const struct scheduler_options *options, const struct job_record *job,
                              struct jobfiles *ret_files, struct error *err);
/* Removes a file nobody needs; one that stays costs space and is logged. */
void jobfiles_remove(const char *path);
/* Removes the resume checkpoints of a job that has ended, and its folder if nothing else is in it. */
void jobfiles_remove_resume(const char *state_folder, const char *job_id);

/* "ft:<base>:local:<suffix>:<8 characters>": the same whenever the job is run. */
void jobfiles_model_name(const struct job_record *job, char *ret_name, size_t capacity);

#endif

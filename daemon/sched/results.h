/*
 * results: the steps of a job that has succeeded, as a file.
 *
 * Purpose    Writes CSV, one row a step, empty where nothing was computed, from the job's events: of a step
 *            that was made twice the later. The columns are those of the OpenAI API's file, then the names
 *            that Azure's has besides; valid_loss and its accuracy, of a batch at each step, stay empty.
 *            A job that fails or is cancelled has none: its events say the same.
 * Ownership  The file is its record's, once that is kept; results_remove takes one back that was not.
 * Threads    The worker's.
 * Failure    As file.h and store.h; nothing is left.
 */
#ifndef NEEDLED_RESULTS_H
#define NEEDLED_RESULTS_H

#include "store/files.h"
#include "store/jobs.h"

#define RESULTS_HEADER                                                                             \
    "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy,"                         \
    "train_mean_token_accuracy,validation_mean_token_accuracy,full_valid_loss,"                    \
    "full_valid_mean_token_accuracy\n"

/* The id follows from the job's, so that a second try leaves no second file. */
MUST_CHECK bool results_write(const char *state_folder, struct store *store,
                              const struct job_record *job, struct file_record *ret_file,
                              struct error *err);
void results_remove(const char *state_folder, const struct file_record *file);

#endif

/*
 * inputs: the checked data of a job: what it trains on and what it holds out.
 *
 * Purpose    The one way from a job's files to its examples, for validating and for training:
 *            checks the hyper-parameters, the base and both files, and draws the split.
 * Ownership  inputs_read fills the caller's storage, inputs_release takes it back.
 * Threads    One object, one thread.
 * Failure    err->param names the field of the job: "training_file", "validation_file", "model" or
 *            a hyper-parameter.
 */
#ifndef NEEDLED_INPUTS_H
#define NEEDLED_INPUTS_H

#include "daemon/train/shuffle.h"
#include "daemon/train/trainer.h"

#define INPUTS_IDENTITY_SIZE 1024

struct inputs {
    struct model_info info;
    struct dataset *training, *validation; /* validation NULL: split off */
    const struct example **train, **held;
    size_t train_count, held_count;
    size_t train_target_count;   /* of one epoch */
    size_t longest_rows;         /* of any line, see packing.h */
    struct shuffle shuffle;      /* draws the first epoch's order */
    const char *validation_note; /* NULL, or why nothing is validated */
    char base_path[LIMIT_PATH_BYTES], tokenizer_path[LIMIT_PATH_BYTES];
};

/* The reports are filled also when the files are refused. */
MUST_CHECK bool inputs_read(const struct train_job *job, struct inputs *ret_inputs,
                            struct dataset_report *ret_training,
                            struct dataset_report *ret_validation, struct error *err);
void inputs_release(struct inputs *inputs); /* zeroed is fine */

/* As train_check_files. */
MUST_CHECK bool inputs_check_files(const struct train_job *job, const struct train_files *files,
                                   struct dataset_report *ret_report, struct error *err);

/* A text equal for equal jobs alone: digests of the files and the hyper-parameters. */
MUST_CHECK bool inputs_identity(const struct inputs *inputs, const struct train_job *job,
                                char ret_identity[INPUTS_IDENTITY_SIZE], struct error *err);

#endif

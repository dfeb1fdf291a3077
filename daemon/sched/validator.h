/*
 * validator: the thread that reads data sets.
 *
 * Purpose    Takes jobs in validating_files, oldest first, reads their files with the trainer's own
 *            code, and hands the verdict to the scheduler's thread. Between two jobs it answers a
 *            question (asks.h).
 * Ownership  validator_start; the thread ends by itself once the mailbox's news are stopped.
 * Threads    One; it has its own store and touches no backend.
 * Failure    A verdict that cannot be kept (disk full) is made again after a while.
 */
#ifndef NEEDLED_VALIDATOR_H
#define NEEDLED_VALIDATOR_H

#include "daemon/sched/asks.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/train/trainer.h"

#include <pthread.h>

struct job_record;
struct json;
struct mailbox;
struct pulse;
struct scheduler_options;
struct validator;

/* What reading a job's files gave. */
struct validated {
    struct dataset_report reports[JOBFILES_KIND_COUNT];
    struct train_memory memory;
};
/* The plan kept with a job whose files are accepted: what placement.h goes by, and what is told. */
struct json *validator_plan(const struct scheduler_options *options, const struct job_record *job,
                            const struct hyperparameters *hyper, const struct validated *found);
/* A fault gets the name of the file it is about in front, and the field of the create as its param; the
 * lines as JSON, or NULL for none. */
struct json *validator_explain(struct store *store, const struct job_record *job,
                               const struct validated *found, struct error *fault);

MUST_CHECK bool validator_start(const struct scheduler_options *options, struct mailbox *mailbox,
                                struct validator **ret_validator, struct error *err);
/* Waits for the answer; see asks_put. */
MUST_CHECK bool validator_ask(struct validator *validator, asks_function *function, void *arguments,
                              const atomic_bool *stop, struct error *err);
const struct pulse *validator_pulse(const struct validator *validator); /* its thread's */
pthread_t validator_thread(const struct validator *validator);
void validator_free(struct validator *validator); /* after its thread was joined; NULL is fine */

#endif

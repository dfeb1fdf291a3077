/*
 * validator: the thread that reads the data sets of new jobs.
 *
 * Purpose    Takes jobs in validating_files, oldest first, reads their files with the trainer's own
 *            code, and hands the verdict to the scheduler's thread.
 * Ownership  validator_start; the thread ends by itself once the mailbox's news are stopped.
 * Threads    One; it has its own store and touches no backend.
 * Failure    A verdict that cannot be kept (disk full) is made again after a while.
 */
#ifndef NEEDLED_VALIDATOR_H
#define NEEDLED_VALIDATOR_H

#include "daemon/base/error.h"

#include <pthread.h>

struct mailbox;
struct scheduler_options;
struct validator;

MUST_CHECK bool validator_start(const struct scheduler_options *options, struct mailbox *mailbox,
                                struct validator **ret_validator, struct error *err);
pthread_t validator_thread(const struct validator *validator);
void validator_free(struct validator *validator); /* after its thread was joined; NULL is fine */

#endif

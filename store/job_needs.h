/*
 * job_needs: that what a new job names is still there.
 *
 * Purpose    Files and models are deleted by others while a job is made. Both sides look inside their
 *            transaction, so that one of them is refused.
 * Ownership  None.
 * Threads    As store.h.
 * Failure    ERR_INVALID, ERR_NOT_FOUND with param = the request's field.
 */
#ifndef NEEDLED_STORE_JOB_NEEDS_H
#define NEEDLED_STORE_JOB_NEEDS_H

#include "store/jobs.h"

MUST_CHECK bool job_needs_check(struct store *store, const struct job_record *job,
                                struct error *err);

#endif

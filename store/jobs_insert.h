/*
 * jobs_insert: a job as a part of a larger transaction, for the room's own files.
 *
 * Purpose    The jobs of a sweep are made all or none: sweeps.c opens the transaction, this adds a row
 *            with its place in the line and its first event.
 * Ownership  None.
 * Threads    The store's.
 * Failure    As jobs_insert. The caller rolls back.
 */
#ifndef NEEDLED_STORE_JOBS_INSERT_H
#define NEEDLED_STORE_JOBS_INSERT_H

#include "store/jobs.h"

MUST_CHECK bool jobs_insert_row(struct store *store, const struct job_record *job,
                                const struct event_draft *event, struct error *err);

#endif

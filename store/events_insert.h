/*
 * events_insert: events as a part of a larger transaction, for the room's own files.
 *
 * Purpose    A state change and its events are one transaction: jobs.c opens it, this adds the rows
 *            with the job's next numbers.
 * Ownership  None.
 * Threads    The store's.
 * Failure    The caller rolls back.
 */
#ifndef NEEDLED_STORE_EVENTS_INSERT_H
#define NEEDLED_STORE_EVENTS_INSERT_H

#include "store/events.h"

MUST_CHECK bool events_insert(struct store *store, const char *job_id,
                              const struct event_draft *events, size_t count, struct error *err);

#endif

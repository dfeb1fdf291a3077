/*
 * line: the jobs that wait, in the order in which they are to run.
 *
 * Purpose    Reads who waits and where, and writes places that were changed together, with the event of the
 *            job that was moved.
 * Ownership  *ret_entries is an array for the caller to free().
 * Threads    As store.h. Only the scheduler writes places.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_LINE_H
#define NEEDLED_STORE_LINE_H

#include "store/jobs.h"

struct line_entry {
    char id[STORE_ID_SIZE];
    struct job_place place;
};
/* All that wait, to be validated or for a device, the first first. */
MUST_CHECK bool line_list(struct store *store, struct line_entry **ret_entries, size_t *ret_count,
                          struct error *err);
/* How many wait up to that place: 1 for the first of the line. */
MUST_CHECK bool line_rank(struct store *store, const struct job_place *place, int64_t *ret_rank,
                          struct error *err);
/* The places of all entries and the event of job_id, in one transaction. */
MUST_CHECK bool line_write(struct store *store, const struct line_entry *entries, size_t count,
                           const char *job_id, const struct event_draft *event, struct error *err);

#endif

/*
 * figures: counts for those who watch the daemon.
 *
 * Purpose    Questions that are asked every few seconds and read an index at most.
 * Ownership  None.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_FIGURES_H
#define NEEDLED_STORE_FIGURES_H

#include "store/jobs.h"

/* How many jobs there are of each state. */
MUST_CHECK bool figures_count_jobs(struct store *store, int64_t ret_counts[JOB_STATE_COUNT],
                                   struct error *err);

/* Whether there are no jobs, files, models and reserved uploads at all. */
MUST_CHECK bool figures_are_none(struct store *store, bool *ret_none, struct error *err);

#endif

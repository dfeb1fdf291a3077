/*
 * sweeps: groups of jobs that one create has made.
 *
 * Purpose    Keeps what was asked for and which values differ; the jobs know their sweep (jobs.h).
 * Ownership  Records are plain values; their JSON texts are freed by sweep_record_release.
 * Threads    As store.h. Only the scheduler inserts.
 * Failure    As store.h. An insert makes the sweep and all of its jobs, or nothing.
 */
#ifndef NEEDLED_STORE_SWEEPS_H
#define NEEDLED_STORE_SWEEPS_H

#include "store/jobs.h"

struct sweep_record {
    char id[STORE_ID_SIZE]; /* ftsweep-... */
    char owner[STORE_ID_SIZE];
    char *request_json; /* the create's body */
    char *varied_json;  /* {name: [values]} of what differs between its jobs */
    int64_t created_unix_s;
};
void sweep_record_release(struct sweep_record *sweep);       /* NULL is fine */
void sweeps_free(struct sweep_record *sweeps, size_t count); /* an array of them; NULL is fine */

/* The jobs' sweep_id is set; an event for each. */
MUST_CHECK bool sweeps_insert(struct store *store, const struct sweep_record *sweep,
                              const struct job_record *jobs, const struct event_draft *events,
                              size_t count, struct error *err);
MUST_CHECK bool sweeps_get(struct store *store, const char *id, struct sweep_record *ret_sweep,
                           struct error *err);
MUST_CHECK bool sweeps_list(struct store *store, const struct store_page *page,
                            struct sweep_record **ret_sweeps, size_t *ret_count, bool *ret_has_more,
                            struct error *err);

#endif

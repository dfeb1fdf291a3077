/*
 * sweep: one create that makes a job for every combination of the values it lists.
 *
 * Purpose    The rule, in words. In a create's body any hyper-parameter, wherever a create takes them, and
 *            seed may be a list of values. Every combination makes a job as if it had been created by
 *            itself; the list that comes first changes slowest. All are made or none, and their first job
 *            stands for the create: it carries its Idempotency-Key.
 * Ownership  sweep_release frees what a sweep holds; the rest is plain values.
 * Threads    sweep_keep, sweep_cancel: the scheduler's; the rest any, with a store of its own.
 * Failure    As a create of one (submission.h). ERR_INVALID for a list that is empty, holds lists, objects or
 *            the same value twice, and for more than LIMIT_SWEEP_JOBS jobs.
 */
#ifndef NEEDLED_SWEEP_H
#define NEEDLED_SWEEP_H

#include "daemon/base/limits.h"
#include "daemon/sched/submission.h"
#include "store/sweeps.h"

struct sweep_bodies {
    struct json *items[LIMIT_SWEEP_JOBS];
    size_t count;
    struct json *varied; /* {name: [values]} */
};
bool sweep_is_meant(const struct json *body); /* a list of values is in it */
/* The bodies of the single creates; not all of them need to be good ones. */
MUST_CHECK bool sweep_expand(const struct json *body, struct sweep_bodies *ret_bodies,
                             struct error *err);
void sweep_bodies_release(struct sweep_bodies *bodies); /* NULL is fine */

struct sweep {
    struct submission asked; /* who asks; repeated_id as there. Its job is not made */
    struct sweep_record record;
    struct job_record jobs[LIMIT_SWEEP_JOBS];
    size_t count;
};
/* sweep->asked is begun. */
MUST_CHECK bool sweep_read(const struct scheduler_options *options, struct store *store,
                           const struct json *body, struct sweep *sweep, struct error *err);
void sweep_release(struct sweep *sweep); /* NULL is fine */
mailbox_function sweep_keep;             /* struct sweep: committed, or repeated_id is filled */

struct sweep_end {
    char sweep_id[STORE_ID_SIZE];
    char job_ids[LIMIT_SWEEP_JOBS][STORE_ID_SIZE]; /* out: those that were cancelled now */
    size_t count;
};
/* struct sweep_end: all of its jobs that have not ended are cancelled, and none begins meanwhile. A second
 * time is harmless; a sweep that has ended otherwise is ERR_CONFLICT. */
mailbox_function sweep_cancel;

#endif

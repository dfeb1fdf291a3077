/*
 * changes: a job's state, changed in the database and told.
 *
 * Purpose    What all decisions about jobs end in: one transaction with its events, then the log, the feed
 *            and the workers hear of it.
 * Ownership  Everything is borrowed.
 * Threads    The scheduler's.
 * Failure    ERR_CONFLICT when the job has moved on meanwhile; the store's own.
 */
#ifndef NEEDLED_CHANGES_H
#define NEEDLED_CHANGES_H

#include "daemon/sched/notes.h"
#include "store/jobs.h"

struct queue;

/* A job's readers and whoever looks for work, after a commit. */
void changes_tell(struct queue *queue, const char *job_id);
MUST_CHECK bool changes_move(struct queue *queue, const char *job_id, enum job_state from,
                             enum job_state to, const struct job_change *change,
                             const struct notes *notes, struct error *err);
/* The fault as it is told: files by their place in the state folder or among the models, not on the
 * machine. Where the two differ, the log has the whole. */
struct error changes_show(const struct queue *queue, const char *job_id, const struct error *fault);
/* The job's error is the fault, with what else changes. */
MUST_CHECK bool changes_fail(struct queue *queue, const char *job_id, enum job_state from,
                             const struct job_change *given, const struct error *fault,
                             struct error *err);

#endif

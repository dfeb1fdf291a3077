/*
 * run: one job on one device, from claim to outcome.
 *
 * Purpose    Connects the trainer's hooks to the job's events, plan, warnings and checkpoints.
 * Ownership  Everything is borrowed for the call.
 * Threads    The worker's.
 * Failure    None of its own: whatever happens becomes the outcome handed to queue_end.
 */
#ifndef NEEDLED_RUN_H
#define NEEDLED_RUN_H

#include "daemon/sched/queue.h"
#include "daemon/sched/recorder.h"

struct run_parts {
    struct queue *queue;
    size_t slot;
    struct store *store; /* the worker's */
    struct recorder *recorder;
    struct backend *backend;
    uint64_t memory_limit_bytes; /* of the job's plan, at most the daemon's; 0: the daemon's */
};

/* True once the outcome is kept; false when the daemon stops before it could be. */
bool run_job(const struct run_parts *parts, struct job_record *job);

#endif

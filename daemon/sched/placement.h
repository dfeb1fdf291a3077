/*
 * placement: which device a queued job may have, and why it waits.
 *
 * Purpose    A named device is waited for; "auto" takes a GPU that is in service, and the processor
 *            only when there is none. Free disk space for what a job writes is part of the question.
 * Ownership  None.
 * Threads    The scheduler's.
 * Failure    What cannot be told counts as fitting.
 */
#ifndef NEEDLED_PLACEMENT_H
#define NEEDLED_PLACEMENT_H

#include "daemon/sched/queue.h"

bool placement_in_service(struct queue *queue, const struct queue_slot *slot);
bool placement_takes(struct queue *queue, const struct job_record *job,
                     const struct queue_slot *slot);
/* The slot is no GPU though the job would have taken one: says why none can be had. */
bool placement_is_fallback(struct queue *queue, const struct job_record *job,
                           const struct queue_slot *slot, char *ret_reason, size_t capacity);
/* Why a queued job does not run now; "" when a device is about to take it. */
void placement_explain(struct queue *queue, const struct job_record *job, char *ret_reason,
                       size_t capacity);

#endif

/*
 * waiting: the queued jobs, looked at in their order.
 *
 * Purpose    Who is next on a device that has a free slot, and what the others are told. A job that does
 *            not fit a device is passed over, however many of them stand in front: none blocks those
 *            behind it.
 * Ownership  A choice's job is the caller's to release, when found.
 * Threads    The scheduler's.
 * Failure    The store's. A review that fails is logged once.
 */
#ifndef NEEDLED_WAITING_H
#define NEEDLED_WAITING_H

#include "daemon/sched/placement.h"

/* Waiting jobs say why, and those that can never run end: looked at again whenever something changed.
 * The first of the line; those behind them when their turn comes nearer. */
#define WAITING_LOOKED_AT 256
void waiting_review(struct queue *queue);

struct waiting_choice {
    bool found;
    size_t looked_at;
    struct job_record job;
    struct placement_grant grant;
    struct placement_view view; /* of the devices, when it was chosen; set once looked_at > 0 */
};
/* The first of the whole line that may run on the device now. */
MUST_CHECK bool waiting_choose(struct queue *queue, size_t device,
                               struct waiting_choice *ret_choice, struct error *err);

#endif

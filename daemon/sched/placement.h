/*
 * placement: which device a queued job may have, and why it waits.
 *
 * Purpose    The rule, in words. A plan has two figures: the least it can do with, and what it wants;
 *            the base's file comes on top of both where a device copies it. A device can give what
 *            budget_usable_bytes leaves of its memory, and no job gets more than the daemon's limit.
 *            What is free is the device's own figure now, less what jobs that were given to it have
 *            still to take: each keeps what it was granted reserved until its first step is made.
 *              The job fits    where its least is free now. It is granted what it wants, or what is
 *                              free if that is less, and plans its batches within that.
 *              It waits        for a device whose slots are taken, or that could hold it but has not so
 *                              much free, whoever has the rest; and for one that is out of service.
 *              It never fits   where its least is more than the device can give when all is free.
 *            "auto" is for a GPU in service that the job could ever fit, also a busy one, and for the
 *            processor only where there is none, with a warning that says why. A named device or
 *            platform is waited for. A job that fits no device it asks for, ever, is failed with both
 *            figures before it takes one. Of devices with a free slot the one with fewer jobs takes it.
 *            Free disk space for what a job writes is part of the question; what the running ones have
 *            still to write is theirs.
 * Ownership  A view is a plain value: what was known when it was taken.
 * Threads    The scheduler's.
 * Failure    What cannot be told (a device's memory, an old job's needs) counts as fitting.
 */
#ifndef NEEDLED_PLACEMENT_H
#define NEEDLED_PLACEMENT_H

#include "daemon/sched/queue.h"

struct placement_device {
    struct slot_use use;
    uint64_t total_bytes, free_bytes; /* that a plan may take; 0: not known */
};
struct placement_view { /* of all devices, at one moment */
    struct queue *queue;
    struct placement_device devices[DEVICE_MAX];
    uint64_t promised_bytes; /* of the disk: what the running jobs may still write */
};
void placement_look(struct queue *queue, struct placement_view *ret_view);

/* The same without asking the devices: their memory counts as at the start. Any thread. */
void placement_glance(struct queue *queue, struct placement_view *ret_view);
/* Which devices the job is for, now or when its turn comes. Any thread. */
void placement_list_suited(const struct placement_view *view, const struct job_record *job,
                           bool ret_suited[DEVICE_MAX]);

struct placement_grant {
    uint64_t reserved_bytes; /* 0: the needs are not known */
    uint64_t limit_bytes;    /* of the job's plan; 0: what the device has */
    uint64_t disk_bytes;     /* that it writes in all; 0: not known */
};
/* Whether the job may run now on a device, in the slot that is free there. */
bool placement_takes(const struct placement_view *view, const struct job_record *job, size_t device,
                     struct placement_grant *ret_grant);
/* The device is no GPU though the job would have taken one: says why none can be had. */
bool placement_is_fallback(const struct placement_view *view, const struct job_record *job,
                           size_t device, char *ret_reason, size_t capacity);
/* ERR_NO_MEMORY with both figures when no device the job asks for can ever hold it. */
MUST_CHECK bool placement_is_possible(const struct placement_view *view,
                                      const struct job_record *job, struct error *err);
/* Why a queued job does not run now; "" when a device is about to take it. */
void placement_explain(const struct placement_view *view, const struct job_record *job,
                       char *ret_reason, size_t capacity);

#endif

/*
 * deaths: what becomes of the jobs that were at work when the daemon died.
 *
 * Purpose    The rule, in words. A death is any end of the process but a stop in order: a crash, the
 *            kernel's want of memory, kill -9. The next start finds in the database which jobs were
 *            running, or had their files read, and queues them again with an event. The death is held
 *            against such a job; it counts on where the job died in the same place as the time before
 *            (at most DEATHS_NEAR steps from it, or while its files were read) and had kept no resume
 *            checkpoint beyond it, else from one again. crash_limit of them fail the job: its next run
 *            would end the same way. So a job of weeks outlives any number of deaths that it gets over.
 *            Not held against a job: the machine's own restart (its boot id is another), and a death
 *            beside jobs that were suspected already. Suspected jobs run one at a time, for else it would
 *            never be known which of them it is, and keep a checkpoint after their first step and ten
 *            times as often as others, so that one who is killed from outside gets on. A stop in order,
 *            a pause, or a checkpoint beyond the place ends the suspicion.
 * Ownership  Everything is borrowed.
 * Threads    The scheduler's, or before it starts.
 * Failure    The store's own.
 */
#ifndef NEEDLED_DEATHS_H
#define NEEDLED_DEATHS_H

#include "daemon/sched/mailbox.h"
#include "store/attempts.h"

#define DEATHS_NEAR 2          /* steps: what a death is late by, where memory runs out */
#define DEATHS_SUSPECTS_MAX 64 /* looked at; more than deaths can bring together */
#define DEATHS_HURRY 10        /* checkpoints of a suspected job for one of another's */

struct queue;

/* At the start: jobs that were at work are queued again, or failed. */
MUST_CHECK bool deaths_recover(struct queue *queue, struct error *err);

/* const char: the id of a job whose files are to be read now. ERR_UNAVAILABLE while the daemon stops;
 * ERR_LIMIT while another suspected job is at work. */
mailbox_function deaths_begin_reading;

struct deaths_suspects {
    struct attempt_record *all;
    size_t count;
};
MUST_CHECK bool deaths_find_suspects(struct queue *queue, struct deaths_suspects *ret_suspects,
                                     struct error *err);
void deaths_release(struct deaths_suspects *suspects); /* zeroed is fine */
/* The other suspected job that a suspected one has to wait for, NULL: none. */
const char *deaths_waits_for(const struct queue *queue, const struct deaths_suspects *suspects,
                             const char *job_id);

#endif

/*
 * queue: every change of a job's state, and who may run next.
 *
 * Purpose    The functions the scheduler's thread runs for others (mailbox.h): each is one decision and
 *            one transaction, told to the event feed after its commit.
 * Ownership  queue_open / queue_close. Arguments are the caller's.
 * Threads    The mailbox_functions run on the scheduler's thread only; queue->slots as slots.h says.
 * Failure    ERR_CONFLICT when a job has moved on meanwhile; the store's own.
 */
#ifndef NEEDLED_QUEUE_H
#define NEEDLED_QUEUE_H

#include "daemon/base/digests.h"
#include "daemon/sched/inventory.h"
#include "daemon/sched/mailbox.h"
#include "daemon/sched/notes.h"
#include "daemon/sched/scheduler.h"
#include "daemon/sched/slots.h"
#include "store/jobs.h"

#include <stdatomic.h>

#define QUEUE_FAULTS_MAX 3 /* a job that ends so many times with its device's failure is failed */

struct queue {
    const struct scheduler_options *options;
    struct mailbox *mailbox;
    struct store *store;     /* the scheduler's thread's */
    struct digests *digests; /* of the bases; shared by the workers */
    bool stopping;           /* the scheduler's thread's: nothing is claimed any more */
    char last_trouble[sizeof(((struct error *)0)->message)]; /* its: what the log has said last */
    /* Threads may outlive the feed, which they must not touch then. Set before the feed goes. */
    atomic_bool abandoned;
    struct slots slots;
    struct inventory *inventory;
};

/* Jobs found at work are judged: deaths.h. */
MUST_CHECK bool queue_open(const struct scheduler_options *options, struct mailbox *mailbox,
                           struct queue **ret_queue, struct error *err);
void queue_close(struct queue *queue); /* NULL is fine */

/* ---- run by mailbox_call; the type of `arguments` is said at each -------------------------------- */

/* const struct job_record: committed in validating_files. */
mailbox_function queue_submit;
/* const char: the job's id. */
mailbox_function queue_cancel;

struct queue_verdict { /* what validating a job's files gave */
    const char *job_id;
    const struct error *fault; /* NULL: accepted */
    const char *lines_json;    /* of a refusal, or NULL */
    const char *plan_json, *warnings_json;
    const struct notes *notes; /* warnings as events, or NULL */
};
mailbox_function queue_judge; /* struct queue_verdict */

struct queue_claim {
    size_t slot;
    bool found;
    struct job_record job;       /* as it was queued, when found; for the caller to release */
    uint64_t memory_limit_bytes; /* of its plan; 0: the daemon's own limit */
};
mailbox_function queue_take; /* struct queue_claim */

enum outcome_kind {
    OUTCOME_SUCCEEDED,
    OUTCOME_FAILED,
    OUTCOME_STOPPED,      /* checkpointed: goes on at the next start */
    OUTCOME_CANCELLED,    /* its state is committed already */
    OUTCOME_DEVICE_FAULT, /* back to the queue; the device is out of service */
    OUTCOME_DISK_FAULT, /* back to the queue until the disk takes writes, or files can be opened */
};
struct queue_outcome {
    size_t slot;
    const char *job_id;
    enum outcome_kind kind;
    const struct error *fault; /* FAILED, DEVICE_FAULT, DISK_FAULT */
    int64_t steps, trained_tokens;
    const struct model_record *models; /* SUCCEEDED: the model first */
    size_t model_count;
    const struct checkpoint_record *checkpoint; /* SUCCEEDED: of the last epoch, or NULL */
    const struct file_record *result_file;      /* SUCCEEDED: its steps, or NULL */
    bool kept;                                  /* out: the outcome became the job's state */
};
mailbox_function queue_end; /* struct queue_outcome */

struct queue_fault {
    size_t slot;        /* one of the device's: all of them are meant */
    const char *reason; /* NULL: in service */
    bool is_passing;    /* it is tried again: nothing to tell while the daemon stops */
};
mailbox_function queue_set_service; /* const struct queue_fault */
mailbox_function queue_stop;        /* nothing; running jobs are told to stop */
mailbox_function queue_abandon;     /* nothing; jobs whose threads do not end are queued again */
mailbox_function queue_ping;        /* nothing; the database answers */

#endif

/*
 * submission: a create's body as the record of its job.
 *
 * Purpose    Checks a body against what there is (files, model, device, in this order), fills the record
 *            that nobody has seen yet, and keeps it once: a create that was made before is found by its
 *            Idempotency-Key, or by its body where the caller says that it asks again.
 * Ownership  The record's texts are the caller's to release.
 * Threads    submission_keep: the scheduler's; the rest any, with a store of its own.
 * Failure    ERR_INVALID or ERR_NOT_FOUND with param = the field.
 */
#ifndef NEEDLED_SUBMISSION_H
#define NEEDLED_SUBMISSION_H

#include "daemon/sched/mailbox.h"
#include "daemon/sched/scheduler.h"
#include "store/jobs.h"

/* Within which a repeated create without a key is the first one: longer than the 600 s that the official
 * client waits for an answer before it asks again. */
#define SUBMISSION_REPEAT_S 900

struct submission {
    struct job_record job;
    int64_t jobs_max;                /* as job_terms */
    int64_t repeat_since_unix_s;     /* bodies are compared with jobs made since then */
    char repeated_id[STORE_ID_SIZE]; /* out: the job made before, "" none */
};

/* Everything but who asks. */
MUST_CHECK bool submission_read(const struct scheduler_options *options, struct store *store,
                                const struct json *body, struct job_record *ret_job,
                                struct error *err);
/* Who asks, and what makes a repeat; the rest of *ret_submission is zeroed. */
MUST_CHECK bool submission_begin(const struct json *body, const struct job_terms *terms,
                                 struct submission *ret_submission, struct error *err);
/* Fills repeated_id. */
MUST_CHECK bool submission_find_repeat(struct store *store, struct submission *submission,
                                       struct error *err);
mailbox_function submission_keep; /* struct submission: committed, or repeated_id is filled */

#endif

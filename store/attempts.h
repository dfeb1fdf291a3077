/*
 * attempts: how a job's runs fared that did not end in order, and its newest resume checkpoint.
 *
 * Purpose    What the rule in daemon/sched/deaths.h goes by after the daemon has died, and what a job's
 *            record shows of its checkpoints.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    As store.h; a job of which nothing is known has a record of zeroes.
 */
#ifndef NEEDLED_STORE_ATTEMPTS_H
#define NEEDLED_STORE_ATTEMPTS_H

#include "store/store.h"

#define ATTEMPT_READING (-1) /* a death_step: while its files were read */

struct attempt_record {
    char job_id[STORE_ID_SIZE];
    int64_t attempt_count; /* of the job: starts on a device */
    bool is_reading;       /* its files are being read */
    int64_t death_count; /* of the daemon, in a row, held against the job; 0: it is not suspected */
    int64_t death_step;  /* whole steps made by then */
    int64_t kept_step, kept_unix_s, kept_bytes; /* of the newest resume checkpoint; 0: none */
};

MUST_CHECK bool attempts_get(struct store *store, const char *job_id,
                             struct attempt_record *ret_attempt, struct error *err);
/* Those that were at work when the daemon ended: running, or their files being read; at most limit. */
MUST_CHECK bool attempts_list_broken(struct store *store, size_t limit,
                                     struct attempt_record **ret_attempts, size_t *ret_count,
                                     struct error *err);
/* Unfinished jobs with deaths held against them; at most limit. */
MUST_CHECK bool attempts_list_suspects(struct store *store, size_t limit,
                                       struct attempt_record **ret_attempts, size_t *ret_count,
                                       struct error *err);

/* The validator begins; jobs_move from that state ends it. */
MUST_CHECK bool attempts_begin_reading(struct store *store, const char *job_id, struct error *err);
/* The daemon stops in order: nobody reads. */
MUST_CHECK bool attempts_end_reading(struct store *store, struct error *err);
/* A resume checkpoint; one beyond the last death ends the suspicion. */
MUST_CHECK bool attempts_keep(struct store *store, const struct attempt_record *kept,
                              struct error *err);
/* A death held against the job; within the caller's transaction. */
MUST_CHECK bool attempts_set_death(struct store *store, const struct attempt_record *attempt,
                                   struct error *err);
/* A run, or the reading of files, has ended in order; within the caller's transaction. */
MUST_CHECK bool attempts_clear(struct store *store, const char *job_id, struct error *err);

#endif

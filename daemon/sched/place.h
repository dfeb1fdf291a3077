/*
 * place: how far a run has come, as the next start will judge it if the daemon dies (deaths.h).
 *
 * Purpose    A few bytes in the job's checkpoint folder, written at each step: the kernel has them when
 *            the process dies in the next moment, which events on their way to the database do not
 *            survive. Not fsynced: a power cut is held against no job. Resume checkpoints are recorded
 *            in the database.
 * Ownership  place_begin / place_end (caller's storage); the store is borrowed. The file goes with the
 *            resume checkpoints.
 * Threads    The worker's; place_read from the scheduler's when nobody writes.
 * Failure    Where the bytes cannot be kept, the job's last checkpoint stands for them.
 */
#ifndef NEEDLED_PLACE_H
#define NEEDLED_PLACE_H

#include "store/attempts.h"

struct train_job;

struct place {
    int descriptor; /* -1: it could not be opened */
    struct store *store;
    struct attempt_record attempt;
};

/* A suspected job's checkpoints are made sooner: the train_job is changed. */
MUST_CHECK bool place_begin(struct place *place, struct store *store, const char *job_id,
                            struct train_job *job, struct error *err);
void place_note(const struct place *place, int64_t step); /* so many whole steps are made */
/* A resume checkpoint was written; *ret_cleared: the job is suspected no more. */
MUST_CHECK bool place_keep(struct place *place, int64_t step, uint64_t size_bytes,
                           bool *ret_cleared, struct error *err);
void place_end(struct place *place); /* also of one that could not begin */
/* False: that attempt has left none. */
bool place_read(const char *folder, int64_t attempt_count, int64_t *ret_step);

#endif

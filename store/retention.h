/*
 * retention: what is old, or too much, and needed by no job.
 *
 * Purpose    Takes records away, one at a time, by the limits that are set: uploads and models by age and by
 *            their bytes together, the epoch checkpoints of a job by their number (the newest stay, and the
 *            one of the least validation loss). Nothing that an unfinished job reads or goes on from is
 *            taken, and no age is counted from before the end of the last job that did. What was taken is
 *            remembered with its reason, the newest RETENTION_REMEMBERED.
 * Ownership  Plain values.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_RETENTION_H
#define NEEDLED_STORE_RETENTION_H

#include "store/store.h"

#define RETENTION_REMEMBERED 100000

struct retention_limits { /* 0: none */
    int64_t upload_age_s, upload_bytes, model_age_s, model_bytes;
    int64_t checkpoints_per_job;
};

struct retention_victim {
    bool is_model; /* else a file */
    char id[STORE_NAME_SIZE];
    char artifact[STORE_NAME_SIZE]; /* of a model */
    char job_id[STORE_ID_SIZE];     /* that made it, "" none */
    int64_t step;                   /* of an epoch checkpoint */
    char reason[160];
};
/* One that is taken away, in one transaction; its bytes are the caller's to remove. */
MUST_CHECK bool retention_take(struct store *store, const struct retention_limits *limits,
                               int64_t now_unix_s, struct retention_victim *ret_victim,
                               bool *ret_found, struct error *err);
/* Where a record that was not found was taken away: says when and why, with the word "gone". */
void retention_explain(struct store *store, const char *id, struct error *err);

#endif

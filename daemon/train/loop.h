/*
 * loop: the steps and epochs of a run that has been set up.
 *
 * Purpose    Each turn does the one thing that is due (a step, or an epoch's validation, adapter
 *            and event), and keeps a resume checkpoint at its time. What is done is in `done`, and
 *            only whole turns are: a stop drops the turn it falls into.
 * Ownership  trainer.c owns the parts; the loop borrows them. loop_init / loop_release for its own.
 * Threads    The worker's. Nothing is allocated inside a step.
 * Failure    As trainer.h.
 */
#ifndef NEEDLED_LOOP_H
#define NEEDLED_LOOP_H

#include "daemon/train/checkpoint.h"
#include "daemon/train/inputs.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/packing.h"
#include "daemon/train/schedule.h"

struct loop {
    const struct train_job *job;
    const struct train_hooks *hooks;
    const struct inputs *inputs;
    const char *identity;
    struct backend *backend;
    enum backend_precision precision; /* that the backend is set to */
    struct model *model;
    struct packing *packing;
    struct model_values values;
    struct schedule schedule;
    size_t steps_per_epoch;

    struct checkpoint done; /* what the next checkpoint will say, without its arrays' content */
    struct optimizer optimizer;
    struct shuffle ahead; /* after the order of the epoch in progress */
    uint32_t *order;      /* [train_count] of the epoch in progress, once drawn */
    bool order_drawn;
    const struct example **lines;    /* [batch] */
    uint64_t kept_step, kept_epochs; /* of the last resume checkpoint; the caller sets them too */
    int64_t kept_ns;                 /* when, by the monotonic clock */
    bool has_kept;                   /* in this run */
};

enum loop_end { LOOP_FINISHED, LOOP_STOPPED };

/* The borrowed parts, `done` and what of it is kept are set; the values on the device are those of
 * `done`. */
MUST_CHECK bool loop_init(struct loop *loop, struct error *err);
void loop_release(struct loop *loop); /* zeroed is fine; the borrowed parts stay */

/* Until all epochs are told, or the stop flag is seen. */
MUST_CHECK bool loop_run(struct loop *loop, enum loop_end *ret_end, struct error *err);
/* A resume checkpoint of `done`, unless the last one says the same. */
MUST_CHECK bool loop_keep(struct loop *loop, struct error *err);
/* The adapter as it stands, with the metadata of this job. */
MUST_CHECK bool loop_write_adapter(const struct loop *loop, const char *path,
                                   uint64_t *ret_size_bytes, char ret_sha256[SHA256_HEX_SIZE],
                                   struct error *err);
bool loop_stop_seen(const struct loop *loop);
void loop_warn(const struct loop *loop, const char *text);

#endif

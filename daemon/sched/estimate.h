/*
 * estimate: what a job would take, without making one.
 *
 * Purpose    Reads its files as the job would, plans its memory, asks where it would go, and reckons its
 *            time from the last measured rate of that device.
 * Ownership  The ask is the caller's, estimate_release frees what it holds.
 * Threads    estimate_read: the validator's; estimate_place: the scheduler's; the rest any.
 * Failure    As the job would fail: with param, and the lines as JSON.
 */
#ifndef NEEDLED_ESTIMATE_H
#define NEEDLED_ESTIMATE_H

#include "daemon/sched/asks.h"
#include "daemon/sched/mailbox.h"
#include "daemon/train/trainer.h"
#include "store/jobs.h"
#include "store/rates.h"

struct estimate {
    struct job_record job; /* as it would be created; its plan is added */
    size_t train_count, held_count, steps, token_count, target_count; /* of one epoch */
    size_t n_epochs;
    char device[32];    /* that would take it now or when it is free; "" none ever */
    char reason[600];   /* why it would wait, or go nowhere; "" it starts at once */
    struct json *lines; /* of a refusal, or NULL */
};
void estimate_release(struct estimate *estimate);

asks_function estimate_read;     /* struct estimate */
mailbox_function estimate_place; /* struct estimate */
/* The whole answer; store for the rate. NULL with err. */
struct json *estimate_json(const struct estimate *estimate, struct store *store, struct error *err);

/* A rate's key for a job on a device; the speed depends on all of it. */
void estimate_rate_key(const char *device, const char *base_model,
                       const struct hyperparameters *hyper, struct rate_record *ret_rate);

#endif

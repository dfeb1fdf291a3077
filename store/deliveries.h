/*
 * deliveries: what is still to be told to which webhook.
 *
 * Purpose    A row for each event and webhook, made in the transaction that ends the job, and due until
 *            it was taken or given up: a restart forgets none. The same event keeps its id and body
 *            over all attempts.
 * Ownership  Lists are arrays for the caller; each delivery is released, then free().
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_DELIVERIES_H
#define NEEDLED_STORE_DELIVERIES_H

#include "store/webhooks.h"

struct delivery_record {
    int64_t seq;
    char webhook_id[STORE_ID_SIZE];
    char event_id[STORE_ID_SIZE]; /* evt_... */
    char *body;
    int64_t created_unix_s;
    int64_t next_unix_s;   /* of the next attempt; 0: taken or given up */
    int64_t attempt_count; /* so far */
    int64_t last_status;   /* HTTP; 0: no answer came */
    char last_error[256];  /* "" none: the last attempt was taken */
};
void delivery_release(struct delivery_record *delivery); /* NULL is fine */

/* Inside the caller's transaction: the event of a job that has just ended ("succeeded"), for every webhook
 * that wants it. */
MUST_CHECK bool deliveries_insert(struct store *store, const char *job_id, const char *state,
                                  struct error *err);
/* One for each webhook that has any due: the one due longest. waits_json lists the seconds that are waited
 * after the first attempt, the second, ...: who would wait longer is due too, the clock was set back. */
MUST_CHECK bool deliveries_list_due(struct store *store, int64_t now_unix_s, const char *waits_json,
                                    struct delivery_record **ret_deliveries, size_t *ret_count,
                                    struct error *err);
/* When the next one is due; 0: none is. */
MUST_CHECK bool deliveries_find_next(struct store *store, int64_t *ret_next_unix_s,
                                     struct error *err);
/* Keeps next_unix_s, attempt_count, last_status and last_error. One that is gone is fine. */
MUST_CHECK bool deliveries_update(struct store *store, const struct delivery_record *delivery,
                                  struct error *err);
/* The same where url is gone for good, and webhooks_switch_off with it: both or neither. */
MUST_CHECK bool deliveries_update_gone(struct store *store, const struct delivery_record *delivery,
                                       const char *url, bool *ret_switched_off, struct error *err);
/* Of a webhook, newest first. */
MUST_CHECK bool deliveries_list(struct store *store, const char *webhook_id, size_t limit,
                                struct delivery_record **ret_deliveries, size_t *ret_count,
                                bool *ret_has_more, struct error *err);
MUST_CHECK bool deliveries_count_waiting(struct store *store, int64_t *ret_count,
                                         struct error *err);
/* Removes those that were made before then and are over, or wait for a webhook that is off. */
MUST_CHECK bool deliveries_sweep(struct store *store, int64_t before_unix_s, struct error *err);

#endif

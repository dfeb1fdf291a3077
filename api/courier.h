/*
 * courier: the thread that tells webhooks.
 *
 * Purpose    Looks for deliveries that are due when a job has news and when their time comes, and makes
 *            the calls side by side, one at a time for each webhook: a dead receiver delays nobody. What
 *            is not taken (2xx) is tried again, later and later, for two days; 410 switches the webhook
 *            off. At least once: a delivery whose answer was lost goes out again.
 * Ownership  courier_start / courier_stop. The options' parts outlive it.
 * Threads    One of its own; the functions here from any.
 * Failure    A database that cannot be read or written is told in the log and tried again.
 */
#ifndef NEEDLED_API_COURIER_H
#define NEEDLED_API_COURIER_H

#include "daemon/base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define COURIER_CALL_MAX 32

struct courier;
struct events_feed;
struct pulse;
struct stores;
struct webhook_record;

struct courier_options {
    const char *_Atomic hosts; /* as outbound_check_url; copied by nobody */
    struct events_feed *feed;
    struct stores *stores;
    size_t call_max; /* at once, each of another webhook; COURIER_CALL_MAX at most */
};

MUST_CHECK bool courier_start(const struct courier_options *options, struct courier **ret_courier,
                              struct error *err);
/* Within a moment: calls on their way are dropped and made again at the next start. NULL is fine. */
void courier_stop(struct courier *courier);

const char *courier_hosts(const struct courier *courier);
void courier_set_hosts(struct courier *courier, const char *hosts); /* as options.hosts */
/* Webhooks have changed. */
const struct pulse *courier_pulse(const struct courier *courier); /* its thread's */
void courier_wake(struct courier *courier);
/* One call of that type here and now, for a handler; the status of its answer. ERR_UNAVAILABLE when
 * others try, ERR_INVALID with the word webhook_unreachable when no answer comes. *stop (set: soon over) ends it. */
MUST_CHECK bool courier_try(struct courier *courier, const struct webhook_record *webhook,
                            const char *type, const atomic_bool *stop, long *ret_status,
                            struct error *err);

struct courier_counts { /* since the start */
    uint64_t delivered, failed, given_up;
};
void courier_read_counts(struct courier *courier, struct courier_counts *ret_counts);

#endif

/*
 * teller: the thread that reads new events once and tells the streams.
 *
 * Purpose    Hears of commits from the feed, reads the new rows into the tail, then says whose
 *            streams have news. Commits never wait for a reader, and the database is read once
 *            however many there are. While nobody listens it reads nothing.
 * Ownership  teller_start / teller_stop. The feed, the stores and the context outlive it.
 * Threads    teller_tail, teller_listen from any; `tell` is called on the teller's own thread, with no
 *            lock held.
 * Failure    Rows that cannot be read: the tail begins anew, everybody is told and reads for himself.
 */
#ifndef NEEDLED_API_TELLER_H
#define NEEDLED_API_TELLER_H

#include "daemon/base/error.h"

#include <stddef.h>

struct event_record;
struct pulse;
struct events_feed;
struct stores;
struct tail;
struct teller;

/* count 0: everybody has news. */
typedef void teller_fn(void *context, const struct event_record *events, size_t count);

MUST_CHECK bool teller_start(struct events_feed *feed, struct stores *stores, teller_fn *tell,
                             void *context, struct teller **ret_teller, struct error *err);
void teller_stop(
    struct teller *teller); /* ends the thread; the tail stays readable. NULL is fine */
void teller_free(struct teller *teller); /* teller_stop, and frees it; NULL is fine */

struct tail *teller_tail(struct teller *teller);
const struct pulse *teller_pulse(const struct teller *teller); /* its thread's */
void teller_listen(struct teller *teller, bool anybody);       /* is there a stream? */

#endif

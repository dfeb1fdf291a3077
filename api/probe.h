/*
 * probe: a request of our own, to see whether the server answers.
 *
 * Purpose    Hands each thread of the library a connection that never saw the network, asks /healthz on
 *            it and waits for the answers: they come through the request pool, the scheduler's thread and
 *            the database.
 * Ownership  None is kept.
 * Threads    Any but the library's.
 * Failure    ERR_UNAVAILABLE when an answer is late; a full server takes no connection and counts as
 *            alive.
 */
#ifndef NEEDLED_API_PROBE_H
#define NEEDLED_API_PROBE_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct MHD_Daemon;

/* thread_count: of the library, for this daemon. deadline_ns: by the monotonic clock. */
MUST_CHECK bool probe_daemon(struct MHD_Daemon *daemon, size_t thread_count, int64_t deadline_ns,
                             struct error *err);

#endif

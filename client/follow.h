/*
 * follow: an event stream over as many connections as it takes.
 *
 * Purpose    Reads a stream; when it ends or breaks, waits as the server said and comes again after the
 *            last event it had.
 * Ownership  None kept.
 * Threads    The caller's.
 * Failure    The way it ended; for FOLLOW_REFUSED and FOLLOW_LOST http_error says why.
 */
#ifndef NEEDLED_CLIENT_FOLLOW_H
#define NEEDLED_CLIENT_FOLLOW_H

#include "client/sse.h"

struct http;

enum follow_end {
    FOLLOW_STOPPED, /* take has said so */
    FOLLOW_READ,    /* nothing will follow what was read before */
    FOLLOW_REFUSED, /* by the server, for good */
    FOLLOW_LOST     /* no server for too long */
};

/* after: the id of the last event that is not wanted, "" for where the stream begins. take returns false
 * to stop. */
enum follow_end follow_stream(struct http *http, const char *path, const char *after,
                              sse_take_fn *take, void *context);

#endif

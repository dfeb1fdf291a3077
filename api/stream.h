/*
 * stream: events as server-sent events, of one job or of all.
 *
 * Purpose    A stream first reads the database in pages from its cursor, on the pool's threads, then
 *            copies what is new from the tail. Without news the connection sleeps (suspended) until
 *            the teller wakes it. Silence is broken by a comment line; a job's last event `done`
 *            ends its stream. A reader that does not read costs one page (STREAM_PAGE_BYTES or one
 *            larger event), what the socket holds and the library's buffer, and is dropped by the
 *            write timeout; Last-Event-ID repairs the gap.
 * Ownership  stream_new hands a stream over; stream_build gives it to the library's response, which
 *            frees it. streams_start / streams_free for all of them; none is left then.
 * Threads    One stream: the library's thread that serves its connection, or the pool's while that
 *            is suspended. The teller and the sweep only set flags and resume.
 * Failure    A store that cannot be read ends the stream without its end mark: clients come again.
 */
#ifndef NEEDLED_API_STREAM_H
#define NEEDLED_API_STREAM_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define STREAM_PAGE_BYTES ((size_t)64 << 10)

struct events_feed;
struct pool;
struct pulse;
struct stores;
struct stream;
struct streams;
struct tail_cursor;
struct MHD_Connection;
struct MHD_Response;

struct streams_options {
    struct events_feed *feed;
    struct stores *stores;
    struct pool *pool;
    int keepalive_s;  /* silence after which a comment is sent */
    size_t count_max; /* further readers are refused */
};

MUST_CHECK bool streams_start(const struct streams_options *options, struct streams **ret_streams,
                              struct error *err);
/* Ends all streams cleanly and refuses sleep from now on. After pool_close. */
void streams_stop(struct streams *streams);
void streams_free(struct streams *streams); /* NULL is fine */
/* About once a second: keep-alives, and the streams whose reader has gone. */
const struct pulse *streams_pulse(const struct streams *streams); /* of who tells them the news */
void streams_tick(struct streams *streams, int64_t now_ns);
/* Ends the streams of an owner whose key was revoked; they end after what is on its way. */
void streams_end_owner(struct streams *streams, const char *owner);
/* The same of a session that was signed out. */
void streams_end_session(struct streams *streams, const char *session);
size_t streams_count(struct streams *streams);

/* The events after the cursor, for the owner of a key ("" the operator), by a session ("" none).
 * ERR_UNAVAILABLE "too_many_streams" past the limit. */
MUST_CHECK bool stream_new(struct streams *streams, const struct tail_cursor *cursor,
                           const char *owner, const char *session, struct stream **ret_stream,
                           struct error *err);
void stream_free(struct stream *stream); /* one that was not built; NULL is fine */
/* Takes the stream over unless it returns NULL. stream_start follows before the answer is queued. */
struct MHD_Response *stream_build(struct stream *stream);
void stream_start(struct stream *stream, struct MHD_Connection *connection);

#endif

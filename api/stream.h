/*
 * stream: a job's events as server-sent events.
 *
 * Purpose    Reads rows from the store in pages from a cursor and writes them as frames; without
 *            news the connection sleeps (suspended) until the feed wakes it. Silence is broken by a
 *            comment line; the last event `done` ends the stream. A reader that does not read costs
 *            the one page that waits for it and is dropped by the write timeout; Last-Event-ID
 *            repairs the gap.
 * Ownership  stream_new hands a stream over; stream_build gives it to the library's response, which
 *            frees it. streams_new / streams_free for all of them; none is left then.
 * Threads    One stream: the library's thread that serves its connection. The feed and the sweep
 *            only set flags and resume. Lock order: the feed's, ours, the library's.
 * Failure    A store that cannot be read ends the stream without its end mark: clients come again.
 */
#ifndef NEEDLED_API_STREAM_H
#define NEEDLED_API_STREAM_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct events_feed;
struct stores;
struct stream;
struct streams;
struct MHD_Connection;
struct MHD_Response;

/* keepalive_s: silence after which a comment is sent. */
struct streams *streams_new(struct events_feed *feed, struct stores *stores, int keepalive_s);
void streams_free(struct streams *streams); /* NULL is fine */
/* Ends all streams cleanly and refuses sleep from now on. */
void streams_stop(struct streams *streams);
/* About once a second: keep-alives, and the streams whose reader has gone. */
void streams_tick(struct streams *streams, int64_t now_ns);
size_t streams_count(struct streams *streams);

/* Events of the job with number > after. NULL without memory. */
struct stream *stream_new(struct streams *streams, const char *job_id, int64_t after_number);
void stream_free(struct stream *stream); /* one that was not built; NULL is fine */
/* Takes the stream over unless it returns NULL. stream_start follows before the answer is queued. */
struct MHD_Response *stream_build(struct stream *stream);
void stream_start(struct stream *stream, struct MHD_Connection *connection);

#endif

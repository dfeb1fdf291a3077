/*
 * tail: the newest events of all jobs, rendered once for every stream that follows.
 *
 * Purpose    A follower of live events copies its frames from here, so that an event is read from
 *            the database and printed once, not once a reader. The tail holds every row after its
 *            base, up to its end, and forgets the oldest past TAIL_EVENTS or TAIL_BYTES: who is
 *            further behind reads the database.
 * Ownership  tail_new / tail_free.
 * Threads    Any; one writer.
 * Failure    An event that cannot be rendered for want of memory empties the tail: it begins again
 *            behind it.
 */
#ifndef NEEDLED_API_TAIL_H
#define NEEDLED_API_TAIL_H

#include "daemon/base/buf.h"
#include "store/store.h"

#define TAIL_EVENTS 256
#define TAIL_BYTES ((size_t)256 << 10)

struct event_record;
struct tail;

/* What a stream wants, and how far it is. */
struct tail_cursor {
    char job_id[STORE_ID_SIZE]; /* "": of all jobs, and a frame's id is its row; else its number */
    char types[128];            /* "": all; else the names, each between commas */
    int64_t number;             /* of the last event sent, when of one job */
    int64_t row;                /* every row up to this one was looked at; -1: none */
    int64_t retry_ms;           /* goes into the first frame; 0: not again */
    bool done;                  /* the job's last event is among the frames */
};

struct tail *tail_new(void);       /* NULL without memory */
void tail_free(struct tail *tail); /* NULL is fine */

/* Empties it: rows after base_row will follow. */
void tail_begin(struct tail *tail, int64_t base_row);
/* The next rows, in their order. */
void tail_add(struct tail *tail, const struct event_record *events, size_t count);

/* Appends the frames that follow the cursor, until `out` holds `enough` bytes, and moves it. False
 * when the tail does not reach back so far; nothing is changed then. */
MUST_CHECK bool tail_read(struct tail *tail, struct tail_cursor *cursor, size_t enough,
                          struct buf *out);
/* One event as a frame, when the cursor wants it, and moves it. */
void tail_write(struct tail_cursor *cursor, const struct event_record *event, struct buf *out);

#endif

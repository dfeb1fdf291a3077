/*
 * sse: the reader's side of server-sent events.
 *
 * Purpose    Turns a byte stream, cut anywhere, into events. Grammar: WHATWG HTML, "Server-sent
 *            events".
 * Ownership  sse_init / sse_release (caller's storage). Texts given to take die with the call.
 * Threads    One parser, one thread.
 * Failure    sse_feed returns false when take did, or when a line passes SSE_LINE_MAX.
 */
#ifndef NEEDLED_CLIENT_SSE_H
#define NEEDLED_CLIENT_SSE_H

#include <stdbool.h>
#include <stddef.h>

#define SSE_LINE_MAX ((size_t)1 << 20)

struct sse_event {
    const char *id;   /* the last one given, "" before any */
    const char *type; /* "message" when none was given */
    const char *data;
};
typedef bool sse_take_fn(void *context, const struct sse_event *event);

struct sse {
    sse_take_fn *take;
    void *context;
    char id[64];      /* of the last whole block that gave one: where a reader comes back to */
    char next_id[64]; /* of the block being read */
    char type[64];
    long retry_ms; /* as last told; 0: never */
    char *line, *data;
    size_t line_size, data_size;
    bool has_data, after_cr, started;
};

void sse_init(struct sse *sse, sse_take_fn *take, void *context);
void sse_release(struct sse *sse);
bool sse_feed(struct sse *sse, const char *bytes, size_t size);
void sse_restart(struct sse *sse); /* a new connection: drops a block cut in half, keeps the id */

#endif

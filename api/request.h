/*
 * request: one request, from its header to its answer.
 *
 * Purpose    What a handler sees: method, route and its decoded parameters, query, body; and where
 *            it puts its answer.
 * Ownership  request_new / request_free. Texts live in the request's arena, or are the library's
 *            and live as long.
 * Threads    The library's thread until it is handed to the pool, then the pool's until it resumes
 *            the connection.
 * Failure    request_new: NULL without memory. A path or query that cannot be decoded leaves
 *            `malformed`.
 */
#ifndef NEEDLED_API_REQUEST_H
#define NEEDLED_API_REQUEST_H

#include "api/pool.h"
#include "api/response.h"
#include "daemon/base/arena.h"
#include "daemon/base/buf.h"
#include "store/keys.h"

#include <stdatomic.h>
#include <stdint.h>

#define REQUEST_SEGMENT_MAX 8
#define REQUEST_PARAM_MAX 2

struct connection_entry;
struct courier;
struct events_feed;
struct form;
struct json;
struct keyring;
struct links;
struct listener;
struct metrics;
struct route;
struct scheduler;
struct store;
struct stores;
struct streams;
struct upload;
struct visitors;
struct MHD_Connection;

/* What handlers work with; the server's, read-only. */
struct services {
    struct scheduler *scheduler;
    struct events_feed *feed;
    struct stores *stores;
    struct streams *streams;
    const struct links *links;
    struct keyring *keyring;
    struct visitors *visitors;
    struct courier *courier;
    struct metrics *metrics;
    const _Atomic size_t *open_count; /* requests begun and not over */
    const atomic_bool *stopping;      /* set: answers that take long end early */
    const char *state_folder;
    atomic_int *upload_helpers;        /* threads that parse large uploads */
    _Atomic size_t upload_limit_bytes; /* may change */
    size_t metrics_kept;               /* of a finished job's steps; 0: all */
};

struct query_field {
    const char *name, *value;
    struct query_field *next;
};

struct request {
    struct pool_task task; /* first: the pool's view */
    const struct services *services;
    struct MHD_Connection *connection;
    const struct listener *listener; /* where it came in */
    struct connection_entry *entry;
    struct arena arena;
    char id[32]; /* x-request-id */
    int64_t started_ns;

    const char *method; /* HEAD is routed as GET */
    bool head;
    bool is_old;               /* HTTP/1.0, which need not name a host */
    const char *repeated;      /* a header that may stand there once and does twice, or NULL */
    const char *framing_fault; /* why its end is unclear, or NULL: the connection ends with it */
    const char *url;           /* as sent, for the log */
    const char *segments[REQUEST_SEGMENT_MAX];
    size_t segment_count;
    bool malformed;
    bool no_memory; /* to read it */
    bool asterisk;  /* the target is "*" */
    struct query_field *query;
    const char *host, *origin, *authorization, *content_type, *accept, *last_event_id; /* or NULL */
    const char *accept_encoding, *if_none_match;                                       /* or NULL */
    const char *session_cookie; /* or NULL; what it is worth: session.h */
    bool has_session_header;
    const char *range, *if_range, *idempotency_key;
    bool asked_before; /* the official client's count of retries is above 0 */
    bool expects_continue, is_chunked;
    uint64_t announced_bytes; /* 0: none */

    const struct route *route; /* NULL until matched */
    const char *params[REQUEST_PARAM_MAX];
    int64_t link_bytes; /* what its link says a PUT sends; -1: nothing */

    bool discards;  /* the answer stands; the rest of the body is read and dropped */
    bool submitted; /* was handed to the pool */
    /* Set (release) by the pool's thread as the last thing it does before it resumes the connection,
     * read (acquire) by the library's thread before it touches what the handler wrote. The library's
     * own lock orders the two as well; this says so in our own code. */
    _Atomic bool answered;
    uint64_t body_bytes; /* received so far */
    struct buf body;
    struct form *form;     /* an upload on its way, or NULL */
    struct upload *upload; /* the same without a form: a PUT's bytes */
    bool peer_is_owner;    /* on a Unix socket: the daemon's own user, or root */
    bool is_known;         /* who asks is known, */
    bool by_cookie;        /* by the cookie of a session, */
    char session[65];      /* whose token has this digest; "" none */
    const char *owner;     /* whose key asked; "" the operator */
    enum key_scope scope;  /* what that one may do, */
    int64_t jobs_max;      /* how many unfinished jobs it may have; 0: no limit */
    int64_t bytes_max;     /* what it may store; 0: no limit */
    struct store *store;   /* while the handler runs */
    struct json *lines;    /* bad lines of a refused upload; owned */
    struct response response;
};

struct request *request_new(const struct services *services, struct MHD_Connection *connection,
                            const char *url, const char *method);
void request_free(struct request *request); /* NULL is fine */

/* What request_new reads of the target, apart for who has no connection: the segments of request->url, and
 * a field of its query as it was sent (value NULL: none). What cannot be decoded sets malformed. */
void request_read_path(struct request *request);
bool request_add_query(struct request *request, const char *name, const char *value);

const char *request_query(const struct request *request, const char *name); /* NULL: not there */
bool request_has_body(const struct request *request);
/* The body as JSON for the caller to free; ERR_INVALID says where it breaks. */
MUST_CHECK bool request_read_json(const struct request *request, struct json **ret_json,
                                  struct error *err);

#endif

/*
 * router: which handler answers which request.
 *
 * Purpose    One table of routes: method, path, handler, what body it takes and how large.
 * Ownership  The table is static.
 * Threads    Any.
 * Failure    A path that is in no route is 404, a method that its path does not have is 405 with
 *            Allow.
 */
#ifndef NEEDLED_API_ROUTER_H
#define NEEDLED_API_ROUTER_H

#include "daemon/base/error.h"

#include <stddef.h>

struct request;

enum route_body {
    ROUTE_BODY_NONE, /* one that comes is read and dropped */
    ROUTE_BODY_JSON,
    ROUTE_BODY_FILE, /* multipart/form-data to disk, or JSON; its limit is the upload's */
    ROUTE_BODY_RAW,  /* a file's bytes to disk; its size is in the link */
};

enum route_access {
    ROUTE_READ,   /* a key of any scope: looks at what there is */
    ROUTE_SUBMIT, /* makes, changes, deletes; others' things are for scope admin: guard_check_owner */
    ROUTE_ADMIN,
    ROUTE_OPEN, /* nobody is asked */
    ROUTE_WHO,  /* nobody either, and who asks is looked up: request.is_known */
    ROUTE_LINK, /* the address is a link of ours: links.h */
};

struct route {
    const char *method;
    const char *path; /* "{}" stands for one segment */
    /* False: err is answered. */
    bool (*handle)(struct request *request, struct error *err);
    enum route_body body;
    size_t body_limit_bytes;
    enum route_access access;
};

/* Sets request->route and its params, or the refusal as request->response. */
MUST_CHECK bool router_match(struct request *request);

/* The whole table, for the tests that hold openapi.yaml to it. */
const struct route *router_routes(size_t *ret_count);

#endif

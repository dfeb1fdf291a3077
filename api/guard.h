/*
 * guard: who may ask at all.
 *
 * Purpose    Host names that are not ours are refused (DNS rebinding), foreign Origins too (CSRF),
 *            a missing or wrong key is 401, and a request that changes state must have a body type
 *            that a page of another site cannot send unasked (text/plain is 415).
 * Ownership  Texts are borrowed from the server's options.
 * Threads    Any; read-only.
 * Failure    False, with the refusal as request->response.
 */
#ifndef NEEDLED_API_GUARD_H
#define NEEDLED_API_GUARD_H

#include "daemon/base/error.h"

struct request;

struct guard {
    const char *api_key;       /* NULL or "": none needed */
    const char *allowed_hosts; /* comma-separated names, or NULL */
    const char *public_url;    /* its host is allowed, or NULL */
    bool any_address;          /* reachable from outside: addresses (not names) are fine as Host */
};

/* Host and Origin; a Unix socket takes any Host. */
MUST_CHECK bool guard_check_host(const struct guard *guard, struct request *request,
                                 bool is_socket);
MUST_CHECK bool guard_check_key(const struct guard *guard, struct request *request);
/* Needs request->route. */
MUST_CHECK bool guard_check_type(struct request *request);

#endif

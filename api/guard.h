/*
 * guard: who may ask at all.
 *
 * Purpose    Host names that are not ours are refused (DNS rebinding), foreign Origins too (CSRF),
 *            a missing or wrong key is 401, one whose scope is too small 403, and a request that
 *            changes state must have a body type that a page of another site cannot send unasked
 *            (text/plain is 415). A key reads everything; what others made is an admin's to change.
 * Ownership  Texts are borrowed from the server's options.
 * Threads    Any; read-only.
 * Failure    False, with the refusal as request->response.
 */
#ifndef NEEDLED_API_GUARD_H
#define NEEDLED_API_GUARD_H

#include "daemon/base/error.h"

struct keyring;
struct links;
struct request;
struct visitors;

#define GUARD_HELP_PATH "/help/keys"

struct guard {
    struct keyring *keyring;
    struct visitors *visitors;
    const struct links *links;         /* of this server: a refusal names a page of it */
    const char *_Atomic allowed_hosts; /* comma-separated names, or NULL; may change */
    const char *public_url;            /* its host is allowed, or NULL */
    bool any_address; /* reachable from outside: addresses (not names) are fine as Host */
};

/* Host and Origin; a Unix socket takes any Host. */
MUST_CHECK bool guard_check_host(const struct guard *guard, struct request *request,
                                 bool is_socket);
/* Sets who asks. On a Unix socket the daemon's user and root need no key, everybody else does; over TCP
 * none is needed while there is none. */
MUST_CHECK bool guard_check_key(const struct guard *guard, struct request *request, bool is_socket);
/* Sets who asks, if that is known; refuses nobody. */
void guard_identify(const struct guard *guard, struct request *request, bool is_socket);
/* These need request->route. */
MUST_CHECK bool guard_check_scope(struct request *request);
MUST_CHECK bool guard_check_type(struct request *request);

/* Before the handler, with request->store: of a route that changes something (ROUTE_SUBMIT), may the
 * caller change what its path names? What is not there is the handler's to tell. */
MUST_CHECK bool guard_check_owner(struct request *request, struct error *err);
/* The same where the path does not say it all: may the caller change what that owner has made? kind
 * ("job") and id are for the error. */
MUST_CHECK bool guard_may_change(const struct request *request, const char *owner, const char *kind,
                                 const char *id, struct error *err);

#endif

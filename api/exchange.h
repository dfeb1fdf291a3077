/*
 * exchange: one request's way through the server, between the library and the handlers.
 *
 * Purpose    Header: guard, route, size. Body: to memory or to disk in pieces. Then the connection sleeps
 *            while the pool runs the handler, and its answer is queued. Refusals that come before or
 *            inside a body too large to read go out at once and close the connection.
 * Ownership  The server's; the library calls the three functions with a struct listener as context.
 * Threads    The library's. A request belongs to one connection.
 * Failure    Everything becomes an answer, or the end of the connection.
 */
#ifndef NEEDLED_API_EXCHANGE_H
#define NEEDLED_API_EXCHANGE_H

#include "api/connections.h"
#include "api/guard.h"
#include "api/request.h"

#include <microhttpd.h>
#include <stdatomic.h>

struct pool;

struct exchange {
    struct services services;
    struct guard guard;
    struct pool *pool;
    struct connections *connections;
    /* Set once by the stopping thread, read at each request; a request that misses it is answered as
     * any other, so relaxed order does. */
    _Atomic bool stopping;
    _Atomic size_t open_count; /* requests begun and not completed; a figure to wait for */
};

struct listener {
    struct exchange *exchange;
    bool is_socket; /* a Unix socket */
    struct connection_group group;
};

enum MHD_Result exchange_handle(void *context, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *bytes,
                                size_t *size, void **state);
void exchange_complete(void *context, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode how);
void exchange_notify(void *context, struct MHD_Connection *connection, void **socket_context,
                     enum MHD_ConnectionNotificationCode what);

#endif

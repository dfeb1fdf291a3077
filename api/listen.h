/*
 * listen: the sockets the server answers on.
 *
 * Purpose    Binds a TCP address given as text and a Unix socket by path.
 * Ownership  The caller closes the descriptor, and removes the socket's path.
 * Threads    Any.
 * Failure    ERR_INVALID for an address that cannot be read, ERR_IO with the address and the
 *            reason.
 */
#ifndef NEEDLED_API_LISTEN_H
#define NEEDLED_API_LISTEN_H

#include "daemon/base/error.h"

/* "127.0.0.1:7733", "[::1]:0", "localhost:7733"; names other than localhost are not looked up. */
MUST_CHECK bool listen_tcp(const char *address, int *ret_descriptor, int *ret_port,
                           struct error *err);
/* Reads the same text without binding it. */
MUST_CHECK bool listen_check(const char *address, bool *ret_is_loopback, struct error *err);
/* A path left by a daemon that is gone is taken over, one that answers is refused. */
MUST_CHECK bool listen_unix(const char *path, int *ret_descriptor, struct error *err);

#endif

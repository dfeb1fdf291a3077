/*
 * listen: the sockets the server answers on.
 *
 * Purpose    Binds a TCP address given as text and a Unix socket by path; looks at a socket that somebody
 *            else has bound.
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

#define LISTEN_TEXT_SIZE 128

struct listen_about {
    bool is_unix, is_loopback;
    int port; /* 0 of a Unix socket */
    char address
        [LISTEN_TEXT_SIZE]; /* as people write it; a Unix socket without a path has "(no path)" */
};
/* A descriptor passed to us, which is made non-blocking: anything but a listening stream socket of the
 * internet's families or a Unix one is ERR_INVALID. name is for the error. */
MUST_CHECK bool listen_look(int descriptor, const char *name, struct listen_about *ret_about,
                            struct error *err);

#endif

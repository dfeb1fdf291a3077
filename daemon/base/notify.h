/*
 * notify: the service manager, as sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3) have it.
 *
 * Purpose    Says how we are, in one datagram to the address in NOTIFY_SOCKET; learns how often it wants
 *            to hear of us, and takes over the sockets that it has opened. Without its variables every
 *            call does nothing.
 * Ownership  None; descriptors taken over are the caller's.
 * Threads    notify_take_sockets before the first thread, the rest from any.
 * Failure    A message that cannot be sent is dropped, as the manual advises.
 */
#ifndef NEEDLED_NOTIFY_H
#define NEEDLED_NOTIFY_H

#include "daemon/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOTIFY_SOCKETS_MAX 8
#define NOTIFY_TEXT_BYTES 512

bool notify_is_heard(void); /* somebody listens */
/* "READY=1", "STOPPING=1", "STATUS=...", one or several lines. Lost where the manager reads none for
 * half a second. */
void notify_send(const char *message);
/* "STATUS=" and the text, whose control bytes become spaces; it is cut at NOTIFY_TEXT_BYTES. */
void notify_status(const char *text);
/* Asks for that much more time in a start or stop that lasts, from now on. */
void notify_extend(int64_t more_ns);

/* How long the manager waits for a ping before it ends us; 0: it does not. */
int64_t notify_watchdog_ns(void);

struct notify_socket {
    int descriptor;
    char name[64]; /* its FileDescriptorName, "" without one */
};
/* Closed on exec from here on, and the variables are gone: children do not believe they are theirs. None
 * where the variables speak to another process. More than fit, and numbers that are none, are
 * ERR_INVALID. */
MUST_CHECK bool notify_take_sockets(struct notify_socket ret_sockets[NOTIFY_SOCKETS_MAX],
                                    size_t *ret_count, struct error *err);

#endif

/*
 * notify: tells the service manager how we are.
 *
 * Purpose    sd_notify(3)'s protocol: one datagram to the address in NOTIFY_SOCKET. Without the
 *            variable every call does nothing.
 * Ownership  None.
 * Threads    Any.
 * Failure    A message that cannot be sent is dropped, as the manual advises.
 */
#ifndef NEEDLED_NOTIFY_H
#define NEEDLED_NOTIFY_H

/* "READY=1", "STOPPING=1", "STATUS=...", one or several lines. */
void notify_send(const char *message);

#endif

/*
 * service: the daemon as whoever runs it sees it: signals, and what a service manager is told.
 *
 * Purpose    While it runs: waits for signals, says what is trained and that everything moves, has the
 *            settings read again. While it starts or stops, which may last: asks for time, and hears
 *            the signal that wants it to be quick.
 * Ownership  The parts are borrowed for the call.
 * Threads    main's alone; a thread of its own looks whether the server answers, another one keeps the
 *            manager patient.
 * Failure    Without a thread for one of these the log says what is missing, and all else goes on.
 */
#ifndef NEEDLED_SERVICE_H
#define NEEDLED_SERVICE_H

#include "daemon/base/error.h"

#include <stdatomic.h>

struct scheduler;
struct server;

struct service_parts {
    struct server *server;
    struct scheduler *scheduler;
    bool (*reload)(void *context,
                   struct error *err); /* for SIGHUP; on failure nothing has changed */
    /* Asked every second; true ends the wait as a signal does: what it stands on is gone for good. */
    bool (*is_over)(void *context);
    void *context;
};

/* SIGTERM, SIGINT and SIGHUP wait for us from here on; before the first thread, which inherits it. */
MUST_CHECK bool service_take_signals(struct error *err);

/* Around a start: SIGTERM ends the process at once, a start can be cut anywhere. */
void service_begin_start(void);
void service_end_start(void);

/* Ready. Returns the number of the signal that ends it, 0 for is_over. */
int service_wait(const struct service_parts *parts);

/* Around a stop: a second SIGTERM sets *hurry. */
void service_begin_stop(atomic_bool *hurry);
void service_end_stop(void);

#endif

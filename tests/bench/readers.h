/*
 * readers: many clients of event streams, in one thread.
 *
 * Purpose    Opens two streams, in turn, often, and notes when each reader had got how far: the
 *            number of its last whole event and the time. Nothing else is done with what comes, and
 *            between two looks the thread sleeps, so that the readers take little of the machine
 *            they share with the daemon.
 * Ownership  readers_open / readers_close; arrivals live until then.
 * Threads    One of its own between open and stop.
 * Failure    A stream that is refused or ends is told by readers_stop.
 */
#ifndef NEEDLED_BENCH_READERS_H
#define NEEDLED_BENCH_READERS_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define READERS_NAP_MS 3 /* between looks: a delay is measured up to that much too long */

struct readers;

struct arrival {
    int64_t at_ns; /* wall clock, as the events' own times */
    int64_t number;
    uint32_t reader;
};

/* after: the number of the last event that is not wanted, in both streams. Returns when every stream has
 * begun. */
MUST_CHECK bool readers_open(int port, const char *const paths[2], int64_t after, size_t count,
                             struct readers **ret_readers, struct error *err);
/* Waits until every reader has that event; false after so long. */
bool readers_wait(const struct readers *readers, int64_t number, double seconds);
/* Ends the thread; arrivals in the order in which they came. */
MUST_CHECK bool readers_stop(struct readers *readers, const struct arrival **ret_arrivals,
                             size_t *ret_count, double *ret_cpu_s, struct error *err);
void readers_close(struct readers *readers); /* NULL is fine */

#endif

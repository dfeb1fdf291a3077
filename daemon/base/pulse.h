/*
 * pulse: how a thread that works for long shows that it moves.
 *
 * Purpose    A worker counts as it goes, between layers and lines, so that a long step can be told from a
 *            hang without the worker being asked.
 * Ownership  The caller's storage, zeroed; it outlives the thread's work.
 * Threads    pulse_begin, pulse_beat and pulse_end on the thread itself; pulse_rest_ns from any.
 * Failure    None. A thread that never began has nothing to show, and its beats do nothing.
 */
#ifndef NEEDLED_PULSE_H
#define NEEDLED_PULSE_H

#include <stdatomic.h>
#include <stdint.h>

struct pulse {
    _Atomic int64_t beat_ns; /* the last one, by the monotonic clock; 0: not at work */
};

void pulse_begin(struct pulse *pulse); /* work begins: this thread's beats go there */
void pulse_beat(void);
void pulse_end(void);

/* For how long a thread at work has shown nothing; 0: it is not at work. */
int64_t pulse_rest_ns(const struct pulse *pulse, int64_t now_ns);

#endif

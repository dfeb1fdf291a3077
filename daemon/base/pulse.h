/*
 * pulse: how a thread that works for long shows that it moves.
 *
 * Purpose    A thread at work beats as it goes, between layers, lines and files, so that a long step can be
 *            told from a hang without the thread being asked. One that waits for work owes nothing until
 *            there is some.
 * Ownership  The caller's storage, zeroed; it outlives the thread's work.
 * Threads    pulse_owe and pulse_rest_ns from any, the rest on the thread itself. Whoever hands it work
 *            owes and whoever waits pauses under the lock of that work: else a pause may hide what is owed.
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
void pulse_pause(void); /* it waits for work; the next beat ends that */
void pulse_end(void);
void pulse_owe(struct pulse *pulse); /* there is work: from now on, unless it is at work already */

/* For how long a thread at work has shown nothing; 0: it is not at work. */
int64_t pulse_rest_ns(const struct pulse *pulse, int64_t now_ns);

#endif

/*
 * clock: the time, in the two kinds that must not be mixed up.
 *
 * Purpose    Durations and timeouts come from the monotonic clock, dates from the wall clock.
 * Ownership  None.
 * Threads    Any.
 * Failure    Cannot fail.
 */
#ifndef NEEDLED_CLOCK_H
#define NEEDLED_CLOCK_H

#include <stdint.h>

int64_t clock_monotonic_ns(void);
int64_t clock_unix_s(void);
int64_t clock_unix_ms(void);

#endif

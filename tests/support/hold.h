/*
 * hold: jobs that stand still, so that what a test does meanwhile does not race with their end.
 *
 * Purpose    Every job of this process stands still once it has made so many steps, the last of them not
 *            told yet, until it is let go or the holding ends. A worker notes each whole step in a file
 *            (daemon/sched/place.h): the pwrite of it is ours.
 * Ownership  None: it holds for the process.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_HOLD_H
#define NEEDLED_HOLD_H

#include <stdbool.h>
#include <stdint.h>

void hold_steps(int64_t step);
void hold_let_go(void);
void hold_end(bool ends); /* true: a stop is asked for, which those that are held must hear of */

#endif

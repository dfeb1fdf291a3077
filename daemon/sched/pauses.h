/*
 * pauses: a job held back by hand, and let go again.
 *
 * Purpose    A queued job waits, a running one stops at its last whole step and keeps that; resumed, it is
 *            queued at the place it had. The answer to either, by the job's state:
 *
 *              validating_files  pause: refused, its files are being read; resume: nothing to do
 *              queued, running   pause: paused;                            resume: nothing to do
 *              paused            pause: nothing to do;                     resume: queued
 *              ended             refused
 *
 *            What asks for nothing succeeds, so that a repeated call is harmless. A job that ends in the
 *            moment it is paused stays paused: resumed, it makes its last steps again.
 * Ownership  Everything is borrowed.
 * Threads    The scheduler's.
 * Failure    ERR_CONFLICT where it is refused; ERR_NOT_FOUND.
 */
#ifndef NEEDLED_PAUSES_H
#define NEEDLED_PAUSES_H

#include "daemon/sched/mailbox.h"

mailbox_function pauses_pause;  /* const char: the job's id */
mailbox_function pauses_resume; /* the same */

#endif

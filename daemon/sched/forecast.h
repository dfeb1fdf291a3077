/*
 * forecast: where a waiting job stands, when it is expected to start, when a running one to end.
 *
 * Purpose    The rule, in words. A running job needs its steps left at the mean pace of those it has made in
 *            this run (slots.h). A waiting one needs its tokens in all epochs, less the part it has made
 *            already, at the last rate measured on that device with that base and setting (rates.h); a
 *            training file of which a part is held out counts without that part.
 *              Those that wait are given, in their order, the slot that comes free first of the devices
 *            they are for (placement.h), and start then. What is not known stays unknown: the end of a
 *            job that has made no step yet or whose rate was never measured, and who could only start
 *            after it. A job kept from a free device by memory or disk space has no expected start, and
 *            holds up nobody. Work that is still to be created, failures, and what jobs on one device cost
 *            one another are not in it.
 * Ownership  Answers are plain values.
 * Threads    Any, with the caller's store.
 * Failure    The store's. Only the first of the line (FORECAST_MAX) have an expected start.
 */
#ifndef NEEDLED_FORECAST_H
#define NEEDLED_FORECAST_H

#include "daemon/sched/queue.h"

#define FORECAST_MAX 256

struct job_outlook;

/* One for each of the jobs, as they were read. */
MUST_CHECK bool forecast_jobs(struct queue *queue, struct store *store,
                              const struct job_record *jobs, size_t count,
                              struct job_outlook *ret_outlooks, struct error *err);

#endif

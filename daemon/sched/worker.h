/*
 * worker: the thread of one device: claims a job, trains it, says how it ended.
 *
 * Purpose    Opens the device's backend once, then runs one job after the other through the trainer;
 *            a failed job never stops the next.
 * Ownership  worker_start; the thread ends by itself once the mailbox's news are stopped.
 * Threads    One a device, with its own store, backend and recorder.
 * Failure    A device that cannot be opened or fails goes out of service, with its reason.
 */
#ifndef NEEDLED_WORKER_H
#define NEEDLED_WORKER_H

#include "daemon/base/error.h"

#include <pthread.h>

struct queue;
struct worker;

MUST_CHECK bool worker_start(struct queue *queue, size_t slot, struct worker **ret_worker,
                             struct error *err);
pthread_t worker_thread(const struct worker *worker);
void worker_free(struct worker *worker); /* after its thread was joined; NULL is fine */

#endif

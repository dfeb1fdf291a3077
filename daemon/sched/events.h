/*
 * events: who waits for news of which job.
 *
 * Purpose    Writers say "job X has new rows" after their commit; streams registered for that job
 *            are woken. The rows themselves are read from the store, so a slow reader costs no
 *            memory.
 * Ownership  events_feed_new / _free; a listener is embedded in the caller's connection and is
 *            removed before it dies.
 * Threads    Any. wake is called with the feed's lock held: it must only set a flag or resume a
 *            connection.
 * Failure    None.
 */
#ifndef NEEDLED_SCHED_EVENTS_H
#define NEEDLED_SCHED_EVENTS_H

#include "store/store.h"

struct events_listener {
    char job_id[STORE_ID_SIZE]; /* "" hears of every job */
    void (*wake)(void *context);
    void *context;
    struct events_listener *next, *previous; /* the feed's */
};

struct events_feed;

struct events_feed *events_feed_new(void);       /* NULL without memory */
void events_feed_free(struct events_feed *feed); /* no listener may be left; NULL is fine */
void events_feed_add(struct events_feed *feed, struct events_listener *listener);
void events_feed_remove(struct events_feed *feed, struct events_listener *listener);
void events_feed_publish(struct events_feed *feed, const char *job_id);

#endif

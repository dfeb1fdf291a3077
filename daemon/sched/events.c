#include "daemon/sched/events.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct events_feed {
    pthread_mutex_t lock;
    struct events_listener *first; /* guarded by lock */
};

struct events_feed *events_feed_new(void)
{
    struct events_feed *feed = calloc(1, sizeof(*feed));

    if (!feed)
        return NULL;
    (void)pthread_mutex_init(&feed->lock, NULL); /* cannot fail with default attributes */
    return feed;
}

void events_feed_free(struct events_feed *feed)
{
    if (!feed)
        return;
    assert(!feed->first);
    (void)pthread_mutex_destroy(&feed->lock); /* nobody holds it */
    free(feed);
}

void events_feed_add(struct events_feed *feed, struct events_listener *listener)
{
    assert(listener->wake);
    (void)pthread_mutex_lock(&feed->lock);
    listener->previous = NULL;
    listener->next = feed->first;
    if (feed->first)
        feed->first->previous = listener;
    feed->first = listener;
    (void)pthread_mutex_unlock(&feed->lock);
}

void events_feed_remove(struct events_feed *feed, struct events_listener *listener)
{
    (void)pthread_mutex_lock(&feed->lock);
    if (listener->next)
        listener->next->previous = listener->previous;
    if (listener->previous)
        listener->previous->next = listener->next;
    else if (feed->first == listener)
        feed->first = listener->next;
    listener->next = listener->previous = NULL;
    (void)pthread_mutex_unlock(&feed->lock);
}

void events_feed_publish(struct events_feed *feed, const char *job_id)
{
    (void)pthread_mutex_lock(&feed->lock);
    for (struct events_listener *next = feed->first; next; next = next->next) {
        if (next->job_id[0] == '\0' || strcmp(next->job_id, job_id) == 0)
            next->wake(next->context);
    }
    (void)pthread_mutex_unlock(&feed->lock);
}

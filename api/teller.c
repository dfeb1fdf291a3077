#include "api/teller.h"

#include "api/stores.h"
#include "api/tail.h"
#include "daemon/base/log.h"
#include "daemon/base/pulse.h"
#include "daemon/sched/events.h"
#include "store/events.h"

#include <pthread.h>
#include <stdlib.h>

#define PAGE_ROWS 128

struct teller {
    struct events_feed *feed;
    struct stores *stores;
    teller_fn *tell;
    void *context;
    struct tail *tail;
    struct events_listener listener;
    pthread_t thread;
    struct pulse pulse;
    bool started; /* listens and runs: from teller_start to teller_stop */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool news;     /* guarded by lock */
    bool anybody;  /* guarded by lock */
    bool stopping; /* guarded by lock */

    int64_t end_row; /* the thread's: rows up to here are in the tail; -1: it holds nothing */
};

static void hear(void *context)
{
    struct teller *teller = context;

    pthread_mutex_lock(&teller->lock);
    teller->news = true;
    pulse_owe(&teller->pulse);
    pthread_cond_signal(&teller->changed);
    pthread_mutex_unlock(&teller->lock);
}

/* The next rows into the tail. more: there may be further ones. */
static bool read_page(struct teller *teller, struct store *store, bool *ret_more, struct error *err)
{
    struct event_record *events = NULL;
    size_t count = 0;

    if (teller->end_row < 0) { /* whoever waits for a row up to here reads it for himself */
        if (!events_newest_row(store, &teller->end_row, err))
            return false;
        tail_begin(teller->tail, teller->end_row);
        teller->tell(teller->context, NULL, 0);
    }
    if (!events_since_row(store, "", teller->end_row, PAGE_ROWS, &events, &count, err))
        return false;
    if (count > 0) {
        teller->end_row = events[count - 1].row;
        tail_add(teller->tail, events, count);
        teller->tell(teller->context, events, count);
    }
    *ret_more = count == PAGE_ROWS;
    events_free(events, count);
    return true;
}

static void read_news(struct teller *teller)
{
    struct store *store = NULL;
    struct error err = {0};
    bool more = true;

    if (!stores_take(teller->stores, &store, &err))
        goto failed;
    while (more) {
        if (!read_page(teller, store, &more, &err))
            goto failed;
        pulse_beat();
    }
    stores_give(teller->stores, store);
    return;
failed:
    stores_give(teller->stores, store);
    log_write(LOG_LEVEL_WARN, "new events cannot be read: %s", err.message);
    teller->end_row = -1;
    tail_begin(teller->tail, INT64_MAX);
    teller->tell(teller->context, NULL, 0);
}

static void *work(void *context)
{
    struct teller *teller = context;

    pulse_begin(&teller->pulse);
    pthread_mutex_lock(&teller->lock);
    for (;;) {
        bool anybody;

        while (!teller->news && !teller->stopping) {
            pulse_pause();
            pthread_cond_wait(&teller->changed, &teller->lock);
        }
        pulse_beat();
        if (teller->stopping)
            break;
        teller->news = false;
        anybody = teller->anybody;
        pthread_mutex_unlock(&teller->lock);
        if (anybody) {
            read_news(teller);
        } else if (teller->end_row >= 0) {
            teller->end_row = -1;
            tail_begin(teller->tail, INT64_MAX);
        }
        pthread_mutex_lock(&teller->lock);
    }
    pthread_mutex_unlock(&teller->lock);
    pulse_end();
    return NULL;
}

bool teller_start(struct events_feed *feed, struct stores *stores, teller_fn *tell, void *context,
                  struct teller **ret_teller, struct error *err)
{
    struct teller *teller = calloc(1, sizeof(*teller));

    if (!teller)
        return error_set(err, ERR_NO_MEMORY, "no memory for the event streams");
    teller->feed = feed;
    teller->stores = stores;
    teller->tell = tell;
    teller->context = context;
    teller->end_row = -1;
    teller->tail = tail_new();
    pthread_mutex_init(&teller->lock, NULL);
    pthread_cond_init(&teller->changed, NULL);
    if (!teller->tail || pthread_create(&teller->thread, NULL, work, teller) != 0) {
        teller_free(teller);
        return error_set(err, ERR_NO_MEMORY, "no memory or no thread for the event streams");
    }
    (void)pthread_setname_np(teller->thread, "streams"); /* a help in lists of threads */
    teller->started = true;
    teller->listener.wake = hear;
    teller->listener.context = teller;
    events_feed_add(feed, &teller->listener);
    *ret_teller = teller;
    return true;
}

void teller_stop(struct teller *teller)
{
    if (!teller || !teller->started)
        return;
    events_feed_remove(teller->feed, &teller->listener);
    pthread_mutex_lock(&teller->lock);
    teller->stopping = true;
    pthread_cond_signal(&teller->changed);
    pthread_mutex_unlock(&teller->lock);
    (void)pthread_join(teller->thread, NULL); /* ours, joined once: cannot fail */
    teller->started = false;
}

void teller_free(struct teller *teller)
{
    if (!teller)
        return;
    teller_stop(teller);
    tail_free(teller->tail);
    pthread_cond_destroy(&teller->changed);
    pthread_mutex_destroy(&teller->lock);
    free(teller);
}

struct tail *teller_tail(struct teller *teller)
{
    return teller->tail;
}

const struct pulse *teller_pulse(const struct teller *teller)
{
    return &teller->pulse;
}

void teller_listen(struct teller *teller, bool anybody)
{
    pthread_mutex_lock(&teller->lock);
    teller->anybody = anybody;
    pthread_mutex_unlock(&teller->lock);
}

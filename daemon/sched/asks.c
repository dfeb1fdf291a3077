#include "daemon/sched/asks.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS 100000000 /* at the stop flag, while waiting */
#define NS_PER_S 1000000000

enum ask_state { ASK_WAITING, ASK_BEGUN, ASK_ANSWERED };

struct ask {
    asks_function *function;
    void *arguments;
    const atomic_bool *stop;
    struct error *err;
    enum ask_state state; /* guarded by lock, as are the others until it is begun */
    bool ok;
    struct ask *next;
};

struct asks {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct ask *first; /* guarded by lock: in line */
    size_t count;      /* guarded by lock: in line or begun */
    bool closed;       /* guarded by lock */
};

struct asks *asks_new(void)
{
    struct asks *asks = calloc(1, sizeof(*asks));
    pthread_condattr_t monotonic;

    if (!asks)
        return NULL;
    pthread_mutex_init(&asks->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&asks->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return asks;
}

void asks_free(struct asks *asks)
{
    if (!asks)
        return;
    pthread_cond_destroy(&asks->answered);
    pthread_mutex_destroy(&asks->lock);
    free(asks);
}

static void append(struct asks *asks, struct ask *ask)
{
    struct ask **link = &asks->first;

    while (*link)
        link = &(*link)->next;
    *link = ask;
    asks->count++;
}

/* Under the lock; false when it is not in line any more. */
static bool take_back(struct asks *asks, struct ask *ask)
{
    for (struct ask **link = &asks->first; *link; link = &(*link)->next) {
        if (*link != ask)
            continue;
        *link = ask->next;
        asks->count--;
        return true;
    }
    return false;
}

static bool is_stopping(const struct ask *ask)
{
    /* Only a hint to leave earlier: nothing else is read on its account. */
    return ask->stop && atomic_load_explicit(ask->stop, memory_order_relaxed);
}

/* Under the lock. */
static bool wait_for(struct asks *asks, struct ask *ask, struct error *err)
{
    while (ask->state != ASK_ANSWERED) {
        struct timespec until;

        if (is_stopping(ask) && take_back(asks, ask))
            return error_set(err, ERR_UNAVAILABLE, "the server is stopping");
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        (void)pthread_cond_timedwait(&asks->answered, &asks->lock, &until); /* or looks again */
    }
    return ask->ok;
}

bool asks_put(struct asks *asks, asks_function *function, void *arguments, const atomic_bool *stop,
              void (*wake)(void *context), void *context, struct error *err)
{
    struct ask ask = {.function = function, .arguments = arguments, .stop = stop, .err = err};
    bool taken, ok = false;

    pthread_mutex_lock(&asks->lock);
    taken = !asks->closed && asks->count < ASKS_MAX;
    if (!taken)
        error_set(err, ERR_UNAVAILABLE,
                  asks->closed ? "the daemon is stopping"
                               : "other data sets are being read: try again in a moment");
    else
        append(asks, &ask);
    pthread_mutex_unlock(&asks->lock);
    if (!taken)
        return false;
    wake(context);
    pthread_mutex_lock(&asks->lock);
    ok = wait_for(asks, &ask, err);
    pthread_mutex_unlock(&asks->lock);
    return ok;
}

bool asks_serve(struct asks *asks, const struct asks_parts *parts)
{
    struct asks_parts own = *parts;
    struct ask *ask;
    bool ok;

    pthread_mutex_lock(&asks->lock);
    ask = asks->first;
    if (ask) {
        asks->first = ask->next;
        ask->state = ASK_BEGUN;
    }
    pthread_mutex_unlock(&asks->lock);
    if (!ask)
        return false;
    own.stop = ask->stop;
    ok = ask->function(&own, ask->arguments, ask->err);
    pthread_mutex_lock(&asks->lock);
    ask->ok = ok;
    ask->state = ASK_ANSWERED; /* the asker's again from here on */
    asks->count--;
    pthread_cond_broadcast(&asks->answered);
    pthread_mutex_unlock(&asks->lock);
    return true;
}

void asks_close(struct asks *asks)
{
    pthread_mutex_lock(&asks->lock);
    asks->closed = true;
    while (asks->first) {
        struct ask *ask = asks->first;

        asks->first = ask->next;
        asks->count--;
        error_set(ask->err, ERR_UNAVAILABLE, "the daemon is stopping");
        ask->state = ASK_ANSWERED;
    }
    pthread_cond_broadcast(&asks->answered);
    pthread_mutex_unlock(&asks->lock);
}

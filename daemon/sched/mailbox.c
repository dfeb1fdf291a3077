#include "daemon/sched/mailbox.h"

#include "daemon/base/clock.h"
#include "daemon/base/pulse.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct call {
    mailbox_function *function;
    void *arguments;
    struct error *err;
    struct call *next;
    bool ok, answered;
};

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t arrived, answered, told;
    struct call *first, **last; /* guarded by lock */
    uint64_t news;              /* guarded by lock */
    struct pulse *watched;      /* guarded by lock: of who is to take them; NULL: nobody */
    bool closed, stopping;      /* guarded by lock */
};

struct mailbox *mailbox_new(void)
{
    struct mailbox *mailbox = calloc(1, sizeof(*mailbox));
    pthread_condattr_t monotonic;

    if (!mailbox)
        return NULL;
    mailbox->last = &mailbox->first;
    /* None of these can fail with the attributes given. */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&mailbox->lock, NULL);
    (void)pthread_cond_init(&mailbox->arrived, &monotonic);
    (void)pthread_cond_init(&mailbox->answered, &monotonic);
    (void)pthread_cond_init(&mailbox->told, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return mailbox;
}

void mailbox_free(struct mailbox *mailbox)
{
    if (!mailbox)
        return;
    assert(!mailbox->first);
    (void)pthread_cond_destroy(&mailbox->arrived); /* nobody waits */
    (void)pthread_cond_destroy(&mailbox->answered);
    (void)pthread_cond_destroy(&mailbox->told);
    (void)pthread_mutex_destroy(&mailbox->lock);
    free(mailbox);
}

bool mailbox_call(struct mailbox *mailbox, mailbox_function *function, void *arguments,
                  struct error *err)
{
    struct call call = {.function = function, .arguments = arguments, .err = err};

    pulse_beat();
    (void)pthread_mutex_lock(&mailbox->lock);
    if (mailbox->closed) {
        (void)pthread_mutex_unlock(&mailbox->lock);
        return error_set_word(err, ERR_CANCELLED, "unavailable", "", "the daemon is stopping");
    }
    *mailbox->last = &call;
    mailbox->last = &call.next; /* cppcheck-suppress autoVariables ; answered before it dies */
    (void)pthread_cond_signal(&mailbox->arrived);
    while (!call.answered)
        (void)pthread_cond_wait(&mailbox->answered, &mailbox->lock);
    (void)pthread_mutex_unlock(&mailbox->lock);
    return call.ok;
}

void mailbox_serve(struct mailbox *mailbox, void *owner)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    for (;;) {
        struct call *call;

        while (!mailbox->first && !mailbox->closed)
            (void)pthread_cond_wait(&mailbox->arrived, &mailbox->lock);
        call = mailbox->first;
        if (!call)
            break;
        mailbox->first = call->next;
        if (!mailbox->first)
            mailbox->last = &mailbox->first;
        (void)pthread_mutex_unlock(&mailbox->lock);
        call->ok = call->function(owner, call->arguments, call->err);
        (void)pthread_mutex_lock(&mailbox->lock);
        call->answered = true; /* from here on it is the caller's again */
        (void)pthread_cond_broadcast(&mailbox->answered);
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
}

void mailbox_close(struct mailbox *mailbox)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    mailbox->closed = true;
    (void)pthread_cond_broadcast(&mailbox->arrived);
    (void)pthread_mutex_unlock(&mailbox->lock);
}

/* ---- news --------------------------------------------------------------------------------------- */

void mailbox_tell_news(struct mailbox *mailbox)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    mailbox->news++;
    if (mailbox->watched)
        pulse_owe(mailbox->watched);
    (void)pthread_cond_broadcast(&mailbox->told);
    (void)pthread_mutex_unlock(&mailbox->lock);
}

void mailbox_watch(struct mailbox *mailbox, struct pulse *waiter)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    mailbox->watched = waiter;
    (void)pthread_mutex_unlock(&mailbox->lock);
}

bool mailbox_wait_news(struct mailbox *mailbox, uint64_t *seen, int64_t timeout_ms)
{
    int64_t until_ns = clock_monotonic_ns() + timeout_ms * 1000000;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    bool go_on;

    (void)pthread_mutex_lock(&mailbox->lock);
    while (mailbox->news == *seen && !mailbox->stopping) {
        pulse_pause();
        if (pthread_cond_timedwait(&mailbox->told, &mailbox->lock, &until) != 0)
            break; /* the time is over */
    }
    pulse_beat();
    *seen = mailbox->news;
    go_on = !mailbox->stopping;
    (void)pthread_mutex_unlock(&mailbox->lock);
    return go_on;
}

void mailbox_stop_news(struct mailbox *mailbox)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    mailbox->stopping = true;
    (void)pthread_cond_broadcast(&mailbox->told);
    (void)pthread_mutex_unlock(&mailbox->lock);
}

bool mailbox_is_stopping(struct mailbox *mailbox)
{
    bool stopping;

    (void)pthread_mutex_lock(&mailbox->lock);
    stopping = mailbox->stopping;
    (void)pthread_mutex_unlock(&mailbox->lock);
    return stopping;
}

/*
 * mailbox: how other threads ask the scheduler's thread to do something, and hear of news.
 *
 * Purpose    A caller hands in a function and waits for its answer; one thread runs them in order. A
 *            counter of news wakes whoever looks for work.
 * Ownership  mailbox_new / mailbox_free; a call's arguments are borrowed until it is answered.
 * Threads    mailbox_serve on one thread, the rest from any.
 * Failure    After mailbox_close every call is ERR_CANCELLED. Each waiting thread has one call in
 *            line, so the line is as long as there are threads.
 */
#ifndef NEEDLED_MAILBOX_H
#define NEEDLED_MAILBOX_H

#include "daemon/base/error.h"

#include <stdint.h>

struct mailbox;
struct pulse;

/* Runs on the serving thread; owner is mailbox_serve's. */
typedef bool mailbox_function(void *owner, void *arguments, struct error *err);

struct mailbox *mailbox_new(void);          /* NULL without memory */
void mailbox_free(struct mailbox *mailbox); /* nobody may be waiting; NULL is fine */

MUST_CHECK bool mailbox_call(struct mailbox *mailbox, mailbox_function *function, void *arguments,
                             struct error *err);
/* Runs calls until mailbox_close. */
void mailbox_serve(struct mailbox *mailbox, void *owner);
void mailbox_close(struct mailbox *mailbox); /* calls in line are still answered */

void mailbox_tell_news(struct mailbox *mailbox);
/* From now on that waiter owes a beat when there is news (pulse.h); NULL: none. */
void mailbox_watch(struct mailbox *mailbox, struct pulse *waiter);
/* Waits until there is news since *seen or the time is over, which counts as waiting for work. False
 * once nothing is to be begun any more. */
bool mailbox_wait_news(struct mailbox *mailbox, uint64_t *seen, int64_t timeout_ms);
void mailbox_stop_news(struct mailbox *mailbox); /* every waiter leaves */
bool mailbox_is_stopping(struct mailbox *mailbox);

#endif

/*
 * order: a waiting job gets another place in the line.
 *
 * Purpose    The rule, in words. The line is all that wait (validating_files, queued): a higher priority
 *            first, within one priority whoever was created first. A job that goes back to the queue has
 *            kept its place. Who stands further in front is looked at first; a job that no device can
 *            take now is passed over (placement.h).
 *              A move to a place (a position from 1, the front, the back, before or after another job)
 *                puts the job there. Its priority changes as little as that place asks: it lies between
 *                those of its neighbours. A position past the end is the back.
 *              A new priority puts it behind those that have this priority already.
 *            All others keep their order and their priorities, and who is created meanwhile goes behind
 *            those of its priority.
 * Ownership  A wish is a plain value.
 * Threads    order_read: any; order_move: the scheduler's.
 * Failure    ERR_INVALID with the field; ERR_NOT_FOUND; ERR_CONFLICT for a job that does not wait.
 */
#ifndef NEEDLED_ORDER_H
#define NEEDLED_ORDER_H

#include "daemon/sched/mailbox.h"
#include "store/store.h"

#define ORDER_PRIORITY_MAX 100 /* from its negative to this; 0 unless given */

struct json;

enum order_kind {
    ORDER_POSITION,
    ORDER_BEFORE,
    ORDER_AFTER,
    ORDER_FRONT,
    ORDER_BACK,
    ORDER_PRIORITY
};
struct order_wish {
    char job_id[STORE_ID_SIZE]; /* the caller's to set */
    enum order_kind kind;
    int64_t number;            /* POSITION, PRIORITY */
    char other[STORE_ID_SIZE]; /* BEFORE, AFTER */
};
/* {"position": n}, {"before": id}, {"after": id}, {"to": "front"|"back"} or {"priority": n}. */
MUST_CHECK bool order_read(const struct json *body, struct order_wish *ret_wish, struct error *err);
mailbox_function order_move; /* const struct order_wish; where it stands already is fine */

#endif

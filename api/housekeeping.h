/*
 * housekeeping: what has to be put away now and then.
 *
 * Purpose    Every second a thread of the pool looks whether the state folder is there and a full disk has
 *            room again; every few seconds it removes files and reserved uploads that are over, thins what
 *            the database keeps of jobs that ended, removes what is too old or too much, and writes down
 *            when keys were used.
 * Ownership  Embedded by the server; services and pool are borrowed.
 * Threads    housekeeping_tick from one thread; the work is the pool's.
 * Failure    Logged, and tried again at the next turn.
 */
#ifndef NEEDLED_API_HOUSEKEEPING_H
#define NEEDLED_API_HOUSEKEEPING_H

#include "api/pool.h"
#include "daemon/base/pulse.h"
#include "store/upkeep.h"

#include <stdatomic.h>
#include <stdint.h>

struct services;

struct housekeeping {
    struct pool_task task; /* first: the pool's view */
    struct pool *pool;
    const struct services *services;
    /* Set by tick, cleared (release) by the work as its last thing: the task is the pool's meanwhile. */
    _Atomic bool busy;
    int64_t next_ns;
    int64_t sweep_ns;     /* the work's: when the rest is done again */
    int64_t trim_ns;      /* the work's: when freed memory is given back again */
    struct upkeep upkeep; /* the work's */
    struct pulse pulse;   /* the work's */
};

void housekeeping_init(struct housekeeping *housekeeping, struct pool *pool,
                       const struct services *services);
void housekeeping_tick(struct housekeeping *housekeeping, int64_t now_ns);

#endif

/*
 * pool: the threads that do a request's work while its connection is suspended.
 *
 * Purpose    Commits, fsyncs and queries block; the library's threads serve many connections each
 *            and must not. A task is done here, then its owner resumes the connection.
 * Ownership  pool_start / pool_stop. A task is embedded in the request and untouched between submit
 *            and its `work`; `work` may free it.
 * Threads    pool_submit from any thread. The queue is as long as there are open connections (one
 *            task each), which LIMIT_CONNECTIONS bounds.
 * Failure     Threads that cannot be started are ERR_NO_MEMORY.
 */
#ifndef NEEDLED_API_POOL_H
#define NEEDLED_API_POOL_H

#include "daemon/base/error.h"

#include <stddef.h>

struct pool_task {
    void (*work)(struct pool_task *task);
    struct pool_task *next; /* the pool's */
};

struct pool;

MUST_CHECK bool pool_start(size_t thread_count, struct pool **ret_pool, struct error *err);
/* False once pool_close has begun: the task is not taken. */
MUST_CHECK bool pool_submit(struct pool *pool, struct pool_task *task);
/* Takes no more tasks, finishes the queued ones, ends the threads. The pool stays, to refuse. */
void pool_close(struct pool *pool);
void pool_stop(struct pool *pool); /* pool_close, and frees it; NULL is fine */

#endif

/*
 * pool: a fixed set of threads that shares out index ranges.
 *
 * Purpose    Splits [0, count) the same way for the same thread count, so sums keep their order.
 * Ownership  pool_open / pool_close; the context passed to a run is the caller's.
 * Threads    One thread at a time may run; it works as part 0. A body must not run the pool again
 *            (asserted). Idle threads spin for some microseconds, then sleep. Signals are blocked
 *            in them.
 * Failure    pool_open returns NULL when threads or memory run out.
 */
#ifndef NEEDLED_POOL_H
#define NEEDLED_POOL_H

#include <stddef.h>

#define POOL_MAX_THREADS 1024

struct pool;

/* Called for its share [begin, end); part < pool_thread_count, no two at once share a part. */
typedef void pool_body(void *context, size_t begin, size_t end, size_t part);

/* thread_start (may be NULL) is called once on each new thread, one after the other. */
struct pool *pool_open(size_t thread_count, void (*thread_start)(void));
void pool_close(struct pool *pool); /* NULL is fine */
size_t pool_thread_count(const struct pool *pool);

/* Contiguous shares of at least `grain` indices; one share runs on the calling thread alone. */
void pool_run(struct pool *pool, size_t count, size_t grain, pool_body *body, void *context);

/* Index by index, dealt round: part p gets p, p + parts, ... For work of uneven cost. */
void pool_deal(struct pool *pool, size_t count, pool_body *body, void *context);

#endif

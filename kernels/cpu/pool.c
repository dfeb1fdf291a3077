#include "kernels/cpu/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define SPIN_COUNT 2000
#define PARTS_BITS 16

static_assert(POOL_MAX_THREADS < 1 << PARTS_BITS, "the number of parts fits its bits");

struct worker {
    struct pool *pool;
    size_t index; /* its part, from 1 */
    pthread_t thread;
};

struct pool {
    size_t thread_count;  /* the caller's included */
    size_t started_count; /* threads to join */
    struct worker *workers;
    void (*thread_start)(void);

    /* The job: written by the caller before `ticket`, read by the parts it names until they have
     * counted `remaining` down; parts not named never look at it. */
    pool_body *body;
    void *context;
    size_t count;
    bool dealt;

    _Atomic uint64_t ticket;  /* job number and number of parts; release on write */
    _Atomic size_t remaining; /* parts not done yet, without the caller's */
    _Atomic bool busy, stopping;

    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    size_t sleeper_count; /* guarded by lock */
};

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static void run_part(const struct pool *pool, size_t parts, size_t part)
{
    if (pool->dealt) {
        for (size_t i = part; i < pool->count; i += parts)
            pool->body(pool->context, i, i + 1, part);
        return;
    }
    size_t share = pool->count / parts, rest = pool->count % parts;
    size_t begin = part * share + (part < rest ? part : rest);
    size_t end = begin + share + (part < rest);
    if (begin < end)
        pool->body(pool->context, begin, end, part);
}

/* Returns the ticket that follows `seen`; acquire makes the job's fields visible. */
static uint64_t wait_for_ticket(struct pool *pool, uint64_t seen)
{
    for (int i = 0; i < SPIN_COUNT; i++) {
        uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        if (ticket != seen)
            return ticket;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->lock);
    pool->sleeper_count++;
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while (ticket == seen) {
        pthread_cond_wait(&pool->wake, &pool->lock);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
    pool->sleeper_count--;
    pthread_mutex_unlock(&pool->lock);
    return ticket;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    uint64_t ticket = 0;

    if (pool->thread_start) {
        pthread_mutex_lock(&pool->lock);
        pool->thread_start();
        pthread_mutex_unlock(&pool->lock);
    }
    for (;;) {
        ticket = wait_for_ticket(pool, ticket);
        if (atomic_load_explicit(&pool->stopping, memory_order_acquire))
            return NULL;

        size_t parts = (size_t)(ticket & ((1u << PARTS_BITS) - 1));
        if (worker->index >= parts)
            continue;
        run_part(pool, parts, worker->index);
        /* Release: the caller sees what this part wrote once it reads 0. */
        if (atomic_fetch_sub_explicit(&pool->remaining, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void publish(struct pool *pool, size_t parts)
{
    pthread_mutex_lock(&pool->lock);
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    ticket = ((ticket >> PARTS_BITS) + 1) << PARTS_BITS | parts;
    atomic_store_explicit(&pool->ticket, ticket, memory_order_release);
    if (pool->sleeper_count)
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

static void wait_for_parts(struct pool *pool)
{
    for (int i = 0; i < SPIN_COUNT; i++) {
        if (atomic_load_explicit(&pool->remaining, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&pool->lock);
    while (atomic_load_explicit(&pool->remaining, memory_order_acquire) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static void run_job(struct pool *pool, size_t parts)
{
    bool was_busy = atomic_exchange(&pool->busy, true);
    assert(!was_busy);
    if (parts > 1) {
        atomic_store_explicit(&pool->remaining, parts - 1, memory_order_relaxed);
        publish(pool, parts);
    }
    run_part(pool, parts, 0);
    if (parts > 1)
        wait_for_parts(pool);
    atomic_store(&pool->busy, false);
}

static void start_job(struct pool *pool, size_t count, size_t parts, bool dealt, pool_body *body,
                      void *context)
{
    assert(!atomic_load(&pool->busy));
    pool->body = body;
    pool->context = context;
    pool->count = count;
    pool->dealt = dealt;
    run_job(pool, parts);
}

void pool_run(struct pool *pool, size_t count, size_t grain, pool_body *body, void *context)
{
    size_t parts = grain ? count / grain : count;

    if (count == 0)
        return;
    if (parts < 1)
        parts = 1;
    if (parts > pool->thread_count)
        parts = pool->thread_count;
    start_job(pool, count, parts, false, body, context);
}

void pool_deal(struct pool *pool, size_t count, pool_body *body, void *context)
{
    if (count == 0)
        return;
    start_job(pool, count, count < pool->thread_count ? count : pool->thread_count, true, body,
              context);
}

static bool start_threads(struct pool *pool)
{
    sigset_t all, before;
    bool ok = true;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (size_t i = 1; i < pool->thread_count && ok; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .index = i};
        ok = pthread_create(&worker->thread, NULL, worker_main, worker) == 0;
        pool->started_count += ok;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

struct pool *pool_open(size_t thread_count, void (*thread_start)(void))
{
    assert(thread_count >= 1 && thread_count <= POOL_MAX_THREADS);
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->thread_count = thread_count;
    pool->thread_start = thread_start;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->workers = calloc(thread_count, sizeof *pool->workers);
    if (!pool->workers || !start_threads(pool)) {
        pool_close(pool);
        return NULL;
    }
    return pool;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    atomic_store_explicit(&pool->stopping, true, memory_order_release);
    publish(pool, 0);
    for (size_t i = 1; i <= pool->started_count; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

size_t pool_thread_count(const struct pool *pool)
{
    return pool->thread_count;
}

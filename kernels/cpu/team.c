#include "kernels/cpu/team.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define SPIN_COUNT 2000
#define PARTS_BITS 16

static_assert(TEAM_MAX_THREADS < 1 << PARTS_BITS, "the number of parts fits its bits");

struct worker {
    struct team *team;
    size_t index; /* its part, from 1 */
    pthread_t thread;
};

struct team {
    size_t thread_count;  /* the caller's included */
    size_t started_count; /* threads to join */
    struct worker *workers;
    void (*thread_start)(void);

    /* The job: written by the caller before `ticket`, read by the parts it names until they have
     * counted `remaining` down; parts not named never look at it. */
    team_body *body;
    void *context;
    size_t count;
    bool dealt;
    _Atomic size_t next; /* index to be dealt; who takes which is nobody's business: relaxed */

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

static void run_part(struct team *team, size_t parts, size_t part)
{
    if (team->dealt) {
        size_t i;
        while ((i = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed)) < team->count)
            team->body(team->context, i, i + 1, part);
        return;
    }
    size_t share = team->count / parts, rest = team->count % parts;
    size_t begin = part * share + (part < rest ? part : rest);
    size_t end = begin + share + (part < rest);
    if (begin < end)
        team->body(team->context, begin, end, part);
}

/* Returns the ticket that follows `seen`; acquire makes the job's fields visible. */
static uint64_t wait_for_ticket(struct team *team, uint64_t seen)
{
    for (int i = 0; i < SPIN_COUNT; i++) {
        uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
        if (ticket != seen)
            return ticket;
        pause_briefly();
    }
    pthread_mutex_lock(&team->lock);
    team->sleeper_count++;
    uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    while (ticket == seen) {
        pthread_cond_wait(&team->wake, &team->lock);
        ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    }
    team->sleeper_count--;
    pthread_mutex_unlock(&team->lock);
    return ticket;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct team *team = worker->team;
    uint64_t ticket = 0;

    if (team->thread_start) {
        pthread_mutex_lock(&team->lock);
        team->thread_start();
        pthread_mutex_unlock(&team->lock);
    }
    for (;;) {
        ticket = wait_for_ticket(team, ticket);
        if (atomic_load_explicit(&team->stopping, memory_order_acquire))
            return NULL;

        size_t parts = (size_t)(ticket & ((1u << PARTS_BITS) - 1));
        if (worker->index >= parts)
            continue;
        run_part(team, parts, worker->index);
        /* Release: the caller sees what this part wrote once it reads 0. */
        if (atomic_fetch_sub_explicit(&team->remaining, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&team->lock);
            pthread_cond_signal(&team->done);
            pthread_mutex_unlock(&team->lock);
        }
    }
}

static void publish(struct team *team, size_t parts)
{
    pthread_mutex_lock(&team->lock);
    uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_relaxed);
    ticket = ((ticket >> PARTS_BITS) + 1) << PARTS_BITS | parts;
    atomic_store_explicit(&team->ticket, ticket, memory_order_release);
    if (team->sleeper_count)
        pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

static void wait_for_parts(struct team *team)
{
    for (int i = 0; i < SPIN_COUNT; i++) {
        if (atomic_load_explicit(&team->remaining, memory_order_acquire) == 0)
            return;
        pause_briefly();
    }
    pthread_mutex_lock(&team->lock);
    while (atomic_load_explicit(&team->remaining, memory_order_acquire) != 0)
        pthread_cond_wait(&team->done, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

static void run_job(struct team *team, size_t parts)
{
    bool was_busy = atomic_exchange(&team->busy, true);
    assert(!was_busy);
    if (parts > 1) {
        atomic_store_explicit(&team->remaining, parts - 1, memory_order_relaxed);
        publish(team, parts);
    }
    run_part(team, parts, 0);
    if (parts > 1)
        wait_for_parts(team);
    atomic_store(&team->busy, false);
}

static void start_job(struct team *team, size_t count, size_t parts, bool dealt, team_body *body,
                      void *context)
{
    assert(!atomic_load(&team->busy));
    team->body = body;
    team->context = context;
    team->count = count;
    team->dealt = dealt;
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    run_job(team, parts);
}

void team_run(struct team *team, size_t count, size_t grain, team_body *body, void *context)
{
    size_t parts = grain ? count / grain : count;

    if (count == 0)
        return;
    if (parts < 1)
        parts = 1;
    if (parts > team->thread_count)
        parts = team->thread_count;
    start_job(team, count, parts, false, body, context);
}

void team_deal(struct team *team, size_t count, team_body *body, void *context)
{
    if (count == 0)
        return;
    start_job(team, count, count < team->thread_count ? count : team->thread_count, true, body,
              context);
}

static bool start_threads(struct team *team)
{
    sigset_t all, before;
    bool ok = true;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (size_t i = 1; i < team->thread_count && ok; i++) {
        struct worker *worker = &team->workers[i];
        *worker = (struct worker){.team = team, .index = i};
        ok = pthread_create(&worker->thread, NULL, worker_main, worker) == 0;
        team->started_count += ok;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

struct team *team_open(size_t thread_count, void (*thread_start)(void))
{
    assert(thread_count >= 1 && thread_count <= TEAM_MAX_THREADS);
    struct team *team = calloc(1, sizeof *team);
    if (!team)
        return NULL;
    team->thread_count = thread_count;
    team->thread_start = thread_start;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    pthread_cond_init(&team->done, NULL);
    team->workers = calloc(thread_count, sizeof *team->workers);
    if (!team->workers || !start_threads(team)) {
        team_close(team);
        return NULL;
    }
    return team;
}

void team_close(struct team *team)
{
    if (!team)
        return;
    atomic_store_explicit(&team->stopping, true, memory_order_release);
    publish(team, 0);
    for (size_t i = 1; i <= team->started_count; i++)
        pthread_join(team->workers[i].thread, NULL);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    free(team->workers);
    free(team);
}

size_t team_thread_count(const struct team *team)
{
    return team->thread_count;
}

#include "api/housekeeping.h"

#include "api/keyring.h"
#include "api/request.h"
#include "api/stores.h"
#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/scheduler.h"

#include <malloc.h>

#define BETWEEN_NS INT64_C(1000000000) /* looks at the state folder */
#define SWEEP_NS INT64_C(5000000000)   /* the rest */
#define TRIM_NS INT64_C(30000000000)   /* freed memory goes back to the system */
#define GONE_KEPT_S 86400              /* where a deleted record stood in its list */
#define WHOLE_KEPT_S 3600              /* every step of a job that ended */

void housekeeping_init(struct housekeeping *housekeeping, struct pool *pool,
                       const struct services *services)
{
    *housekeeping = (struct housekeeping){.pool = pool, .services = services};
}

/* A reader that was behind when its job ended has had the time to read it all. */
static bool keep_small(struct housekeeping *housekeeping, struct store *store, struct error *err)
{
    const struct services *services = housekeeping->services;
    const int64_t now_unix_s = clock_unix_s();
    bool more = services->metrics_kept > 0;

    if (!upkeep_forget(store, now_unix_s - GONE_KEPT_S, err))
        return false;
    while (more && !atomic_load_explicit(services->stopping, memory_order_relaxed)) { /* a hint */
        if (!upkeep_thin(store, &housekeeping->upkeep, (int64_t)services->metrics_kept,
                         now_unix_s - WHOLE_KEPT_S, &more, err))
            return false;
        pulse_beat();
    }
    return true;
}

static void work(struct pool_task *task)
{
    struct housekeeping *housekeeping = (struct housekeeping *)task; /* its first member */
    const struct services *services = housekeeping->services;
    const int64_t now_ns = clock_monotonic_ns();
    struct store *store = NULL;
    struct error err = {0};

    pulse_begin(&housekeeping->pulse);
    scheduler_look_at_disk(services->scheduler);
    if (now_ns < housekeeping->sweep_ns || !scheduler_check_state(services->scheduler, NULL))
        goto out;
    housekeeping->sweep_ns = now_ns + SWEEP_NS;
    if (!stores_take(services->stores, &store, &err) ||
        !datasets_sweep(services->state_folder, store, &err))
        log_write(LOG_LEVEL_WARN, "put away what is over: %s", err.message);
    if (store && !keyring_save_uses(services->keyring, store, &err))
        log_write(LOG_LEVEL_WARN, "keep when keys were used: %s", err.message);
    if (store && !keep_small(housekeeping, store, &err))
        log_write(LOG_LEVEL_WARN, "thin what is kept of ended jobs: %s", err.message);
    if (store && !scheduler_sweep(services->scheduler, store, &err))
        log_write(LOG_LEVEL_WARN, "remove what is too old: %s", err.message);
    (void)scheduler_report_disk(services->scheduler, &err, false); /* looked at again in a while */
    stores_give(services->stores, store);
    if (now_ns >= housekeeping->trim_ns) { /* jobs come and go on many threads, each with a heap */
        housekeeping->trim_ns = now_ns + TRIM_NS;
        (void)malloc_trim(0);
    }
out:
    pulse_end();
    atomic_store_explicit(&housekeeping->busy, false, memory_order_release);
}

void housekeeping_tick(struct housekeeping *housekeeping, int64_t now_ns)
{
    if (now_ns < housekeeping->next_ns ||
        atomic_load_explicit(&housekeeping->busy, memory_order_acquire))
        return;
    housekeeping->next_ns = now_ns + BETWEEN_NS;
    housekeeping->task.work = work;
    atomic_store_explicit(&housekeeping->busy, true, memory_order_relaxed);
    if (!pool_submit(housekeeping->pool, &housekeeping->task)) /* the server stops */
        atomic_store_explicit(&housekeeping->busy, false, memory_order_relaxed);
}

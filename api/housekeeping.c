#include "api/housekeeping.h"

#include "api/keyring.h"
#include "api/request.h"
#include "api/stores.h"
#include "daemon/base/log.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/scheduler.h"

#define BETWEEN_NS INT64_C(5000000000)

void housekeeping_init(struct housekeeping *housekeeping, struct pool *pool,
                       const struct services *services)
{
    *housekeeping = (struct housekeeping){.pool = pool, .services = services};
}

static void work(struct pool_task *task)
{
    struct housekeeping *housekeeping = (struct housekeeping *)task; /* its first member */
    const struct services *services = housekeeping->services;
    struct store *store = NULL;
    struct error err = {0};

    if (!stores_take(services->stores, &store, &err) ||
        !datasets_sweep(services->state_folder, store, &err))
        log_write(LOG_LEVEL_WARN, "put away what is over: %s", err.message);
    if (store && !keyring_save_uses(services->keyring, store, &err))
        log_write(LOG_LEVEL_WARN, "keep when keys were used: %s", err.message);
    (void)scheduler_report_disk(services->scheduler, &err); /* looked at again in a while */
    scheduler_look_at_disk(services->scheduler);
    stores_give(services->stores, store);
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

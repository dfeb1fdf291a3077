#include "api/stores.h"

#include "store/store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define STORES_KEPT 12 /* idle handles kept open; more are closed when they come back */

struct stores {
    char *database_path;
    pthread_mutex_t lock;
    struct store *idle[STORES_KEPT]; /* guarded by lock */
    size_t idle_count;               /* guarded by lock */
    uint64_t busy_count;             /* guarded by lock */
    bool copying;                    /* guarded by lock */
};

struct stores *stores_new(const char *database_path)
{
    struct stores *stores = calloc(1, sizeof(*stores));

    assert(database_path);
    if (!stores)
        return NULL;
    stores->database_path = strdup(database_path);
    if (!stores->database_path) {
        free(stores);
        return NULL;
    }
    pthread_mutex_init(&stores->lock, NULL);
    return stores;
}

void stores_free(struct stores *stores)
{
    if (!stores)
        return;
    for (size_t i = 0; i < stores->idle_count; i++)
        store_close(stores->idle[i]);
    pthread_mutex_destroy(&stores->lock);
    free(stores->database_path);
    free(stores);
}

bool stores_take(struct stores *stores, struct store **ret_store, struct error *err)
{
    struct store *store = NULL;

    pthread_mutex_lock(&stores->lock);
    if (stores->idle_count > 0)
        store = stores->idle[--stores->idle_count];
    pthread_mutex_unlock(&stores->lock);

    if (!store && !store_open(stores->database_path, false, &store, err))
        return false;
    *ret_store = store;
    return true;
}

void stores_give(struct stores *stores, struct store *store)
{
    uint64_t busy_count;

    if (!store)
        return;
    busy_count = store_take_busy_count(store);
    pthread_mutex_lock(&stores->lock);
    stores->busy_count += busy_count;
    if (stores->idle_count < STORES_KEPT) {
        stores->idle[stores->idle_count++] = store;
        store = NULL;
    }
    pthread_mutex_unlock(&stores->lock);
    store_close(store);
}

const char *stores_path(const struct stores *stores)
{
    return stores->database_path;
}

uint64_t stores_busy_count(struct stores *stores)
{
    uint64_t count;

    pthread_mutex_lock(&stores->lock);
    count = stores->busy_count;
    pthread_mutex_unlock(&stores->lock);
    return count;
}

bool stores_begin_copy(struct stores *stores, struct error *err)
{
    bool free_now;

    pthread_mutex_lock(&stores->lock);
    free_now = !stores->copying;
    stores->copying = true;
    pthread_mutex_unlock(&stores->lock);
    return free_now ||
           error_set(err, ERR_UNAVAILABLE, "another backup is being made: ask again in a moment");
}

void stores_end_copy(struct stores *stores)
{
    pthread_mutex_lock(&stores->lock);
    stores->copying = false;
    pthread_mutex_unlock(&stores->lock);
}

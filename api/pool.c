#include "api/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pool_task *first, *last; /* guarded by lock */
    bool closing;                   /* guarded by lock */
    size_t thread_count;            /* 0 after pool_close */
    pthread_t threads[];
};

static struct pool_task *pool_next(struct pool *pool)
{
    struct pool_task *task;

    pthread_mutex_lock(&pool->lock);
    while (!pool->first && !pool->closing)
        pthread_cond_wait(&pool->changed, &pool->lock);
    task = pool->first;
    if (task) {
        pool->first = task->next;
        if (!pool->first)
            pool->last = NULL;
    }
    pthread_mutex_unlock(&pool->lock);
    return task;
}

static void *pool_run(void *context)
{
    struct pool *pool = context;
    struct pool_task *task;

    while ((task = pool_next(pool)))
        task->work(task);
    return NULL;
}

bool pool_start(size_t thread_count, struct pool **ret_pool, struct error *err)
{
    struct pool *pool = calloc(1, sizeof(*pool) + thread_count * sizeof(pool->threads[0]));

    assert(thread_count > 0);
    if (!pool)
        return error_set(err, ERR_NO_MEMORY, "no memory for the request threads");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    while (pool->thread_count < thread_count) {
        if (pthread_create(&pool->threads[pool->thread_count], NULL, pool_run, pool) != 0) {
            pool_stop(pool);
            return error_set(err, ERR_NO_MEMORY, "the system refused a thread for requests");
        }
        pool->thread_count++;
    }
    *ret_pool = pool;
    return true;
}

bool pool_submit(struct pool *pool, struct pool_task *task)
{
    bool taken = false;

    assert(task->work);
    task->next = NULL;
    pthread_mutex_lock(&pool->lock);
    if (!pool->closing) {
        if (pool->last)
            pool->last->next = task;
        else
            pool->first = task;
        pool->last = task;
        taken = true;
        pthread_cond_signal(&pool->changed);
    }
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

void pool_close(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < pool->thread_count; i++)
        (void)pthread_join(pool->threads[i], NULL); /* ours, joined once: cannot fail */
    pool->thread_count = 0;
}

void pool_stop(struct pool *pool)
{
    if (!pool)
        return;
    pool_close(pool);
    assert(!pool->first);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

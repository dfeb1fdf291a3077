#include "daemon/sched/recorder.h"

#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/events.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_MAX 256
#define BATCH_NS 50000000     /* between commits: an event waits so long at most */
#define RETRY_NS 1000000000   /* between tries of a commit that failed */
#define PATIENCE_NS 100000000 /* between looks at the stop flag while waiting for room */
#define MESSAGE_BYTES 512

struct batch {
    struct event_draft drafts[BATCH_MAX];
    size_t count;
    bool has_progress;
    struct recorder_progress progress;
};

struct recorder {
    pthread_t thread;
    struct store *store; /* the thread's */
    struct disk *disk;
    struct events_feed *feed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct batch waiting;       /* guarded by lock */
    struct batch writing;       /* the thread's while in_flight */
    bool in_flight;             /* guarded by lock */
    bool hurry;                 /* guarded by lock: somebody waits for the commit */
    bool closing;               /* guarded by lock */
    char job_id[STORE_ID_SIZE]; /* guarded by lock; unchanged while anything waits */
    const atomic_bool *stop;    /* as job_id */
};

static void wait_until(struct recorder *recorder, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};

    (void)pthread_cond_timedwait(&recorder->changed, &recorder->lock, &until);
}

static bool is_stopped(const struct recorder *recorder)
{
    /* acquire: what was set before the flag is seen too */
    return recorder->stop && atomic_load_explicit(recorder->stop, memory_order_acquire);
}

/* ---- the thread ----------------------------------------------------------------------------------- */

static bool write_batch(struct recorder *recorder, struct error *err)
{
    const struct batch *batch = &recorder->writing;

    return events_append(recorder->store, recorder->job_id, batch->drafts, batch->count,
                         batch->has_progress ? batch->progress.completed_steps : -1,
                         batch->progress.trained_tokens, batch->progress.train_loss, err);
}

/* Outside the lock: writes until it is done, given up, or not wanted any more. */
static void commit_batch(struct recorder *recorder)
{
    bool told = false;

    for (;;) {
        struct error err = {0};
        bool over;

        if (write_batch(recorder, &err)) {
            events_feed_publish(recorder->feed, recorder->job_id);
            return;
        }
        if (err.code == ERR_CONFLICT)
            return; /* the job has ended: its last word is said */
        if (!told)
            log_write_for(LOG_LEVEL_ERROR, "job", recorder->job_id, "keep events: %s", err.message);
        told = true;
        if (disk_report(recorder->disk, &err))
            continue; /* there is room for it now */
        (void)pthread_mutex_lock(&recorder->lock);
        over = recorder->closing || is_stopped(recorder);
        if (!over)
            wait_until(recorder, clock_monotonic_ns() + RETRY_NS);
        (void)pthread_mutex_unlock(&recorder->lock);
        if (over)
            return;
    }
}

static void release_batch(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        free((char *)(uintptr_t)batch->drafts[i].message); /* ours: the store only borrows */
        free((char *)(uintptr_t)batch->drafts[i].data_json);
    }
    batch->count = 0;
    batch->has_progress = false;
}

static void *serve(void *context)
{
    struct recorder *recorder = context;
    int64_t next_ns = 0; /* what comes after a pause is written at once */

    (void)pthread_mutex_lock(&recorder->lock);
    for (;;) {
        while (recorder->waiting.count == 0 && !recorder->closing)
            (void)pthread_cond_wait(&recorder->changed, &recorder->lock);
        if (recorder->waiting.count == 0)
            break;
        while (!recorder->hurry && !recorder->closing && recorder->waiting.count < BATCH_MAX &&
               clock_monotonic_ns() < next_ns)
            wait_until(recorder, next_ns);
        next_ns = clock_monotonic_ns() + BATCH_NS;
        recorder->writing = recorder->waiting;
        recorder->waiting.count = 0;
        recorder->waiting.has_progress = false;
        recorder->in_flight = true;
        (void)pthread_cond_broadcast(&recorder->changed); /* there is room */
        (void)pthread_mutex_unlock(&recorder->lock);
        commit_batch(recorder);
        release_batch(&recorder->writing);
        (void)pthread_mutex_lock(&recorder->lock);
        recorder->in_flight = false;
        (void)pthread_cond_broadcast(&recorder->changed);
    }
    (void)pthread_mutex_unlock(&recorder->lock);
    return NULL;
}

/* ---- the worker's side ------------------------------------------------------------------------------ */

bool recorder_open(const char *database_path, struct disk *disk, struct events_feed *feed,
                   struct recorder **ret_recorder, struct error *err)
{
    struct recorder *recorder = calloc(1, sizeof(*recorder));
    pthread_condattr_t monotonic;
    int code;

    if (!recorder)
        return error_set(err, ERR_NO_MEMORY, "no memory for a recorder");
    if (!store_open(database_path, false, &recorder->store, err)) {
        free(recorder);
        return false;
    }
    recorder->disk = disk;
    recorder->feed = feed;
    /* None of these can fail with the attributes given. */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&recorder->lock, NULL);
    (void)pthread_cond_init(&recorder->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    code = pthread_create(&recorder->thread, NULL, serve, recorder);
    if (code != 0) {
        error_set(err, ERR_NO_MEMORY, "start a thread: %s", strerrordesc_np(code));
        store_close(recorder->store);
        free(recorder);
        return false;
    }
    *ret_recorder = recorder;
    return true;
}

void recorder_close(struct recorder *recorder)
{
    if (!recorder)
        return;
    (void)pthread_mutex_lock(&recorder->lock);
    recorder->closing = true;
    (void)pthread_cond_broadcast(&recorder->changed);
    (void)pthread_mutex_unlock(&recorder->lock);
    (void)pthread_join(recorder->thread, NULL); /* ours, and joined once */
    (void)pthread_cond_destroy(&recorder->changed);
    (void)pthread_mutex_destroy(&recorder->lock);
    store_close(recorder->store);
    free(recorder);
}

void recorder_begin(struct recorder *recorder, const char *job_id, const atomic_bool *stop)
{
    recorder_drain(recorder);
    (void)pthread_mutex_lock(&recorder->lock);
    (void)snprintf(recorder->job_id, sizeof(recorder->job_id), "%s", job_id);
    recorder->stop = stop;
    (void)pthread_mutex_unlock(&recorder->lock);
}

static bool wait_for_room(struct recorder *recorder)
{
    while (recorder->waiting.count == BATCH_MAX) {
        if (is_stopped(recorder))
            return false;
        wait_until(recorder, clock_monotonic_ns() + PATIENCE_NS);
    }
    return true;
}

bool recorder_add(struct recorder *recorder, enum event_level level, const char *type,
                  struct json *data, const struct recorder_progress *progress, const char *format,
                  ...)
{
    struct batch *waiting = &recorder->waiting;
    char *message = malloc(MESSAGE_BYTES), *data_text = NULL;
    bool is_short = false;
    va_list arguments;

    if (!message || (data && !json_print_text(data, &data_text, NULL))) {
        log_write_for(LOG_LEVEL_ERROR, "job", recorder->job_id, "no memory for an event");
        is_short = true;
        goto drop;
    }
    va_start(arguments, format);
    (void)vsnprintf(message, MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    (void)pthread_mutex_lock(&recorder->lock);
    if (!wait_for_room(recorder)) {
        (void)pthread_mutex_unlock(&recorder->lock);
        goto drop;
    }
    if (waiting->count == 0)
        (void)pthread_cond_broadcast(&recorder->changed);
    waiting->drafts[waiting->count++] = (struct event_draft){.level = level,
                                                             .type = type,
                                                             .message = message,
                                                             .data_json = data_text,
                                                             .created_unix_s = clock_unix_s()};
    if (progress) {
        waiting->progress = *progress;
        waiting->has_progress = true;
    }
    if (waiting->count == BATCH_MAX)
        (void)pthread_cond_broadcast(&recorder->changed);
    (void)pthread_mutex_unlock(&recorder->lock);
    json_free(data);
    return true;
drop:
    free(message);
    free(data_text);
    json_free(data);
    return !is_short;
}

void recorder_drain(struct recorder *recorder)
{
    (void)pthread_mutex_lock(&recorder->lock);
    recorder->hurry = true;
    (void)pthread_cond_broadcast(&recorder->changed);
    while (recorder->waiting.count > 0 || recorder->in_flight)
        (void)pthread_cond_wait(&recorder->changed, &recorder->lock);
    recorder->hurry = false;
    (void)pthread_mutex_unlock(&recorder->lock);
}

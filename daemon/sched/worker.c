#include "daemon/sched/worker.h"

#include "daemon/base/log.h"
#include "daemon/sched/run.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN_MS 5000 /* without news: disk space may have come back */

struct worker {
    pthread_t thread;
    struct run_parts parts;
};

static const struct device *device_of(const struct worker *worker)
{
    return slots_device(&worker->parts.queue->slots, worker->parts.slot);
}

static void take_out_of_service(struct worker *worker, const char *reason)
{
    struct queue_fault fault = {worker->parts.slot, reason};
    struct error err = {0};

    if (!mailbox_call(worker->parts.queue->mailbox, queue_set_service, &fault, &err))
        log_write_for(LOG_LEVEL_WARN, "device", device_of(worker)->id, "out of service: %s (%s)",
                      reason, err.message);
}

static bool open_device(struct worker *worker)
{
    const struct device *device = device_of(worker);
    const int thread_count = worker->parts.queue->slots.items[worker->parts.slot].thread_count;
    const struct backend_options options = {.device_index = device->index,
                                            .thread_count = thread_count,
                                            .simd_level =
                                                device->simd_level[0] ? device->simd_level : NULL};
    char reason[200] = "";
    enum backend_status status =
        backend_open(device->kind, &options, &worker->parts.backend, reason, sizeof(reason));

    if (status == BACKEND_OK) {
        log_write_for(LOG_LEVEL_INFO, "device", device->id, "%s, %s%s%s, %d threads",
                      device->description.name, device->simd_level,
                      device->simd_level[0] ? ", " : "", device->description.library, thread_count);
        if (device->simd_warning[0])
            log_write_for(LOG_LEVEL_WARN, "device", device->id, "%s", device->simd_warning);
        return true;
    }
    take_out_of_service(worker, reason[0] ? reason : "it could not be opened");
    return false;
}

/* After a fault every op of a backend does nothing: a new one is opened for the next job. */
static bool mend_device(struct worker *worker)
{
    if (backend_sync(worker->parts.backend) == BACKEND_OK)
        return true;
    backend_close(worker->parts.backend);
    worker->parts.backend = NULL;
    return open_device(worker);
}

static bool claim(struct worker *worker, struct queue_claim *claim)
{
    struct error err = {0};

    *claim = (struct queue_claim){.slot = worker->parts.slot};
    if (mailbox_call(worker->parts.queue->mailbox, queue_take, claim, &err))
        return claim->found;
    if (err.code != ERR_UNAVAILABLE)
        log_write_for(LOG_LEVEL_ERROR, "device", device_of(worker)->id, "take a job: %s",
                      err.message);
    return false;
}

static void *serve(void *context)
{
    struct worker *worker = context;
    struct mailbox *mailbox = worker->parts.queue->mailbox;
    struct queue_claim taken;
    uint64_t seen = 0;
    bool usable = open_device(worker);

    while (usable && mailbox_wait_news(mailbox, &seen, LOOK_AGAIN_MS)) {
        while (usable && claim(worker, &taken)) {
            bool kept;

            worker->parts.memory_limit_bytes = taken.memory_limit_bytes;
            kept = run_job(&worker->parts, &taken.job);
            job_record_release(&taken.job);
            usable = kept && mend_device(worker);
        }
    }
    backend_close(worker->parts.backend);
    worker->parts.backend = NULL;
    return NULL;
}

bool worker_start(struct queue *queue, size_t slot, struct worker **ret_worker, struct error *err)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    int code;

    if (!worker)
        return error_set(err, ERR_NO_MEMORY, "no memory for a worker");
    worker->parts.queue = queue;
    worker->parts.slot = slot;
    if (!store_open(queue->options->database_path, false, &worker->parts.store, err) ||
        !recorder_open(queue->options->database_path, queue->options->feed, &worker->parts.recorder,
                       err))
        goto fail;
    code = pthread_create(&worker->thread, NULL, serve, worker);
    if (code != 0) {
        error_set(err, ERR_NO_MEMORY, "start a worker: %s", strerrordesc_np(code));
        goto fail;
    }
    *ret_worker = worker;
    return true;
fail:
    worker_free(worker);
    return false;
}

pthread_t worker_thread(const struct worker *worker)
{
    return worker->thread;
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    recorder_close(worker->parts.recorder);
    store_close(worker->parts.store);
    free(worker);
}

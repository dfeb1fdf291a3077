#include "daemon/sched/worker.h"

#include "daemon/base/log.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/run.h"

#include <stdio.h>
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

/* reason NULL: in service again. */
static void set_service(struct worker *worker, const char *reason, bool is_passing)
{
    struct queue_fault fault = {
        .slot = worker->parts.slot, .reason = reason, .is_passing = is_passing};
    struct error err = {0};

    if (!mailbox_call(worker->parts.queue->mailbox, queue_set_service, &fault, &err))
        log_write_for(LOG_LEVEL_WARN, "device", device_of(worker)->id, "%s %s (%s)",
                      reason ? "out of service:" : "in service", reason ? reason : "", err.message);
}

static void close_device(struct worker *worker)
{
    backend_close(worker->parts.backend);
    worker->parts.backend = NULL;
}

static void log_device(const struct device *device, int thread_count)
{
    char detail[DEVICE_DETAIL_BYTES];

    devices_write_detail(device, detail);
    if (devices_is_gpu(device->kind))
        log_write_for(LOG_LEVEL_INFO, "device", device->id, "%s, %s", device->description.name,
                      detail);
    else
        log_write_for(LOG_LEVEL_INFO, "device", device->id, "%s, %s, %d threads",
                      device->description.name, detail, thread_count);
    if (device->simd_warning[0])
        log_write_for(LOG_LEVEL_WARN, "device", device->id, "%s", device->simd_warning);
}

/* Opens it and has it checked; a device that is no use has its backend closed, and the reason. */
static enum inventory_answer try_device(struct worker *worker, char *ret_reason, size_t reason_size)
{
    struct queue *queue = worker->parts.queue;
    const struct device *device = device_of(worker);
    struct slot *slot = &queue->slots.items[worker->parts.slot];
    const struct backend_options options = {.device_index = device->index,
                                            .thread_count = slot->thread_count,
                                            .simd_level =
                                                device->simd_level[0] ? device->simd_level : NULL};
    char why[224] = "";
    const enum backend_status opened =
        backend_open(device->kind, &options, &worker->parts.backend, why, sizeof(why));

    if (opened != BACKEND_OK) {
        (void)snprintf(ret_reason, reason_size, "%s%s",
                       opened == BACKEND_NO_MEMORY ? "it cannot be opened yet: " : "",
                       why[0] ? why : "it could not be opened");
        return opened == BACKEND_NO_MEMORY ? INVENTORY_LATER : INVENTORY_FAILED;
    }
    const enum inventory_answer answer =
        inventory_admit(queue->inventory, slot->device, worker->parts.backend, &slot->stop,
                        ret_reason, reason_size);
    if (answer == INVENTORY_USABLE)
        log_device(device, slot->thread_count);
    else
        close_device(worker);
    return answer;
}

/* False: out of service, or the daemon stops. A device that broke during a job stays out of service also
 * when it opens again: only what was said here is taken back. */
static bool open_device(struct worker *worker)
{
    struct mailbox *mailbox = worker->parts.queue->mailbox;
    char reason[256] = "";
    uint64_t seen = 0;
    bool waited = false;
    enum inventory_answer answer;

    while ((answer = try_device(worker, reason, sizeof(reason))) == INVENTORY_LATER) {
        set_service(worker, reason, true);
        waited = true;
        if (!mailbox_wait_news(mailbox, &seen, LOOK_AGAIN_MS))
            return false;
    }
    if (answer == INVENTORY_FAILED)
        set_service(worker, reason, false);
    else if (waited)
        set_service(worker, NULL, false);
    return answer == INVENTORY_USABLE;
}

/* After a fault every op of a backend does nothing: a new one is opened for the next job. */
static bool mend_device(struct worker *worker)
{
    if (backend_sync(worker->parts.backend) == BACKEND_OK)
        return true;
    close_device(worker);
    return open_device(worker);
}

static bool claim(struct worker *worker, struct queue_claim *claim)
{
    struct error err = {0};

    *claim = (struct queue_claim){.slot = worker->parts.slot};
    if (mailbox_call(worker->parts.queue->mailbox, queue_take, claim, &err))
        return claim->found;
    if (err.code != ERR_CANCELLED)
        log_write_for(LOG_LEVEL_ERROR, "device", device_of(worker)->id, "take a job: %s",
                      err.message);
    (void)disk_report(worker->parts.queue->options->disk, &err); /* looked at again in a while */
    return false;
}

static void *serve(void *context)
{
    struct worker *worker = context;
    struct mailbox *mailbox = worker->parts.queue->mailbox;
    struct queue_claim taken;
    uint64_t seen = 0;
    char name[16]; /* as long as the system takes */
    bool usable;

    (void)snprintf(name, sizeof(name), "job %.11s", device_of(worker)->id);
    (void)pthread_setname_np(pthread_self(), name); /* for people alone */
    usable = open_device(worker);

    while (usable && mailbox_wait_news(mailbox, &seen, LOOK_AGAIN_MS)) {
        while (usable && claim(worker, &taken)) {
            bool kept;

            worker->parts.memory_limit_bytes = taken.memory_limit_bytes;
            pulse_begin(&worker->parts.queue->slots.items[worker->parts.slot].pulse);
            kept = run_job(&worker->parts, &taken.job);
            pulse_end();
            job_record_release(&taken.job);
            usable = kept && mend_device(worker);
        }
    }
    close_device(worker);
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
        !recorder_open(queue->options->database_path, queue->options->disk, queue->options->feed,
                       &worker->parts.recorder, err))
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

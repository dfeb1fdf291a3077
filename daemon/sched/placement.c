#include "daemon/sched/placement.h"

#include "daemon/base/buf.h"
#include "daemon/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#define DISK_RESERVE_BYTES ((uint64_t)16 << 20) /* left to the database and its log */
#define EXPLANATION_BYTES ((size_t)1024)

bool placement_in_service(struct queue *queue, const struct queue_slot *slot)
{
    bool in_service;

    (void)pthread_mutex_lock(&queue->lock);
    in_service = slot->in_service;
    (void)pthread_mutex_unlock(&queue->lock);
    return in_service;
}

static bool is_busy(struct queue *queue, const struct queue_slot *slot)
{
    bool busy;

    (void)pthread_mutex_lock(&queue->lock);
    busy = slot->job_id[0] != '\0';
    (void)pthread_mutex_unlock(&queue->lock);
    return busy;
}

static bool is_auto(const struct job_record *job)
{
    return strcmp(job->device_wanted, "auto") == 0;
}

static bool has_gpu_in_service(struct queue *queue)
{
    for (size_t i = 0; i < queue->slot_count; i++) {
        if (devices_is_gpu(queue->slots[i].device->kind) &&
            placement_in_service(queue, &queue->slots[i]))
            return true;
    }
    return false;
}

static bool suits(struct queue *queue, const struct job_record *job, const struct queue_slot *slot)
{
    if (!placement_in_service(queue, slot) || !devices_match(slot->device, job->device_wanted))
        return false;
    return !is_auto(job) || devices_is_gpu(slot->device->kind) || !has_gpu_in_service(queue);
}

/* ---- disk ------------------------------------------------------------------------------------------- */

static uint64_t wanted_disk_bytes(const struct job_record *job)
{
    struct json *plan = NULL;
    int64_t bytes = 0;

    if (!job->plan_json || !json_parse(job->plan_json, strlen(job->plan_json), &plan, NULL))
        return 0;
    if (!json_get_int(plan, "disk_bytes", false, 0, INT64_MAX / 2, &bytes, NULL))
        bytes = 0;
    json_free(plan);
    return (uint64_t)bytes;
}

static bool has_space(struct queue *queue, const struct job_record *job, uint64_t *ret_wanted,
                      uint64_t *ret_free)
{
    struct statvfs disk;

    *ret_wanted = wanted_disk_bytes(job) + DISK_RESERVE_BYTES;
    if (statvfs(queue->options->state_folder, &disk) != 0)
        return true;
    *ret_free = (uint64_t)disk.f_bavail * disk.f_frsize;
    return *ret_free >= *ret_wanted;
}

/* ---- decisions --------------------------------------------------------------------------------------- */

bool placement_takes(struct queue *queue, const struct job_record *job,
                     const struct queue_slot *slot)
{
    uint64_t wanted, free_bytes = 0;

    return suits(queue, job, slot) && has_space(queue, job, &wanted, &free_bytes);
}

bool placement_is_fallback(struct queue *queue, const struct job_record *job,
                           const struct queue_slot *slot, char *ret_reason, size_t capacity)
{
    const struct devices *devices = queue->options->devices;
    struct buf text;

    if (!is_auto(job) || devices_is_gpu(slot->device->kind))
        return false;
    buf_init(&text, EXPLANATION_BYTES);
    for (size_t i = 0; i < devices->missing_count; i++)
        buf_format(&text, "%s%s: %s", text.size ? "; " : "", devices->missing[i].name,
                   devices->missing[i].reason);
    (void)pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->slot_count; i++) {
        const struct queue_slot *other = &queue->slots[i];

        if (devices_is_gpu(other->device->kind) && !other->in_service)
            buf_format(&text, "%s%s is out of service: %s", text.size ? "; " : "",
                       other->device->id, other->reason);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    (void)snprintf(ret_reason, capacity, "%s", text.size ? text.data : "");
    buf_release(&text);
    return ret_reason[0] != '\0';
}

void placement_explain(struct queue *queue, const struct job_record *job, char *ret_reason,
                       size_t capacity)
{
    uint64_t wanted, free_bytes = 0;
    bool waits = false;
    struct buf text;

    ret_reason[0] = '\0';
    if (!has_space(queue, job, &wanted, &free_bytes)) {
        (void)snprintf(ret_reason, capacity,
                       "disk full: %" PRIu64 " bytes are needed in '%.100s', %" PRIu64 " are free",
                       wanted, queue->options->state_folder, free_bytes);
        return;
    }
    buf_init(&text, EXPLANATION_BYTES);
    for (size_t i = 0; i < queue->slot_count; i++) {
        struct queue_slot *slot = &queue->slots[i];

        if (!devices_match(slot->device, job->device_wanted))
            continue;
        if (!placement_in_service(queue, slot)) {
            (void)pthread_mutex_lock(&queue->lock);
            buf_format(&text, "%s%s is out of service: %s", text.size ? "; " : "", slot->device->id,
                       slot->reason);
            (void)pthread_mutex_unlock(&queue->lock);
        } else if (suits(queue, job, slot)) {
            if (!is_busy(queue, slot)) {
                buf_clear(&text); /* it is about to be taken */
                waits = false;
                break;
            }
            buf_format(&text, "%s%s is busy", text.size ? "; " : "", slot->device->id);
            waits = true;
        }
    }
    if (text.size)
        (void)snprintf(ret_reason, capacity, "%s%s", waits ? "waits for a device: " : "",
                       text.data);
    buf_release(&text);
}

#include "daemon/sched/placement.h"

#include "daemon/base/buf.h"
#include "daemon/base/json.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/train/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EXPLANATION_BYTES ((size_t)1024)

static const struct device *device_of(const struct placement_view *view, size_t device)
{
    return view->queue->slots.devices[device].device;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t less(uint64_t from, uint64_t what)
{
    return from > what ? from - what : 0;
}

/* ---- the devices ------------------------------------------------------------------------------------ */

static void read_memory(const struct queue *queue, const struct device *device,
                        struct placement_device *known)
{
    struct backend_device now = device->description;

    if (queue->options->describe)
        queue->options->describe(device, &now);
    else
        (void)backend_describe(device->kind, device->index, &now); /* else as at the start */
    if (now.memory_total_bytes == 0 || now.memory_free_bytes == 0)
        return; /* it cannot say */
    known->total_bytes = budget_usable_bytes(now.memory_total_bytes);
    /* At least 1: nothing free is not the same as not known. */
    known->free_bytes =
        less(budget_usable_bytes(now.memory_free_bytes), known->use.reserved_bytes + 1) + 1;
}

/* What is held counts as written. It is little, and read for as many jobs as run. */
static uint64_t promised_bytes(struct queue *queue)
{
    uint64_t sum_bytes = 0, bytes;
    char job_id[STORE_ID_SIZE];

    for (size_t i = 0; i < queue->slots.count; i++) {
        slots_disk_use(&queue->slots, i, job_id, &bytes);
        if (job_id[0] == '\0' || bytes == 0)
            continue;
        bytes = less(bytes, jobfiles_held_bytes(queue->options->state_folder, job_id));
        sum_bytes = bytes > UINT64_MAX - sum_bytes ? UINT64_MAX : sum_bytes + bytes;
    }
    return sum_bytes;
}

void placement_look(struct queue *queue, struct placement_view *ret_view)
{
    *ret_view = (struct placement_view){.queue = queue, .promised_bytes = promised_bytes(queue)};
    for (size_t i = 0; i < queue->slots.device_count; i++) {
        struct placement_device *known = &ret_view->devices[i];

        known->use = slots_use(&queue->slots, i);
        if (known->use.in_service) /* a broken one answers slowly, or not at all */
            read_memory(queue, queue->slots.devices[i].device, known);
    }
}

void placement_glance(struct queue *queue, struct placement_view *ret_view)
{
    *ret_view = (struct placement_view){.queue = queue};
    for (size_t i = 0; i < queue->slots.device_count; i++)
        ret_view->devices[i].use = slots_use(&queue->slots, i);
}

/* ---- what a job needs ------------------------------------------------------------------------------- */

struct needs { /* 0: not known */
    uint64_t disk_bytes, least_bytes, wanted_bytes, base_bytes, card_wanted_bytes;
};

static uint64_t read_bytes(const struct json *object, const char *field)
{
    int64_t bytes = 0;

    if (!object || !json_get_int(object, field, false, 0, INT64_MAX / 4, &bytes, NULL))
        return 0;
    return (uint64_t)bytes;
}

static struct needs needs_of(const struct job_record *job)
{
    struct needs needs = {0};
    struct json *plan = NULL;

    if (!job->plan_json || !json_parse(job->plan_json, strlen(job->plan_json), &plan, NULL))
        return needs;
    const struct json *memory = json_member(plan, "memory_needs");
    needs = (struct needs){.disk_bytes = read_bytes(plan, "disk_bytes"),
                           .least_bytes = read_bytes(memory, "least_bytes"),
                           .wanted_bytes = read_bytes(memory, "wanted_bytes"),
                           .base_bytes = read_bytes(memory, "base_bytes"),
                           .card_wanted_bytes = read_bytes(memory, "card_wanted_bytes")};
    json_free(plan);
    return needs;
}

static uint64_t least_on(const struct needs *needs, const struct device *device)
{
    if (needs->least_bytes == 0)
        return 0;
    return needs->least_bytes + (devices_is_gpu(device->kind) ? needs->base_bytes : 0);
}

/* What a job may have of so many bytes, by the daemon's limit. */
static uint64_t limited(const struct placement_view *view, uint64_t bytes)
{
    const uint64_t limit = view->queue->options->memory_limit_bytes;

    if (limit == 0)
        return bytes;
    return bytes == 0 ? limit : smaller(bytes, limit);
}

/* The most that the device can give to one job; 0: not known. A device that is out of service was not
 * asked: what it was at the start. */
static uint64_t most_of(const struct placement_view *view, size_t device)
{
    const uint64_t total = device_of(view, device)->description.memory_total_bytes;
    const uint64_t known = view->devices[device].total_bytes;

    return limited(view, known > 0 ? known : budget_usable_bytes(total));
}

static bool could_fit(const struct placement_view *view, const struct needs *needs, size_t device)
{
    const uint64_t most = most_of(view, device);

    return most == 0 || least_on(needs, device_of(view, device)) <= most;
}

static bool fits_now(const struct placement_view *view, const struct needs *needs, size_t device)
{
    const uint64_t free_bytes = view->devices[device].free_bytes;

    return could_fit(view, needs, device) &&
           (free_bytes == 0 || least_on(needs, device_of(view, device)) <= free_bytes);
}

/* ---- disk ------------------------------------------------------------------------------------------- */

/* Room for what the job has still to write: what its folder holds is written. */
static bool has_space(const struct placement_view *view, const struct job_record *job,
                      const struct needs *needs, struct error *err)
{
    const struct scheduler_options *options = view->queue->options;
    const uint64_t held =
        job->attempt_count > 0 ? jobfiles_held_bytes(options->state_folder, job->id) : 0;

    return disk_check_room(options->disk, less(needs->disk_bytes, held), view->promised_bytes, err);
}

/* ---- decisions --------------------------------------------------------------------------------------- */

static bool is_auto(const struct job_record *job)
{
    return strcmp(job->device_wanted, "auto") == 0;
}

static bool has_gpu_for(const struct placement_view *view, const struct needs *needs)
{
    for (size_t i = 0; i < view->queue->slots.device_count; i++) {
        if (devices_is_gpu(device_of(view, i)->kind) && view->devices[i].use.in_service &&
            could_fit(view, needs, i))
            return true;
    }
    return false;
}

/* Whether the job is for this device at all, now or when its turn comes. */
static bool suits(const struct placement_view *view, const struct job_record *job,
                  const struct needs *needs, size_t device)
{
    if (!view->devices[device].use.in_service ||
        !devices_match(device_of(view, device), job->device_wanted) ||
        !could_fit(view, needs, device))
        return false;
    return !is_auto(job) || devices_is_gpu(device_of(view, device)->kind) ||
           !has_gpu_for(view, needs);
}

void placement_list_suited(const struct placement_view *view, const struct job_record *job,
                           bool ret_suited[DEVICE_MAX])
{
    const struct needs needs = needs_of(job);

    for (size_t i = 0; i < view->queue->slots.device_count; i++)
        ret_suited[i] = suits(view, job, &needs, i);
}

static bool runs_now(const struct placement_view *view, const struct job_record *job,
                     const struct needs *needs, size_t device)
{
    return suits(view, job, needs, device) && view->devices[device].use.idle > 0 &&
           fits_now(view, needs, device);
}

static bool has_emptier(const struct placement_view *view, const struct job_record *job,
                        const struct needs *needs, size_t device)
{
    for (size_t i = 0; i < view->queue->slots.device_count; i++) {
        if (view->devices[i].use.running < view->devices[device].use.running &&
            runs_now(view, job, needs, i))
            return true;
    }
    return false;
}

static struct placement_grant grant(const struct placement_view *view, const struct needs *needs,
                                    size_t device)
{
    const struct device *on = device_of(view, device);
    const uint64_t base = least_on(needs, on) - needs->least_bytes;
    const uint64_t by_card = devices_is_gpu(on->kind) ? needs->card_wanted_bytes : 0;
    const uint64_t wanted = larger(needs->wanted_bytes + base, by_card);
    const uint64_t room = limited(view, view->devices[device].free_bytes);

    struct placement_grant given = {.disk_bytes = needs->disk_bytes};

    if (needs->wanted_bytes == 0)
        return given;
    given.reserved_bytes = room == 0 ? wanted : smaller(wanted, room);
    if (given.reserved_bytes < wanted)
        given.limit_bytes = room;
    return given;
}

bool placement_takes(const struct placement_view *view, const struct job_record *job, size_t device,
                     struct placement_grant *ret_grant)
{
    const struct needs needs = needs_of(job);

    if (!runs_now(view, job, &needs, device) || has_emptier(view, job, &needs, device) ||
        !has_space(view, job, &needs, NULL))
        return false;
    *ret_grant = grant(view, &needs, device);
    return true;
}

/* ---- in words ---------------------------------------------------------------------------------------- */

#define GIGABYTES(bytes) ((double)(bytes) / 1e9)

static const char *separator(const struct buf *text)
{
    return text->size ? "; " : "";
}

static void copy_text(const struct buf *text, char *ret_text, size_t capacity)
{
    (void)snprintf(ret_text, capacity, "%s", text->size ? text->data : "");
}

static void add_out_of_service(const struct placement_view *view, size_t device, struct buf *text)
{
    buf_format(text, "%s%s is out of service: %s", separator(text), device_of(view, device)->id,
               view->devices[device].use.reason);
}

bool placement_is_fallback(const struct placement_view *view, const struct job_record *job,
                           size_t device, char *ret_reason, size_t capacity)
{
    const struct devices *devices = view->queue->options->devices;
    const struct needs needs = needs_of(job);
    struct buf text;

    if (!is_auto(job) || devices_is_gpu(device_of(view, device)->kind))
        return false;
    buf_init(&text, EXPLANATION_BYTES);
    for (size_t i = 0; i < devices->missing_count; i++)
        buf_format(&text, "%s%s is not available: %s", separator(&text), devices->missing[i].name,
                   devices->missing[i].reason);
    for (size_t i = 0; i < view->queue->slots.device_count; i++) {
        const struct device *other = device_of(view, i);

        if (!devices_is_gpu(other->kind))
            continue;
        if (!view->devices[i].use.in_service)
            add_out_of_service(view, i, &text);
        else
            buf_format(&text, "%s%s is too small: the job needs %.1f GB, it can give %.1f GB",
                       separator(&text), other->id, GIGABYTES(least_on(&needs, other)),
                       GIGABYTES(most_of(view, i)));
    }
    copy_text(&text, ret_reason, capacity);
    buf_release(&text);
    error_hide_paths(ret_reason); /* the job is seen by whoever may read it */
    return ret_reason[0] != '\0';
}

bool placement_is_possible(const struct placement_view *view, const struct job_record *job,
                           struct error *err)
{
    const struct needs needs = needs_of(job);
    size_t largest = SIZE_MAX;

    for (size_t i = 0; i < view->queue->slots.device_count; i++) {
        if (!devices_match(device_of(view, i), job->device_wanted))
            continue;
        if (could_fit(view, &needs, i))
            return true;
        if (largest == SIZE_MAX || most_of(view, i) > most_of(view, largest))
            largest = i;
    }
    if (largest == SIZE_MAX)
        return true; /* there is no such device: it is waited for */
    return error_set(err, ERR_NO_MEMORY,
                     "%" PRIu64 " bytes of memory are needed, %" PRIu64
                     " are available (the most that %s can give)",
                     least_on(&needs, device_of(view, largest)), most_of(view, largest),
                     device_of(view, largest)->id);
}

/* What keeps the job from a device that suits it. */
static void add_wait(const struct placement_view *view, const struct needs *needs, size_t device,
                     struct buf *text)
{
    const struct placement_device *known = &view->devices[device];
    const char *id = device_of(view, device)->id;

    if (known->use.idle == 0)
        buf_format(text, "%s%s is busy", separator(text), id);
    else
        buf_format(text, "%s%s: needs %.1f GB, %.1f GB free of %.1f GB", separator(text), id,
                   GIGABYTES(least_on(needs, device_of(view, device))),
                   GIGABYTES(known->free_bytes), GIGABYTES(known->total_bytes));
}

/* "waits for cuda:0: needs ..." where that is all there is to say. */
static const char *waits_for(size_t waits, size_t clauses, bool busy)
{
    if (waits == 0)
        return "";
    return clauses == 1 && !busy ? "waits for " : "waits for a device: ";
}

void placement_explain(const struct placement_view *view, const struct job_record *job,
                       char *ret_reason, size_t capacity)
{
    const struct needs needs = needs_of(job);
    size_t waits = 0, clauses = 0;
    bool busy = false, exists = false;
    struct error missing = {0};
    struct buf text;

    ret_reason[0] = '\0';
    if (!has_space(view, job, &needs, &missing)) {
        (void)snprintf(ret_reason, capacity, "%s", missing.message);
        return;
    }
    buf_init(&text, EXPLANATION_BYTES);
    for (size_t i = 0; i < view->queue->slots.device_count; i++) {
        if (!devices_match(device_of(view, i), job->device_wanted))
            continue;
        exists = true;
        if (!view->devices[i].use.in_service) {
            add_out_of_service(view, i, &text);
            clauses++;
        } else if (runs_now(view, job, &needs, i)) {
            buf_clear(&text); /* it is about to be taken */
            break;
        } else if (suits(view, job, &needs, i)) {
            add_wait(view, &needs, i, &text);
            busy = busy || view->devices[i].use.idle == 0;
            clauses++;
            waits++;
        }
    }
    /* It was there when the job was made, before the daemon's last start. */
    if (!exists &&
        !devices_check_wanted(view->queue->options->devices, job->device_wanted, &missing))
        buf_format(&text, "%s", missing.message);
    if (text.size)
        (void)snprintf(ret_reason, capacity, "%s%s", waits_for(waits, clauses, busy), text.data);
    buf_release(&text);
}

#include "daemon/sched/slots.h"

#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/sched/inventory.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- who may run where ------------------------------------------------------------------------------- */

static size_t clamp(size_t value, size_t min, size_t max)
{
    if (value < min)
        return min;
    return value > max ? max : value;
}

void slots_init(struct slots *slots, const struct devices *devices, size_t per_device)
{
    assert(devices->count <= DEVICE_MAX);
    *slots = (struct slots){.device_count = devices->count};
    (void)pthread_mutex_init(&slots->lock, NULL); /* cannot fail with default attributes */
    for (size_t i = 0; i < devices->count; i++) {
        const struct device *device = &devices->items[i];
        const size_t threads = clamp((size_t)device->thread_count, 1, SIZE_MAX);
        size_t count = clamp(per_device, 1, LIMIT_JOBS_PER_DEVICE);

        if (!devices_is_gpu(device->kind) && count > threads)
            count = threads;
        slots->devices[i] =
            (struct slot_device){.device = device, .slot_count = count, .in_service = true};
        for (size_t n = 0; n < count; n++) {
            struct slot *slot = &slots->items[slots->count++];

            slot->device = i;
            slot->thread_count = (int)clamp(threads / count, 1, INT32_MAX);
        }
    }
}

void slots_release(struct slots *slots)
{
    (void)pthread_mutex_destroy(&slots->lock); /* nobody holds it */
}

const struct device *slots_device(const struct slots *slots, size_t slot)
{
    return slots->devices[slots->items[slot].device].device;
}

/* ---- jobs -------------------------------------------------------------------------------------------- */

void slots_occupy(struct slots *slots, size_t slot, const char *job_id, uint64_t reserved_bytes,
                  uint64_t disk_bytes)
{
    struct slot *item = &slots->items[slot];

    atomic_store_explicit(&item->cancelled, false, memory_order_relaxed);
    atomic_store_explicit(&item->stop, false, memory_order_release);
    (void)pthread_mutex_lock(&slots->lock);
    (void)snprintf(item->job_id, sizeof(item->job_id), "%s", job_id);
    item->reserved_bytes = reserved_bytes;
    item->disk_bytes = disk_bytes;
    item->first = item->last = (struct slot_step){0};
    (void)pthread_mutex_unlock(&slots->lock);
}

void slots_disk_use(struct slots *slots, size_t slot, char ret_job_id[STORE_ID_SIZE],
                    uint64_t *ret_bytes)
{
    const struct slot *item = &slots->items[slot];

    (void)pthread_mutex_lock(&slots->lock);
    memcpy(ret_job_id, item->job_id, STORE_ID_SIZE);
    *ret_bytes = item->disk_bytes;
    (void)pthread_mutex_unlock(&slots->lock);
}

bool slots_settle(struct slots *slots, size_t slot)
{
    bool news;

    (void)pthread_mutex_lock(&slots->lock);
    news = slots->items[slot].reserved_bytes > 0;
    slots->items[slot].reserved_bytes = 0;
    (void)pthread_mutex_unlock(&slots->lock);
    return news;
}

void slots_vacate(struct slots *slots, size_t slot)
{
    (void)pthread_mutex_lock(&slots->lock);
    slots->items[slot].job_id[0] = '\0';
    slots->items[slot].reserved_bytes = 0;
    (void)pthread_mutex_unlock(&slots->lock);
}

void slots_note_step(struct slots *slots, size_t slot, const struct slot_step *step)
{
    struct slot_device *device = &slots->devices[slots->items[slot].device];
    struct slot *item = &slots->items[slot];

    (void)pthread_mutex_lock(&slots->lock);
    if (item->first.number == 0)
        item->first = *step;
    item->last = *step;
    device->step_count++;
    device->token_count += step->tokens;
    device->step_s += step->seconds;
    (void)pthread_mutex_unlock(&slots->lock);
}

double slots_remaining_s(struct slots *slots, size_t slot, int64_t now_ns)
{
    const struct slot *item = &slots->items[slot];
    struct slot_step first, last;
    double pace, left;
    bool idle;

    (void)pthread_mutex_lock(&slots->lock);
    idle = item->job_id[0] == '\0';
    first = item->first;
    last = item->last;
    (void)pthread_mutex_unlock(&slots->lock);
    if (idle)
        return 0;
    if (last.number > first.number)
        pace = (double)(last.at_ns - first.at_ns) / 1e9 / (double)(last.number - first.number);
    else
        pace = last.seconds > 0 ? last.seconds : (double)NAN; /* also where none was made */
    left = pace * (double)(last.total - last.number) - (double)(now_ns - last.at_ns) / 1e9;
    return left < 0 ? 0 : left;
}

void slots_print_status(struct slots *slots, struct buf *out)
{
    bool idle = true;

    (void)pthread_mutex_lock(&slots->lock);
    for (size_t i = 0; i < slots->count; i++) {
        const struct slot *slot = &slots->items[i];

        if (slot->job_id[0] == '\0')
            continue;
        buf_format(out, "%straining %s on %s", idle ? "" : "; ", slot->job_id,
                   slots->devices[slot->device].device->id);
        if (slot->last.number > 0)
            buf_format(out, ", step %" PRId64 " of %" PRId64, slot->last.number, slot->last.total);
        idle = false;
    }
    if (idle)
        buf_format(out, "idle");
    for (size_t i = 0; i < slots->device_count; i++) {
        if (!slots->devices[i].in_service)
            buf_format(out, "; %s is out of service: %s", slots->devices[i].device->id,
                       slots->devices[i].reason);
    }
    (void)pthread_mutex_unlock(&slots->lock);
}

bool slots_find_stuck(const struct slots *slots, int64_t limit_ns, size_t *ret_slot)
{
    const int64_t now_ns = clock_monotonic_ns();

    for (size_t i = 0; i < slots->count; i++) {
        if (pulse_rest_ns(&slots->items[i].pulse, now_ns) <= limit_ns)
            continue;
        *ret_slot = i;
        return true;
    }
    return false;
}

bool slots_find(struct slots *slots, const char *job_id, size_t *ret_slot)
{
    bool found = false;

    (void)pthread_mutex_lock(&slots->lock);
    for (size_t i = 0; i < slots->count && !found; i++) {
        found = strcmp(slots->items[i].job_id, job_id) == 0;
        if (found)
            *ret_slot = i;
    }
    (void)pthread_mutex_unlock(&slots->lock);
    return found;
}

static void stop_job(struct slots *slots, const char *job_id, bool cancelled)
{
    (void)pthread_mutex_lock(&slots->lock);
    for (size_t i = 0; i < slots->count; i++) {
        if (strcmp(slots->items[i].job_id, job_id) != 0)
            continue;
        if (cancelled)
            atomic_store_explicit(&slots->items[i].cancelled, true, memory_order_release);
        atomic_store_explicit(&slots->items[i].stop, true, memory_order_release);
    }
    (void)pthread_mutex_unlock(&slots->lock);
}

void slots_cancel(struct slots *slots, const char *job_id)
{
    stop_job(slots, job_id, true);
}

void slots_pause(struct slots *slots, const char *job_id)
{
    stop_job(slots, job_id, false);
}

void slots_stop(struct slots *slots)
{
    for (size_t i = 0; i < slots->count; i++)
        atomic_store_explicit(&slots->items[i].stop, true, memory_order_release);
}

/* ---- service ----------------------------------------------------------------------------------------- */

bool slots_set_service(struct slots *slots, size_t device, const char *reason)
{
    struct slot_device *item = &slots->devices[device];
    bool changed;

    (void)pthread_mutex_lock(&slots->lock);
    changed = item->in_service == (reason != NULL);
    if (changed) {
        item->in_service = reason == NULL;
        (void)snprintf(item->reason, sizeof(item->reason), "%s", reason ? reason : "");
        error_hide_paths(item->reason); /* clients are told it */
    }
    (void)pthread_mutex_unlock(&slots->lock);
    return changed;
}

struct slot_use slots_use(struct slots *slots, size_t device)
{
    struct slot_use use = {0};

    (void)pthread_mutex_lock(&slots->lock);
    use.in_service = slots->devices[device].in_service;
    (void)snprintf(use.reason, sizeof(use.reason), "%s", slots->devices[device].reason);
    for (size_t i = 0; i < slots->count; i++) {
        const struct slot *slot = &slots->items[i];

        if (slot->device != device)
            continue;
        use.running += slot->job_id[0] != '\0';
        use.idle += slot->job_id[0] == '\0';
        use.reserved_bytes += slot->reserved_bytes;
    }
    (void)pthread_mutex_unlock(&slots->lock);
    return use;
}

size_t slots_devices_in_service(struct slots *slots)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&slots->lock);
    for (size_t i = 0; i < slots->device_count; i++)
        count += slots->devices[i].in_service;
    (void)pthread_mutex_unlock(&slots->lock);
    return count;
}

bool slots_gpu_in_service(struct slots *slots)
{
    bool found = false;

    (void)pthread_mutex_lock(&slots->lock);
    for (size_t i = 0; i < slots->device_count; i++)
        found = found ||
                (slots->devices[i].in_service && devices_is_gpu(slots->devices[i].device->kind));
    (void)pthread_mutex_unlock(&slots->lock);
    return found;
}

/* ---- shown ------------------------------------------------------------------------------------------- */

/* The jobs on a device: the first by itself, as when there was but one, and all of them. Under lock. */
static void add_jobs(struct json *object, const struct slots *slots, size_t device)
{
    struct json *jobs = json_new_array();
    const char *first = NULL;

    for (size_t i = 0; i < slots->count; i++) {
        const struct slot *slot = &slots->items[i];

        if (slot->device != device || slot->job_id[0] == '\0')
            continue;
        first = first ? first : slot->job_id;
        json_add_string(jobs, NULL, slot->job_id);
    }
    json_add_string(object, "job", first);
    json_add(object, "jobs", jobs);
}

/* What was trained on it. Under lock. */
static void add_since_start(struct json *object, const struct slot_device *item)
{
    struct json *total = json_new_object();

    json_add_int(total, "steps", item->step_count);
    json_add_int(total, "tokens", item->token_count);
    json_add_double(total, "seconds", item->step_s);
    json_add(object, "since_start", total);
}

static struct json *device_json(struct slots *slots, size_t index, struct inventory *inventory)
{
    const struct slot_device *item = &slots->devices[index];
    const struct device *device = item->device;
    struct json *object = json_new_object();

    json_add_string(object, "id", device->id);
    json_add_string(object, "object", "device");
    json_add_string(object, "platform", backend_name(device->kind));
    inventory_add_json(inventory, index, object);
    json_add_string(object, "simd_level", device->simd_level[0] ? device->simd_level : NULL);
    json_add_string(object, "simd_warning", device->simd_warning[0] ? device->simd_warning : NULL);
    json_add_int(object, "threads", device->thread_count);
    json_add_int(object, "jobs_max", (int64_t)item->slot_count);
    (void)pthread_mutex_lock(&slots->lock);
    json_add_bool(object, "in_service", item->in_service);
    json_add_string(object, "reason", item->reason[0] ? item->reason : NULL);
    add_jobs(object, slots, index);
    add_since_start(object, item);
    (void)pthread_mutex_unlock(&slots->lock);
    return object;
}

struct json *slots_json(struct slots *slots, struct inventory *inventory)
{
    struct json *array = json_new_array();

    inventory_refresh(inventory);
    for (size_t i = 0; i < slots->device_count; i++)
        json_add(array, NULL, device_json(slots, i, inventory));
    return array;
}

#include "daemon/sched/inventory.h"

#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FRESH_NS ((int64_t)1000000000)     /* a reading is good for that long */
#define WAIT_NS ((int64_t)5000000)         /* for a better one: who asks is an HTTP thread */
#define INTEREST_NS ((int64_t)10000000000) /* readings go on that long after somebody asked */
#define CLOSE_WAIT_NS ((int64_t)500000000) /* for the thread: a driver may never answer */

struct reading {
    struct backend_device device;
    int64_t read_unix_s;
};

struct inventory {
    const struct devices *devices;
    const char *state_folder;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t asked, answered;         /* readings are wanted, were made */
    pthread_cond_t checked;                 /* a verdict was reached */
    bool closing, has_ended;                /* guarded by lock; the thread's last word */
    int64_t round_ns, wanted_until_ns;      /* guarded by lock: the last one ended, interest ends */
    struct reading readings[DEVICE_MAX];    /* guarded by lock */
    struct device_check checks[DEVICE_MAX]; /* guarded by lock */
};

/* ---- readings -------------------------------------------------------------------------------- */

static void read_device(struct inventory *inventory, size_t index)
{
    const struct device *device = &inventory->devices->items[index];
    struct reading reading = {0};

    if (backend_describe(device->kind, device->index, &reading.device) != BACKEND_OK)
        return; /* the last one stays */
    reading.read_unix_s = clock_unix_s();
    (void)pthread_mutex_lock(&inventory->lock);
    inventory->readings[index] = reading;
    (void)pthread_mutex_unlock(&inventory->lock);
}

static struct timespec in_ns(int64_t ns)
{
    struct timespec when;

    (void)clock_gettime(CLOCK_MONOTONIC, &when); /* this clock always is */
    ns += when.tv_nsec;
    when.tv_sec += ns / 1000000000;
    when.tv_nsec = ns % 1000000000;
    return when;
}

/* Sleeps while nobody is interested, and a second between two rounds. False: it is time to end. */
static bool wait_for_round(struct inventory *inventory)
{
    while (!inventory->closing) {
        const int64_t now_ns = clock_monotonic_ns();
        const int64_t rest_ns = inventory->round_ns + FRESH_NS - now_ns;

        if (now_ns >= inventory->wanted_until_ns) {
            (void)pthread_cond_wait(&inventory->asked, &inventory->lock);
        } else if (rest_ns > 0) {
            const struct timespec until = in_ns(rest_ns);

            (void)pthread_cond_timedwait(&inventory->asked, &inventory->lock, &until);
        } else {
            return true;
        }
    }
    return false;
}

static void *read_devices(void *context)
{
    struct inventory *inventory = context;

    (void)pthread_mutex_lock(&inventory->lock);
    while (wait_for_round(inventory)) {
        (void)pthread_mutex_unlock(&inventory->lock);
        for (size_t i = 0; i < inventory->devices->count; i++)
            read_device(inventory, i);
        (void)pthread_mutex_lock(&inventory->lock);
        inventory->round_ns = clock_monotonic_ns();
        (void)pthread_cond_broadcast(&inventory->answered);
    }
    inventory->has_ended = true;
    (void)pthread_cond_broadcast(&inventory->answered);
    (void)pthread_mutex_unlock(&inventory->lock);
    return NULL;
}

void inventory_refresh(struct inventory *inventory)
{
    const struct timespec deadline = in_ns(WAIT_NS);
    const int64_t now_ns = clock_monotonic_ns();
    int waited = 0;

    (void)pthread_mutex_lock(&inventory->lock);
    inventory->wanted_until_ns = now_ns + INTEREST_NS;
    (void)pthread_cond_signal(&inventory->asked);
    while (now_ns - inventory->round_ns >= FRESH_NS && waited == 0)
        waited = pthread_cond_timedwait(&inventory->answered, &inventory->lock, &deadline);
    (void)pthread_mutex_unlock(&inventory->lock);
}

static struct reading last_reading(struct inventory *inventory, size_t device)
{
    struct reading reading;

    (void)pthread_mutex_lock(&inventory->lock);
    reading = inventory->readings[device];
    (void)pthread_mutex_unlock(&inventory->lock);
    return reading;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static struct device_check read_check(struct inventory *inventory, size_t device)
{
    struct device_check check;

    (void)pthread_mutex_lock(&inventory->lock);
    check = inventory->checks[device];
    (void)pthread_mutex_unlock(&inventory->lock);
    return check;
}

static void keep_check(struct inventory *inventory, size_t device, const struct device_check *check)
{
    (void)pthread_mutex_lock(&inventory->lock);
    inventory->checks[device] = *check;
    (void)pthread_cond_broadcast(&inventory->checked);
    (void)pthread_mutex_unlock(&inventory->lock);
}

/* False: there is a verdict. True: the check is the caller's to make. */
static bool take_check(struct inventory *inventory, size_t device)
{
    struct device_check *check = &inventory->checks[device];
    bool taken;

    (void)pthread_mutex_lock(&inventory->lock);
    while (check->verdict == CHECK_RUNNING)
        (void)pthread_cond_wait(&inventory->checked, &inventory->lock);
    taken = check->verdict == CHECK_NONE;
    if (taken)
        check->verdict = CHECK_RUNNING;
    (void)pthread_mutex_unlock(&inventory->lock);
    return taken;
}

static void tell(const char *id, const struct device_check *check)
{
    if (check->remembered)
        log_write_for(LOG_LEVEL_INFO, "device", id, "was checked before with this driver");
    else if (check->verdict == CHECK_PASSED)
        log_write_for(
            LOG_LEVEL_INFO, "device", id,
            "checked in %.1f s: %zu ops and a tiny job agree; %s comes closest to what is "
            "allowed, %.2g of it",
            (double)check->elapsed_ns / 1e9, check->example_count, check->worst_op,
            check->worst_share);
}

static enum inventory_answer make_check(struct inventory *inventory, size_t index,
                                        struct backend *be, const atomic_bool *stop)
{
    const struct device *device = &inventory->devices->items[index];
    struct device_check check = {0};
    struct error err = {0};
    enum inventory_answer answer = INVENTORY_USABLE;

    if (!devicecheck_recall(inventory->state_folder, &device->description, &check)) {
        if (!devicecheck_run(be, device->kind, stop, &check, &err)) {
            const bool failed = err.code == ERR_DEVICE;

            check.verdict = failed ? CHECK_FAILED : CHECK_NONE;
            (void)snprintf(check.reason, sizeof(check.reason), "%.255s", err.message);
            answer = failed ? INVENTORY_FAILED : INVENTORY_LATER;
        }
        if (check.verdict != CHECK_NONE &&
            !devicecheck_remember(inventory->state_folder, &device->description, &check, &err))
            log_write_for(LOG_LEVEL_WARN, "device", device->id,
                          "its check will be made again at the next start: %s", err.message);
    }
    if (check.verdict == CHECK_FAILED)
        answer = INVENTORY_FAILED;
    keep_check(inventory, index, &check);
    tell(device->id, &check);
    return answer;
}

enum inventory_answer inventory_admit(struct inventory *inventory, size_t device,
                                      struct backend *be, const atomic_bool *stop, char *ret_reason,
                                      size_t reason_size)
{
    enum inventory_answer answer = INVENTORY_USABLE;

    if (take_check(inventory, device))
        answer = make_check(inventory, device, be, stop);
    const struct device_check check = read_check(inventory, device);
    if (check.verdict == CHECK_FAILED)
        answer = INVENTORY_FAILED;
    if (answer != INVENTORY_USABLE)
        (void)snprintf(ret_reason, reason_size, "%s: %s",
                       answer == INVENTORY_FAILED ? "its check failed"
                                                  : "its check cannot be made yet",
                       check.reason);
    return answer;
}

/* ---- shown ----------------------------------------------------------------------------------- */

static void add_text(struct json *object, const char *name, const char *text)
{
    json_add_string(object, name, text[0] ? text : NULL);
}

static void add_known(struct json *object, const char *name, int64_t number)
{
    if (number > 0)
        json_add_int(object, name, number);
    else
        json_add_null(object, name);
}

static struct json *precisions_json(unsigned precisions)
{
    struct json *array = json_new_array();

    for (unsigned i = 0; i < BACKEND_PRECISION_COUNT; i++) {
        if (precisions & BACKEND_PRECISION_BIT(i))
            json_add_string(array, NULL, backend_precision_names[i]);
    }
    return array;
}

static struct json *check_json(const struct device_check *check)
{
    const bool is_done = check->verdict == CHECK_PASSED || check->verdict == CHECK_FAILED;
    struct json *object = json_new_object();
    char reason[sizeof(check->reason)];

    (void)snprintf(reason, sizeof(reason), "%s", check->reason);
    json_add_string(object, "verdict", check_verdict_name(check->verdict));
    add_known(object, "checked_at", is_done ? check->checked_unix_s : 0);
    json_add_bool(object, "remembered", check->remembered);
    add_known(object, "ops", (int64_t)check->example_count);
    add_text(object, "worst_op", check->worst_op);
    if (check->worst_op[0])
        json_add_double(object, "worst_share", check->worst_share);
    else
        json_add_null(object, "worst_share");
    error_hide_paths(reason);
    add_text(object, "reason", reason);
    return object;
}

void inventory_add_json(struct inventory *inventory, size_t device, struct json *object)
{
    const struct reading reading = last_reading(inventory, device);
    const struct device_check check = read_check(inventory, device);
    const struct backend_device *now = &reading.device;
    char detail[DEVICE_DETAIL_BYTES];

    devices_write_detail(&inventory->devices->items[device], detail);
    json_add_string(object, "name", now->name);
    json_add_string(object, "detail", detail);
    add_text(object, "uuid", now->uuid);
    add_text(object, "capability", now->capability);
    add_text(object, "driver", now->driver);
    add_text(object, "library", now->library);
    add_text(object, "library_warning", now->library_warning);
    json_add(object, "precisions", precisions_json(now->precisions));
    add_known(object, "memory_total_bytes", (int64_t)now->memory_total_bytes);
    add_known(object, "memory_free_bytes", (int64_t)now->memory_free_bytes);
    add_known(object, "temperature_celsius", now->temperature_celsius);
    add_known(object, "power_watts", now->power_watts);
    json_add_int(object, "read_at", reading.read_unix_s);
    json_add_int(object, "cores", now->core_count);
    json_add(object, "self_check", check_json(&check));
}

void inventory_add_memory(struct inventory *inventory, size_t device, struct json *object)
{
    const struct backend_device now = last_reading(inventory, device).device;
    const int64_t now_ns = clock_monotonic_ns();

    (void)pthread_mutex_lock(&inventory->lock);
    if (now_ns >= inventory->wanted_until_ns)
        (void)pthread_cond_signal(&inventory->asked); /* else it reads once a second anyway */
    inventory->wanted_until_ns = now_ns + INTEREST_NS;
    (void)pthread_mutex_unlock(&inventory->lock);
    if (now.memory_total_bytes > now.memory_free_bytes)
        json_add_int(object, "memory_used_bytes",
                     (int64_t)(now.memory_total_bytes - now.memory_free_bytes));
}

/* ---- open and close -------------------------------------------------------------------------- */

/* What devices_detect and devices_choose_simd found at the start; a processor's levels were checked
 * there. */
static void take_start(struct inventory *inventory)
{
    for (size_t i = 0; i < inventory->devices->count; i++) {
        const struct device *device = &inventory->devices->items[i];

        inventory->readings[i] = (struct reading){device->description, clock_unix_s()};
        if (devices_is_gpu(device->kind))
            continue;
        inventory->checks[i] =
            (struct device_check){.verdict = CHECK_PASSED, .checked_unix_s = clock_unix_s()};
        (void)snprintf(inventory->checks[i].reason, sizeof(inventory->checks[i].reason), "%s",
                       device->simd_warning);
    }
}

bool inventory_open(const struct devices *devices, const char *state_folder,
                    struct inventory **ret_inventory, struct error *err)
{
    struct inventory *inventory = calloc(1, sizeof(*inventory));
    pthread_condattr_t clock;
    int code;

    if (!inventory)
        return error_set(err, ERR_NO_MEMORY, "no memory for the inventory of devices");
    inventory->devices = devices;
    inventory->state_folder = state_folder;
    (void)pthread_mutex_init(&inventory->lock, NULL); /* none of these can fail here */
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&inventory->asked, &clock);
    (void)pthread_cond_init(&inventory->answered, &clock);
    (void)pthread_cond_init(&inventory->checked, NULL);
    (void)pthread_condattr_destroy(&clock);
    take_start(inventory);
    inventory->round_ns = clock_monotonic_ns();
    code = pthread_create(&inventory->thread, NULL, read_devices, inventory);
    if (code != 0) {
        inventory_close(inventory);
        return error_set(err, ERR_NO_MEMORY, "start the inventory: %s", strerrordesc_np(code));
    }
    inventory->has_thread = true;
    *ret_inventory = inventory;
    return true;
}

/* Not pthread_timedjoin_np: its deadline is a date, and dates jump. */
static bool end_thread(struct inventory *inventory)
{
    const struct timespec deadline = in_ns(CLOSE_WAIT_NS);
    int waited = 0;
    bool ended;

    (void)pthread_mutex_lock(&inventory->lock);
    inventory->closing = true;
    (void)pthread_cond_signal(&inventory->asked);
    while (!inventory->has_ended && waited == 0)
        waited = pthread_cond_timedwait(&inventory->answered, &inventory->lock, &deadline);
    ended = inventory->has_ended;
    (void)pthread_mutex_unlock(&inventory->lock);
    return ended && pthread_join(inventory->thread, NULL) == 0;
}

void inventory_close(struct inventory *inventory)
{
    if (!inventory)
        return;
    if (inventory->has_thread && !end_thread(inventory))
        return; /* in a driver that does not answer: the process ends under it */
    (void)pthread_cond_destroy(&inventory->asked); /* nobody waits */
    (void)pthread_cond_destroy(&inventory->answered);
    (void)pthread_cond_destroy(&inventory->checked);
    (void)pthread_mutex_destroy(&inventory->lock);
    free(inventory);
}

#include "api/courier.h"

#include "api/hookcall.h"
#include "api/stores.h"
#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/pulse.h"
#include "daemon/sched/events.h"
#include "store/deliveries.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS INT64_C(200000000)      /* between looks: jobs that train have news all the time */
#define WAIT_MAX_MS 60000               /* between looks without news */
#define TROUBLE_MS 5000                 /* after the database refused */
#define KEEP_S INT64_C(604800)          /* what is over is shown for so long */
#define SWEEP_NS INT64_C(3600000000000) /* between looks for what is shown no more */
#define TRY_MAX 2                       /* calls for handlers at once: their threads are few */
#define NS_PER_MS INT64_C(1000000)

/* Seconds until the next attempt after so many; then it is given up. As numbers, and as JSON for SQL. */
#define WAITS_S 5, 30, 120, 600, 3600, 10800, 21600, 43200, 86400
#define TEXT_OF(...) #__VA_ARGS__
#define LIST_OF(...) "[" TEXT_OF(__VA_ARGS__) "]"
static const int64_t waits_s[] = {WAITS_S};
static const char waits_json[] = LIST_OF(WAITS_S);

struct call {
    bool busy;
    struct hookcall hook;
    struct delivery_record delivery;
    char url[WEBHOOK_URL_SIZE]; /* where it went: its webhook may have another meanwhile */
};

struct courier {
    struct courier_options options;
    pthread_t thread;
    bool has_thread;
    CURLM *multi;
    struct events_listener listener;
    struct pulse pulse;
    /* Flags and counters; nothing hangs on their order, relaxed does. */
    atomic_bool stopping, news;
    atomic_bool armed; /* a webhook may be there: without one, news wakes nobody */
    atomic_int try_count;
    _Atomic uint64_t delivered, failed, given_up;
    /* The thread's from here. */
    struct call calls[COURIER_CALL_MAX];
    int64_t next_look_ns, next_sweep_ns;
};

static bool is_set(const atomic_bool *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

static void count_one(_Atomic uint64_t *counter)
{
    (void)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- one call ---- */

static struct call *find_call(struct courier *courier, const char *webhook_id)
{
    for (size_t i = 0; i < courier->options.call_max; i++) {
        struct call *call = &courier->calls[i];

        if (webhook_id ? call->busy && strcmp(call->delivery.webhook_id, webhook_id) == 0
                       : !call->busy)
            return call;
    }
    return NULL;
}

static void settle(struct courier *courier, struct delivery_record *delivery)
{
    const size_t tries = (size_t)delivery->attempt_count;

    delivery->attempt_count++;
    if (!delivery->last_error[0]) {
        delivery->next_unix_s = 0;
        count_one(&courier->delivered);
        return;
    }
    count_one(&courier->failed);
    if (tries < COUNT_OF(waits_s)) {
        delivery->next_unix_s = clock_unix_s() + waits_s[tries];
        return;
    }
    delivery->next_unix_s = 0;
    count_one(&courier->given_up);
    log_write_for(LOG_LEVEL_WARN, "webhook", delivery->webhook_id, "%s is given up: %s",
                  delivery->event_id, delivery->last_error);
}

static bool keep_gone(struct store *store, const struct call *call, struct error *err)
{
    bool switched_off = false;

    if (!deliveries_update_gone(store, &call->delivery, call->url, &switched_off, err))
        return false;
    if (switched_off)
        log_write_for(LOG_LEVEL_WARN, "webhook", call->delivery.webhook_id,
                      "answered 410: it is switched off");
    return true;
}

/* Keeps how the call went. False: it could not be kept; it will be made again. */
static bool keep(struct courier *courier, struct call *call, struct error *err)
{
    struct delivery_record *delivery = &call->delivery;
    struct store *store = NULL;
    bool ok;

    settle(courier, delivery);
    ok = stores_take(courier->options.stores, &store, err) &&
         (delivery->last_status == 410 ? keep_gone(store, call, err)
                                       : deliveries_update(store, delivery, err));
    stores_give(courier->options.stores, store);
    return ok;
}

static void close_call(struct courier *courier, struct call *call)
{
    (void)curl_multi_remove_handle(courier->multi, call->hook.easy); /* it was added */
    hookcall_close(&call->hook);
    delivery_release(&call->delivery);
    call->busy = false;
}

static bool end_calls(struct courier *courier, struct error *err)
{
    CURLMsg *message;
    int left = 0;
    bool ok = true;

    while ((message = curl_multi_info_read(courier->multi, &left))) {
        const CURLcode code = message->data.result;
        struct call *call = NULL;
        bool kept;

        if (message->msg != CURLMSG_DONE)
            continue;
        for (size_t i = 0; i < COURIER_CALL_MAX; i++) {
            if (courier->calls[i].busy && courier->calls[i].hook.easy == message->easy_handle)
                call = &courier->calls[i];
        }
        assert(call);
        call->delivery.last_status = hookcall_judge(&call->hook, code, call->delivery.last_error,
                                                    sizeof(call->delivery.last_error));
        kept = keep(courier, call, err);
        close_call(courier, call);
        /* The webhook may have more; what could not be kept goes out again, and not at once. */
        courier->next_look_ns = kept ? 0 : clock_monotonic_ns() + TROUBLE_MS * NS_PER_MS;
        ok = ok && kept;
    }
    return ok;
}

/* Takes the delivery's body over. False with err: its webhook cannot be called. */
static bool begin_call(struct courier *courier, struct store *store,
                       struct delivery_record *delivery, struct error *err)
{
    struct call *call = find_call(courier, NULL);
    struct webhook_record webhook;

    if (!call || find_call(courier, delivery->webhook_id))
        return true; /* it is looked at again when one ends */
    if (!webhooks_get(store, delivery->webhook_id, &webhook, err) ||
        !hookcall_open(&call->hook, courier->options.hosts, &webhook, delivery->event_id,
                       delivery->body, err))
        return false;
    if (curl_multi_add_handle(courier->multi, call->hook.easy) != CURLM_OK) {
        hookcall_close(&call->hook);
        return error_set(err, ERR_NO_MEMORY, "no memory for a call");
    }
    call->delivery = *delivery;
    memcpy(call->url, webhook.url, sizeof(call->url));
    delivery->body = NULL;
    call->busy = true;
    return true;
}

/* ---- what is due ---- */

static void begin_due(struct courier *courier, struct store *store,
                      struct delivery_record *deliveries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct delivery_record *delivery = &deliveries[i];
        struct error err = {0};

        if (!begin_call(courier, store, delivery, &err)) {
            /* An attempt that could not be made: the host is listed no more. */
            (void)snprintf(delivery->last_error, sizeof(delivery->last_error), "%.*s",
                           (int)sizeof(delivery->last_error) - 1, err.message);
            delivery->last_status = 0;
            settle(courier, delivery);
            if (!deliveries_update(store, delivery, &err))
                log_write(LOG_LEVEL_WARN, "webhooks: %s", err.message);
        }
        delivery_release(delivery);
    }
}

static bool find_armed(struct courier *courier, struct store *store, struct error *err)
{
    struct webhook_record *webhooks = NULL;
    struct store_page page = {.after = "", .limit = 1};
    size_t count = 0;
    bool has_more = false;

    if (!webhooks_list(store, NULL, &page, &webhooks, &count, &has_more, err))
        return false;
    free(webhooks);
    atomic_store_explicit(&courier->armed, count > 0, memory_order_relaxed);
    return true;
}

/* *ret_wait_ms: until something is due. */
static bool look(struct courier *courier, int *ret_wait_ms, struct error *err)
{
    int64_t now_unix_s = clock_unix_s(), now_ns = clock_monotonic_ns(), next_unix_s = 0;
    struct delivery_record *deliveries = NULL;
    struct store *store = NULL;
    size_t count = 0;
    bool ok;

    ok = stores_take(courier->options.stores, &store, err) && find_armed(courier, store, err) &&
         deliveries_list_due(store, now_unix_s, waits_json, &deliveries, &count, err);
    if (ok) {
        begin_due(courier, store, deliveries, count);
        free(deliveries);
        ok = deliveries_find_next(store, &next_unix_s, err);
    }
    if (ok && now_ns >= courier->next_sweep_ns) {
        courier->next_sweep_ns = now_ns + SWEEP_NS;
        ok = deliveries_sweep(store, now_unix_s - KEEP_S, err);
    }
    stores_give(courier->options.stores, store);
    *ret_wait_ms = WAIT_MAX_MS;
    if (ok && next_unix_s > now_unix_s && next_unix_s - now_unix_s < WAIT_MAX_MS / 1000)
        *ret_wait_ms = (int)(next_unix_s - now_unix_s) * 1000;
    return ok;
}

/* ---- the thread ---- */

static void *serve(void *context)
{
    struct courier *courier = context;
    int wait_ms = 0, running = 0;

    pulse_begin(&courier->pulse);
    while (!is_set(&courier->stopping)) {
        int64_t now_ns = clock_monotonic_ns();
        struct error err = {0};
        bool ok = true;

        if (atomic_exchange_explicit(&courier->news, false, memory_order_relaxed))
            courier->next_look_ns =
                courier->next_look_ns < now_ns + LOOK_NS ? courier->next_look_ns : now_ns + LOOK_NS;
        if (now_ns >= courier->next_look_ns) {
            ok = look(courier, &wait_ms, &err);
            courier->next_look_ns = now_ns + (ok ? wait_ms : TROUBLE_MS) * NS_PER_MS;
        }
        (void)curl_multi_perform(courier->multi, &running); /* its messages tell */
        ok = end_calls(courier, &err) && ok;
        if (!ok)
            log_write(LOG_LEVEL_WARN, "webhooks: %s", err.message);
        now_ns = clock_monotonic_ns();
        wait_ms = courier->next_look_ns > now_ns
                      ? (int)((courier->next_look_ns - now_ns) / NS_PER_MS) + 1
                      : 0;
        pulse_pause(); /* what is owed from here on wakes it at once */
        (void)curl_multi_poll(courier->multi, NULL, 0, wait_ms, NULL); /* or sooner */
        pulse_beat();
    }
    pulse_end();
    return NULL;
}

/* With the feed's lock held: on the threads that commit. */
static void hear(void *context)
{
    struct courier *courier = context;

    if (is_set(&courier->armed))
        courier_wake(courier);
}

void courier_wake(struct courier *courier)
{
    if (!atomic_exchange_explicit(&courier->news, true, memory_order_relaxed)) {
        pulse_owe(&courier->pulse);
        (void)curl_multi_wakeup(courier->multi); /* refused: it looks within a minute */
    }
}

const struct pulse *courier_pulse(const struct courier *courier)
{
    return &courier->pulse;
}

bool courier_start(const struct courier_options *options, struct courier **ret_courier,
                   struct error *err)
{
    struct courier *courier = calloc(1, sizeof(*courier));

    if (!courier)
        return error_set(err, ERR_NO_MEMORY, "no memory for the courier");
    courier->options = *options;
    courier->listener = (struct events_listener){.wake = hear, .context = courier};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(courier);
        return error_set(err, ERR_NO_MEMORY, "libcurl does not start");
    }
    courier->multi = curl_multi_init();
    if (!courier->multi || pthread_create(&courier->thread, NULL, serve, courier) != 0) {
        courier_stop(courier);
        return error_set(err, ERR_NO_MEMORY, "no memory for the courier");
    }
    (void)pthread_setname_np(courier->thread, "webhooks"); /* a help in lists of threads */
    courier->has_thread = true;
    events_feed_add(options->feed, &courier->listener);
    *ret_courier = courier;
    return true;
}

void courier_stop(struct courier *courier)
{
    if (!courier)
        return;
    if (courier->has_thread) {
        events_feed_remove(courier->options.feed, &courier->listener);
        atomic_store_explicit(&courier->stopping, true, memory_order_relaxed);
        (void)curl_multi_wakeup(courier->multi);
        (void)pthread_join(courier->thread, NULL); /* ours, joined once */
    }
    for (size_t i = 0; i < COURIER_CALL_MAX; i++) {
        if (courier->calls[i].busy)
            close_call(courier, &courier->calls[i]);
    }
    (void)curl_multi_cleanup(courier->multi); /* no handle is left in it */
    curl_global_cleanup();
    free(courier);
}

const char *courier_hosts(const struct courier *courier)
{
    return courier->options.hosts;
}

void courier_set_hosts(struct courier *courier, const char *hosts)
{
    courier->options.hosts = hosts;
}

void courier_read_counts(struct courier *courier, struct courier_counts *ret_counts)
{
    *ret_counts = (struct courier_counts){
        .delivered = atomic_load_explicit(&courier->delivered, memory_order_relaxed),
        .failed = atomic_load_explicit(&courier->failed, memory_order_relaxed),
        .given_up = atomic_load_explicit(&courier->given_up, memory_order_relaxed)};
}

/* ---- a call by hand ---- */

static int watch_stop(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const atomic_bool *stop = context;

    (void)a; /* how far it is */
    (void)b;
    (void)c;
    (void)d;
    return is_set(stop);
}

static bool make_sample(const char *type, char ret_event_id[STORE_ID_SIZE], char **ret_body,
                        struct error *err)
{
    struct json *object = json_new_object(), *data = json_new_object();
    bool ok = file_random_id(ret_event_id, STORE_ID_SIZE, "evt_", 24, err);

    json_add_string(data, "id", "ftjob-test");
    json_add_string(object, "id", ret_event_id);
    json_add_string(object, "object", "event");
    json_add_int(object, "created_at", clock_unix_s());
    json_add_string(object, "type", type);
    json_add(object, "data", data);
    ok = ok && json_print_text(object, ret_body, err);
    json_free(object);
    return ok;
}

static bool call_now(struct courier *courier, const struct webhook_record *webhook,
                     const char *type, const atomic_bool *stop, long *ret_status, struct error *err)
{
    char event_id[STORE_ID_SIZE], reason[256];
    struct hookcall call = {0};
    char *body = NULL;
    CURLcode code;
    bool ok = false;

    if (!make_sample(type, event_id, &body, err) ||
        !hookcall_open(&call, courier->options.hosts, webhook, event_id, body, err))
        goto out;
    (void)curl_easy_setopt(call.easy, CURLOPT_NOPROGRESS, 0L); /* these cannot fail */
    (void)curl_easy_setopt(call.easy, CURLOPT_XFERINFOFUNCTION, watch_stop);
    (void)curl_easy_setopt(call.easy, CURLOPT_XFERINFODATA, (void *)(uintptr_t)stop);
    code = curl_easy_perform(call.easy);
    *ret_status = hookcall_judge(&call, code, reason, sizeof(reason));
    ok = *ret_status > 0 || error_set_word(err, ERR_INVALID, "webhook_unreachable", "url",
                                           "no answer came from the webhook endpoint: %s", reason);
out:
    hookcall_close(&call);
    free(body);
    return ok;
}

bool courier_try(struct courier *courier, const struct webhook_record *webhook, const char *type,
                 const atomic_bool *stop, long *ret_status, struct error *err)
{
    bool ok = false;

    if (atomic_fetch_add(&courier->try_count, 1) < TRY_MAX)
        ok = call_now(courier, webhook, type, stop, ret_status, err);
    else
        error_set(err, ERR_UNAVAILABLE,
                  "%d webhook endpoints are being tried: try again in a moment", TRY_MAX);
    (void)atomic_fetch_sub(&courier->try_count, 1);
    return ok;
}

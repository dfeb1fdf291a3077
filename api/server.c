#include "api/server.h"

#include "api/connections.h"
#include "api/courier.h"
#include "api/descriptors.h"
#include "api/exchange.h"
#include "api/housekeeping.h"
#include "api/keyring.h"
#include "api/links.h"
#include "api/listen.h"
#include "api/metrics.h"
#include "api/pool.h"
#include "api/probe.h"
#include "api/stores.h"
#include "api/stream.h"
#include "api/visitors.h"
#include "daemon/base/arena.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/base/process.h"
#include "daemon/base/pulse.h"
#include "daemon/sched/scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTENER_MAX SERVER_SOCKETS_MAX /* TCP and Unix socket, or those passed to us */
#define IDLE_TIMEOUT_S 60               /* no byte either way inside a request */
#define CONNECTION_BYTES 65536 /* the library's memory for a connection: its header and pieces */
#define KEEPALIVE_S 10         /* proxies count from 55 s, the contract says 15 at most */
#define SWEEP_S 1              /* between two looks at the connections */
#define STOP_WAIT_MS 500       /* for answers on their way, before connections are cut */
#define TEXT_MAX ((size_t)256 << 10) /* own copies of the options' texts, also of earlier ones */
#define NS_PER_MS INT64_C(1000000)

struct server {
    struct arena texts;
    struct descriptors_share share;
    struct exchange exchange;
    struct links links;
    struct housekeeping housekeeping;
    atomic_int upload_helpers;
    struct listener listeners[LISTENER_MAX];
    struct MHD_Daemon *daemons[LISTENER_MAX];
    int descriptors[LISTENER_MAX];
    size_t listener_count;
    const char *socket_path; /* NULL: none */
    int port;
    int64_t connections_per_address; /* 0: no limit */

    pthread_t sweeper;
    bool sweeper_runs;
    struct pulse sweep_pulse;
    pthread_mutex_t lock;
    pthread_cond_t stop_sweeping;
    bool stopping; /* guarded by lock */
};

static const char *keep(struct server *server, const char *text)
{
    return text ? arena_copy(&server->texts, text, strlen(text)) : NULL;
}

/* ---- the sweep ---- */

static void *sweep(void *context)
{
    struct server *server = context;
    struct timespec until;

    pulse_begin(&server->sweep_pulse);
    pthread_mutex_lock(&server->lock);
    while (!server->stopping) {
        pulse_beat(); /* it looks again in a second, which is no pause */
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += SWEEP_S;
        (void)pthread_cond_timedwait(&server->stop_sweeping, &server->lock, &until); /* or later */
        pthread_mutex_unlock(&server->lock);
        streams_tick(server->exchange.services.streams, clock_monotonic_ns());
        connections_tick(server->exchange.connections, clock_monotonic_ns());
        housekeeping_tick(&server->housekeeping, clock_monotonic_ns());
        pthread_mutex_lock(&server->lock);
    }
    pthread_mutex_unlock(&server->lock);
    pulse_end();
    return NULL;
}

static void end_sweep(struct server *server)
{
    if (!server->sweeper_runs)
        return;
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    pthread_cond_signal(&server->stop_sweeping);
    pthread_mutex_unlock(&server->lock);
    (void)pthread_join(server->sweeper, NULL); /* ours, joined once: cannot fail */
    server->sweeper_runs = false;
}

/* ---- the library ---- */

static void log_library(void *context, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void log_library(void *context, const char *format, va_list arguments)
{
    char text[256];

    (void)context;                                          /* none */
    (void)vsnprintf(text, sizeof(text), format, arguments); /* cut is fine */
    text[strcspn(text, "\n")] = '\0';
    log_write(LOG_LEVEL_DEBUG, "http: %s", text);
}

/* Paths are cut at "/" before they are decoded (request.c), so the library decodes nothing. */
static size_t keep_escapes(void *context, struct MHD_Connection *connection, char *text)
{
    (void)context; /* none */
    (void)connection;
    return strlen(text);
}

/* Takes the descriptor. */
static bool serve(struct server *server, int descriptor, bool is_socket, struct error *err)
{
    struct listener *listener = &server->listeners[server->listener_count];
    const unsigned per_address = is_socket ? 0 : (unsigned)server->connections_per_address;
    const struct descriptors_share *share = &server->share;
    const size_t most = is_socket ? share->local_max : share->tcp_max;
    struct MHD_Daemon *daemon;

    *listener =
        (struct listener){&server->exchange, is_socket, {.count_max = descriptors_crowd(most)}};
    daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
        exchange_handle, listener, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL,
        MHD_OPTION_LISTEN_SOCKET, descriptor, MHD_OPTION_THREAD_POOL_SIZE, share->serving_threads,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)most, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        per_address, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT,
        1, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        exchange_complete, listener, MHD_OPTION_NOTIFY_CONNECTION, exchange_notify, listener,
        MHD_OPTION_END);
    if (!daemon) {
        (void)close(descriptor); /* nothing was written to it */
        return error_set(err, ERR_INTERNAL, "libmicrohttpd %s did not start", MHD_get_version());
    }
    server->daemons[server->listener_count] = daemon;
    server->descriptors[server->listener_count] = descriptor;
    server->listener_count++;
    return true;
}

static bool check_reach(const char *address, bool is_loopback, bool has_key, struct error *err)
{
    return is_loopback || has_key ||
           error_set_param(err, ERR_INVALID, "listen",
                           "'%s' is reachable from outside, which needs an API key: make "
                           "one with 'needlectl key create' while the daemon listens on "
                           "loopback, or name a file as api_key_file in the settings",
                           address);
}

static bool check_address(const struct server_options *options, bool has_key, bool *ret_is_loopback,
                          struct error *err)
{
    bool loopback = true;

    for (size_t i = 0; i < options->socket_count; i++) {
        const struct server_socket *socket = &options->sockets[i];
        struct listen_about about;

        if (!listen_look(socket->descriptor, socket->name, &about, err) ||
            !check_reach(about.address, about.is_loopback, has_key, err))
            return false;
        loopback = loopback && about.is_loopback;
    }
    if (options->socket_count == 0 && options->listen && options->listen[0] &&
        (!listen_check(options->listen, &loopback, err) ||
         !check_reach(options->listen, loopback, has_key, err)))
        return false;
    *ret_is_loopback = loopback;
    return true;
}

bool server_check(const struct server_options *options, struct error *err)
{
    /* A database may hold keys: what server_start will see, a check that opens nothing cannot. */
    bool may_have_key = (options->api_key && options->api_key[0]) ||
                        (options->database_path && access(options->database_path, F_OK) == 0);
    bool loopback;

    return check_address(options, may_have_key, &loopback, err);
}

/* The sockets that somebody else has opened, and nothing beside them. */
static bool serve_given(struct server *server, const struct server_options *options,
                        struct error *err)
{
    for (size_t i = 0; i < options->socket_count; i++) {
        struct listen_about about;

        if (!listen_look(options->sockets[i].descriptor, options->sockets[i].name, &about, err) ||
            !serve(server, options->sockets[i].descriptor, about.is_unix, err))
            return false;
        if (server->port == 0)
            server->port = about.port;
    }
    return true;
}

static bool open_listeners(struct server *server, const struct server_options *options,
                           struct error *err)
{
    int descriptor = -1;
    bool loopback = true;

    if (!check_address(options, keyring_is_usable(server->exchange.services.keyring), &loopback,
                       err))
        return false;
    if (options->public_url && keyring_is_open(server->exchange.services.keyring))
        log_write(LOG_LEVEL_WARN,
                  "public_url is '%s' and there is no API key: whoever a proxy lets through may do "
                  "everything ('needlectl key create' makes one)",
                  options->public_url);
    server->exchange.guard.any_address = !loopback;
    server->connections_per_address = options->connections_per_address;
    if (options->connections_per_address < 0)
        server->connections_per_address =
            loopback || options->public_url ? 0 : LIMIT_CONNECTIONS_PER_ADDRESS;
    if (options->socket_count > 0)
        return serve_given(server, options, err);
    if (options->listen && options->listen[0] &&
        (!listen_tcp(options->listen, &descriptor, &server->port, err) ||
         !serve(server, descriptor, false, err)))
        return false;
    if (options->socket_path && options->socket_path[0]) {
        if (!listen_unix(options->socket_path, &descriptor, err))
            return false;
        server->socket_path = keep(server, options->socket_path);
        if (!serve(server, descriptor, true, err))
            return false;
    }
    if (server->listener_count == 0)
        return error_set_param(err, ERR_INVALID, "listen", "no address and no socket to listen on");
    return true;
}

/* ---- start ---- */

/* What the database keeps of access: the secret of links, keys, and who is signed in. */
static bool open_access(struct server *server, const struct server_options *options,
                        struct error *err)
{
    struct services *services = &server->exchange.services;
    struct guard *guard = &server->exchange.guard;
    struct store *store = NULL;
    bool ok;

    if (!stores_take(services->stores, &store, err))
        return false;
    ok = links_open(&server->links, store, guard->public_url, err) &&
         keyring_open(store, options->api_key, &services->keyring, err) &&
         visitors_open(store, &services->visitors, err);
    stores_give(services->stores, store);
    services->links = guard->links = &server->links;
    guard->keyring = services->keyring;
    guard->visitors = services->visitors;
    return ok;
}

/* The last uses of keys. */
static void save_uses(const struct services *services)
{
    struct store *store = NULL;
    struct error err = {0};

    if (!services->keyring)
        return;
    if (!stores_take(services->stores, &store, &err) ||
        !keyring_save_uses(services->keyring, store, &err))
        log_write(LOG_LEVEL_WARN, "keep when keys were used: %s", err.message);
    stores_give(services->stores, store);
}

static bool open_streams(struct server *server, const struct server_options *options,
                         struct error *err)
{
    struct services *services = &server->exchange.services;
    const size_t wanted = options->stream_limit ? options->stream_limit : LIMIT_STREAMS;
    const size_t room = server->share.stream_max; /* others connect too */

    return streams_start(&(struct streams_options){.feed = options->feed,
                                                   .stores = services->stores,
                                                   .pool = server->exchange.pool,
                                                   .keepalive_s = KEEPALIVE_S,
                                                   .count_max = wanted < room ? wanted : room},
                         &services->streams, err);
}

/* Before any is opened here; listeners that were passed to us are. */
static bool share_descriptors(struct server *server, const struct server_options *options,
                              struct error *err)
{
    struct descriptors_needs needs = {.limit = process_raise_files(),
                                      .used = process_count_files(),
                                      .job_files = scheduler_job_files(options->scheduler)};

    for (size_t i = 0; i < options->socket_count; i++) {
        struct listen_about about;

        if (!listen_look(options->sockets[i].descriptor, options->sockets[i].name, &about, err))
            return false;
        needs.tcp += !about.is_unix;
        needs.local += about.is_unix;
    }
    if (options->socket_count == 0) {
        needs.tcp = options->listen && options->listen[0];
        needs.local = options->socket_path && options->socket_path[0];
    }
    return descriptors_share(&needs, &server->share, err);
}

static bool prepare(struct server *server, const struct server_options *options, struct error *err)
{
    struct exchange *exchange = &server->exchange;
    struct services *services = &exchange->services;

    services->scheduler = options->scheduler;
    services->feed = options->feed;
    services->stopping = &exchange->stopping;
    services->upload_helpers = &server->upload_helpers;
    services->upload_limit_bytes =
        options->upload_limit_bytes ? options->upload_limit_bytes : LIMIT_UPLOAD_BYTES;
    services->metrics_kept = options->metrics_kept;
    services->state_folder = keep(server, options->state_folder);
    exchange->guard.allowed_hosts = keep(server, options->allowed_hosts);
    exchange->guard.public_url = keep(server, options->public_url);
    services->stores = stores_new(options->database_path);
    services->metrics = metrics_new();
    services->open_count = &exchange->open_count;
    exchange->connections = connections_new(LIMIT_HEADER_TIMEOUT_S, server->share.linger_max);
    if (!services->stores || !services->metrics || !exchange->connections ||
        !services->state_folder)
        return error_set(err, ERR_NO_MEMORY, "no memory for the server");
    if (!open_access(server, options, err) ||
        !pool_start(server->share.working_threads, &exchange->pool, err) ||
        !open_streams(server, options, err))
        return false;
    if (!courier_start(&(struct courier_options){.hosts = keep(server, options->webhook_hosts),
                                                 .feed = options->feed,
                                                 .stores = services->stores,
                                                 .call_max = server->share.call_max},
                       &services->courier, err))
        return false;
    housekeeping_init(&server->housekeeping, exchange->pool, services);
    if (pthread_create(&server->sweeper, NULL, sweep, server) != 0)
        return error_set(err, ERR_NO_MEMORY, "the system refused a thread for the server");
    (void)pthread_setname_np(server->sweeper, "sweeper"); /* a help in lists of threads */
    server->sweeper_runs = true;
    return true;
}

bool server_start(const struct server_options *options, struct server **ret_server,
                  struct error *err)
{
    struct server *server = calloc(1, sizeof(*server));
    pthread_condattr_t monotonic;

    assert(options->scheduler);
    assert(options->feed);
    assert(options->state_folder);
    assert(options->database_path);
    if (!server)
        return error_set(err, ERR_NO_MEMORY, "no memory for the server");
    arena_init(&server->texts, TEXT_MAX);
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->stop_sweeping, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!share_descriptors(server, options, err) || !prepare(server, options, err) ||
        !open_listeners(server, options, err)) {
        server_stop(server);
        return false;
    }
    *ret_server = server;
    return true;
}

int server_port(const struct server *server)
{
    return server->port;
}

/* ---- while it runs ---- */

/* The copy of a text that is read by others meanwhile: the old one stays, some may be reading it. */
static bool renew(struct server *server, const char *_Atomic *text, const char *wanted,
                  struct error *err)
{
    const char *old = *text, *copy;

    if (wanted == old || (wanted && old && strcmp(wanted, old) == 0))
        return true;
    copy = keep(server, wanted);
    if (wanted && !copy)
        return error_set(err, ERR_LIMIT,
                         "the settings were changed too often: they come into force at the next "
                         "start");
    *text = copy;
    return true;
}

bool server_reload(struct server *server, const struct server_options *options, struct error *err)
{
    struct services *services = &server->exchange.services;
    const char *_Atomic hosts = courier_hosts(services->courier);

    if (!renew(server, &server->exchange.guard.allowed_hosts, options->allowed_hosts, err) ||
        !renew(server, &hosts, options->webhook_hosts, err))
        return false;
    courier_set_hosts(services->courier, hosts);
    services->upload_limit_bytes =
        options->upload_limit_bytes ? options->upload_limit_bytes : LIMIT_UPLOAD_BYTES;
    keyring_set_configured(services->keyring, options->api_key);
    return true;
}

bool server_is_alive(struct server *server, int64_t deadline_ns, struct error *err)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        if (!probe_daemon(server->daemons[i], server->share.serving_threads, deadline_ns, err))
            return false;
    }
    return true;
}

bool server_find_stuck(const struct server *server, int64_t limit_ns, char *ret_who, size_t size)
{
    const struct services *services = &server->exchange.services;
    const struct {
        const struct pulse *pulse;
        const char *what;
        int patience; /* times the limit: who only reads is done soon, who writes waits for disks */
    } threads[] = {
        {streams_pulse(services->streams), "tells event streams their news", 2},
        {courier_pulse(services->courier), "calls webhooks", 5},
        {&server->sweep_pulse, "looks after connections", 5},
        {&server->housekeeping.pulse, "puts away what is over", 10},
    };
    const int64_t now_ns = clock_monotonic_ns();

    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        if (pulse_rest_ns(threads[i].pulse, now_ns) / threads[i].patience <= limit_ns)
            continue;
        (void)snprintf(ret_who, size, "the thread that %s", threads[i].what);
        return true;
    }
    return false;
}

/* ---- stop ---- */

static void wait_for_answers(struct server *server)
{
    int64_t until_ns = clock_monotonic_ns() + STOP_WAIT_MS * NS_PER_MS;

    while (atomic_load(&server->exchange.open_count) > 0 && clock_monotonic_ns() < until_ns)
        (void)usleep(2000); /* the library tells of no end of its writing but by its callbacks */
}

void server_stop(struct server *server)
{
    struct services *services;

    if (!server)
        return;
    services = &server->exchange.services;
    atomic_store_explicit(&server->exchange.stopping, true, memory_order_relaxed);
    for (size_t i = 0; i < server->listener_count; i++)
        (void)MHD_quiesce_daemon(server->daemons[i]); /* the descriptor is ours */
    if (server->exchange.pool)
        pool_close(server->exchange.pool);
    if (services->streams)
        streams_stop(services->streams);
    wait_for_answers(server);
    end_sweep(server);
    for (size_t i = 0; i < server->listener_count; i++) {
        MHD_stop_daemon(server->daemons[i]);
        (void)close(server->descriptors[i]); /* nothing was written to it */
    }
    if (server->socket_path && !file_remove(server->socket_path, NULL))
        log_write(LOG_LEVEL_WARN, "'%s' could not be removed", server->socket_path);
    pool_stop(server->exchange.pool);
    courier_stop(services->courier);
    save_uses(services);
    visitors_free(services->visitors);
    keyring_free(services->keyring);
    metrics_free(services->metrics);
    streams_free(services->streams);
    stores_free(services->stores);
    connections_free(server->exchange.connections);
    pthread_cond_destroy(&server->stop_sweeping);
    pthread_mutex_destroy(&server->lock);
    arena_release(&server->texts);
    free(server);
}

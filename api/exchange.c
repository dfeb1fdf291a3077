#include "api/exchange.h"

#include "api/connections.h"
#include "api/form.h"
#include "api/keyring.h"
#include "api/links.h"
#include "api/metrics.h"
#include "api/router.h"
#include "api/stores.h"
#include "api/stream.h"
#include "api/text.h"
#include "api/visitors.h"
#include "daemon/base/clock.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/scheduler.h"
#include "store/retention.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FORM_OVERHEAD_BYTES ((size_t)64 << 10) /* boundaries, part headers and text parts */
#define REFUSAL_BYTES ((size_t)64 << 10)       /* an error answer written past the library */

static bool is_upload(const struct request *request)
{
    return request->route->body == ROUTE_BODY_FILE && request->content_type &&
           text_is_media_type(request->content_type, "multipart/form-data");
}

static size_t body_limit(const struct request *request)
{
    if (request->route->body == ROUTE_BODY_RAW)
        return (size_t)request->link_bytes;
    if (is_upload(request))
        return request->services->upload_limit_bytes + FORM_OVERHEAD_BYTES;
    return LIMIT_BODY_BYTES;
}

static void refuse_size(struct request *request)
{
    struct error err = {0};

    if (request->route->body == ROUTE_BODY_RAW)
        error_set_word(&err, ERR_INVALID, "invalid_upload", "",
                       "more than the %zu bytes that were announced are sent", body_limit(request));
    else
        error_set(&err, ERR_LIMIT, "the body is larger than %zu bytes", body_limit(request));
    response_set_error(&request->response, &err, NULL);
}

/* Opens what takes a body that goes to disk. */
static bool open_intake(struct request *request)
{
    const struct services *services = request->services;
    struct error err = {0};
    bool ok = true;

    if ((is_upload(request) || request->route->body == ROUTE_BODY_RAW) &&
        !scheduler_check_disk(services->scheduler, request->announced_bytes + 1, &err)) {
        response_set_error(&request->response, &err, NULL);
        return false;
    }
    assert(request->route->body != ROUTE_BODY_RAW || request->link_bytes >= 0); /* links of ours */
    if (is_upload(request))
        ok = form_new(request->content_type, services->state_folder, services->upload_limit_bytes,
                      services->upload_helpers, &request->form, &err);
    else if (request->route->body == ROUTE_BODY_RAW && !request->is_chunked &&
             request->announced_bytes != (uint64_t)request->link_bytes)
        ok = error_set_word(&err, ERR_INVALID, "invalid_upload", "",
                            "%" PRIu64 " bytes are sent, %" PRId64 " were announced",
                            request->announced_bytes, request->link_bytes);
    else if (request->route->body == ROUTE_BODY_RAW)
        ok = upload_open(services->state_folder, "upload", "fine-tune", &request->upload, &err);
    (void)scheduler_report_disk(services->scheduler, &err, false);
    if (request->upload)
        upload_set_helpers(request->upload, services->upload_helpers);
    if (!ok)
        response_set_error(&request->response, &err, NULL);
    return ok;
}

static void close_intake(struct request *request)
{
    form_free(request->form);
    upload_abort(request->upload);
    request->form = NULL;
    request->upload = NULL;
}

/* Who has connected to the Unix socket: our own user or root. */
static bool peer_is_owner(const struct request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return info && getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static bool asks_for_key(const struct request *request)
{
    return !request->route ||
           (request->route->access != ROUTE_OPEN && request->route->access != ROUTE_WHO &&
            request->route->access != ROUTE_LINK);
}

/* Everything that the header decides. False: request->response is the refusal. */
static bool admit(const struct listener *listener, struct request *request)
{
    const struct exchange *exchange = listener->exchange;
    bool matched;

    if (request->framing_fault) {
        response_refuse(&request->response, 400, "invalid_request", NULL, "%s",
                        request->framing_fault);
        return false;
    }
    if (atomic_load_explicit(&exchange->stopping, memory_order_relaxed)) {
        response_refuse(&request->response, 503, "unavailable", NULL, "the server is stopping");
        return false;
    }
    if (!guard_check_host(&exchange->guard, request, listener->is_socket))
        return false;
    matched = router_match(request);
    request->peer_is_owner = listener->is_socket && peer_is_owner(request);
    if (asks_for_key(request)) {
        if (!guard_check_key(&exchange->guard, request, listener->is_socket))
            return false;
    } else if (request->route->access == ROUTE_WHO) {
        guard_identify(&exchange->guard, request, listener->is_socket);
    }
    if (!matched || !guard_check_scope(request))
        return false;
    if (request->route->access == ROUTE_LINK) {
        if (!links_check(request->services->links, request, &request->link_bytes))
            return false;
    } else if (!guard_check_type(request)) {
        return false;
    }
    if (request->announced_bytes > body_limit(request)) {
        refuse_size(request);
        return false;
    }
    return open_intake(request);
}

static enum MHD_Result queue_answer(struct request *request)
{
    struct stream *stream = request->response.stream;
    struct MHD_Response *built = response_build(&request->response, request->id);
    enum MHD_Result result;

    if (!built)
        return MHD_NO; /* without memory there is nothing to say it with */
    /* What follows may be a body or a request: neither is read. */
    if (request->framing_fault &&
        MHD_add_response_header(built, "Connection", "close") != MHD_YES) {
        MHD_destroy_response(built);
        return MHD_NO;
    }
    if (stream) {
        stream_start(stream, request->connection);
        if (!keyring_holds(request->services->keyring, request->owner))
            streams_end_owner(request->services->streams, request->owner); /* revoked meanwhile */
        if (request->by_cookie && !visitors_hold(request->services->visitors, request->session))
            streams_end_session(request->services->streams, request->session); /* signed out */
    }
    result = MHD_queue_response(request->connection, request->response.status, built);
    MHD_destroy_response(built);
    return result;
}

static enum MHD_Result begin(const struct listener *listener, struct request *request)
{
    if (admit(listener, request))
        return MHD_YES;
    request->discards = true;
    if (!request->framing_fault &&
        (!request_has_body(request) || (!request->expects_continue && !request->is_chunked &&
                                        request->announced_bytes <= LIMIT_BODY_BYTES)))
        return MHD_YES; /* a small body is read first, so that the connection lives on */
    connections_set_unread(listener->exchange->connections, request->entry);
    return queue_answer(request);
}

/* The answer stands in the middle of the body. The library takes no answer here: a body with little
 * left is read to its end, else the refusal is written past it and the connection closed. */
static enum MHD_Result refuse_midway(const struct listener *listener, struct request *request)
{
    const union MHD_ConnectionInfo *info;
    size_t size = 0;
    char *text;

    request->discards = true;
    if (!request->is_chunked && request->announced_bytes - request->body_bytes <= LIMIT_BODY_BYTES)
        return MHD_YES;
    text = arena_alloc(&request->arena, REFUSAL_BYTES);
    info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (text && info &&
        response_print(&request->response, request->id, text, REFUSAL_BYTES, &size)) {
        /* The send buffer is empty: nothing but a 100 went out. What does not fit is lost with the
         * connection. */
        (void)send(info->connect_fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        connections_set_unread(listener->exchange->connections, request->entry);
    }
    return MHD_NO;
}

static enum MHD_Result take_body(const struct listener *listener, struct request *request,
                                 const char *bytes, size_t size)
{
    struct error err = {0};

    request->body_bytes += size;
    if (request->discards)
        return MHD_YES;
    if (request->body_bytes > body_limit(request)) {
        close_intake(request);
        refuse_size(request);
        return refuse_midway(listener, request);
    }
    if (request->form || request->upload) {
        if (request->form ? form_feed(request->form, bytes, size, &err)
                          : upload_append(request->upload, bytes, size, &err))
            return MHD_YES;
        (void)scheduler_report_disk(request->services->scheduler, &err, false);
        close_intake(request); /* nothing is kept of it, also while the rest is read */
        response_set_error(&request->response, &err, NULL);
        return refuse_midway(listener, request);
    }
    if (request->route->body == ROUTE_BODY_NONE)
        return MHD_YES;
    buf_append(&request->body, bytes, size);
    if (!request->body.failed)
        return MHD_YES;
    error_set(&err, ERR_NO_MEMORY, "no memory for the body");
    response_set_error(&request->response, &err, NULL);
    return refuse_midway(listener, request);
}

/* The body may have taken its time, and the queue: a key that was revoked meanwhile does nothing more.
 * False: request->response is the refusal. */
static bool is_still_admitted(struct request *request)
{
    const struct listener *listener = request->listener;

    return !asks_for_key(request) ||
           guard_check_key(&listener->exchange->guard, request, listener->is_socket);
}

/* What a full disk is emptied with. */
static bool makes_room(const struct request *request)
{
    const char *last = request->segment_count ? request->segments[request->segment_count - 1] : "";

    return strcmp(request->method, "DELETE") == 0 || strcmp(last, "cancel") == 0 ||
           strcmp(last, "pause") == 0;
}

/* What is open to all to be read speaks of the daemon and not of its state: it is answered without. */
static bool try_to_handle(struct request *request, struct error *err)
{
    const struct services *services = request->services;
    const bool reads = strcmp(request->method, "GET") == 0;
    struct error gone = {0};
    const bool is_there = scheduler_check_state(services->scheduler, &gone);

    if (!is_there && !(reads && request->route->access == ROUTE_OPEN)) {
        *err = gone;
        return false;
    }
    if (is_there && !stores_take(services->stores, &request->store, err))
        return false;
    /* What was changed in a folder that is gone meanwhile was not changed. */
    return guard_check_owner(request, err) && request->route->handle(request, err) &&
           (reads || scheduler_check_state(services->scheduler, err));
}

static void handle(struct request *request)
{
    struct stores *stores = request->services->stores;
    struct error err = {0};
    bool ok = try_to_handle(request, &err);

    (void)scheduler_report_disk(request->services->scheduler, &err, makes_room(request));
    if (!ok && error_is_disk(&err) && makes_room(request)) {
        stores_give(stores, request->store);
        request->store = NULL;
        err = (struct error){0};
        ok = try_to_handle(request, &err);
    }
    if (!ok && err.code == ERR_NOT_FOUND && request->route->access != ROUTE_OPEN &&
        request->params[0])
        retention_explain(request->store, request->params[0], &err);
    if (!ok) {
        if (response_status_of(err.code) >= 500)
            log_write_for(LOG_LEVEL_WARN, "request", request->id, "%s", err.message);
        error_hide_folder(&err, request->services->state_folder, "");
        response_set_error(&request->response, &err, request->lines);
    }
    stores_give(stores, request->store);
    request->store = NULL;
}

/* On a pool thread; the connection sleeps until the last line. */
static void work(struct pool_task *task)
{
    struct request *request = (struct request *)task; /* its first member */
    struct MHD_Connection *connection = request->connection;

    if (is_still_admitted(request))
        handle(request);
    close_intake(request); /* before the answer: a refused upload is gone when it says so */
    atomic_store_explicit(&request->answered, true, memory_order_release);
    MHD_resume_connection(connection); /* the request is the library's again */
}

static enum MHD_Result finish(const struct listener *listener, struct request *request)
{
    if (request->discards || atomic_load_explicit(&request->answered, memory_order_acquire))
        return queue_answer(request);
    assert(!request->submitted);
    request->submitted = true;
    request->task.work = work;
    MHD_suspend_connection(request->connection);
    if (!pool_submit(listener->exchange->pool, &request->task)) {
        response_refuse(&request->response, 503, "unavailable", NULL, "the server is stopping");
        atomic_store_explicit(&request->answered, true, memory_order_release);
        MHD_resume_connection(request->connection);
    }
    return MHD_YES;
}

enum MHD_Result exchange_handle(void *context, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *bytes,
                                size_t *size, void **state)
{
    const struct listener *listener = context;
    struct request *request = *state;
    const union MHD_ConnectionInfo *info;
    enum MHD_Result result;

    if (!request) {
        request = request_new(&listener->exchange->services, connection, url, method);
        if (!request)
            return MHD_NO; /* without memory there is nothing to say it with */
        *state = request;
        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        request->listener = listener;
        request->is_old = strcmp(version, "HTTP/1.0") == 0;
        request->entry = info ? info->socket_context : NULL;
        connections_set_busy(listener->exchange->connections, request->entry);
        (void)atomic_fetch_add(&listener->exchange->open_count, 1);
        return begin(listener, request);
    }
    if (*size > 0) {
        result = take_body(listener, request, bytes, *size);
        *size = 0;
        return result;
    }
    return finish(listener, request);
}

#define STATUS_CLIENT_LEFT 499 /* as nginx has it */

/* Before there was an answer the connection ended: the client's doing, unless the server stopped. */
static void set_status_of_end(struct request *request, enum MHD_RequestTerminationCode how)
{
    if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK || request->submitted || request->discards)
        return;
    request->response.status =
        how == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN ? 503 : STATUS_CLIENT_LEFT;
}

static void log_request(const struct request *request, enum MHD_RequestTerminationCode how)
{
    unsigned status = request->response.status;
    long long elapsed_ms = (clock_monotonic_ns() - request->started_ns) / 1000000;
    enum log_level level = LOG_LEVEL_INFO;

    if (strcmp(request->method, "GET") == 0)
        level = LOG_LEVEL_DEBUG;
    if (status >= 500)
        level = LOG_LEVEL_WARN;
    log_write_for(level, "request", request->id, "%s %.200s %u %lld ms%s%s%s",
                  request->head ? "HEAD" : request->method, request->url, status, elapsed_ms,
                  request->owner[0] ? " by " : "", request->owner,
                  how == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : ", connection ended early");
}

void exchange_complete(void *context, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode how)
{
    const struct listener *listener = context;
    struct request *request = *state;

    (void)connection; /* the request knows it */
    if (!request)
        return;
    assert(!request->submitted || atomic_load_explicit(&request->answered, memory_order_acquire));
    set_status_of_end(request, how);
    log_request(request, how);
    metrics_count_request(request->services->metrics, request,
                          clock_monotonic_ns() - request->started_ns);
    connections_set_idle(listener->exchange->connections, request->entry);
    request_free(request);
    *state = NULL;
    (void)atomic_fetch_sub(&listener->exchange->open_count, 1);
}

void exchange_notify(void *context, struct MHD_Connection *connection, void **socket_context,
                     enum MHD_ConnectionNotificationCode what)
{
    struct listener *listener = context;
    const union MHD_ConnectionInfo *info;

    switch (what) {
    case MHD_CONNECTION_NOTIFY_STARTED:
        info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info ? connections_add(listener->exchange->connections, &listener->group,
                                                 info->connect_fd)
                               : NULL;
        break;
    case MHD_CONNECTION_NOTIFY_CLOSED:
        connections_remove(listener->exchange->connections, *socket_context);
        *socket_context = NULL;
        break;
    }
}

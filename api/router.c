#include "api/router.h"

#include "api/guard.h"
#include "api/handlers.h"
#include "api/request.h"
#include "daemon/base/limits.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define DROP ROUTE_BODY_NONE, LIMIT_BODY_BYTES
#define JSON ROUTE_BODY_JSON, LIMIT_BODY_BYTES
#define UPLOAD ROUTE_BODY_FILE, LIMIT_UPLOAD_BYTES
#define RAW ROUTE_BODY_RAW, LIMIT_UPLOAD_BYTES
#define JOB "/v1/fine_tuning/jobs/{}"
#define HOOK "/v1/webhook_endpoints/{}"

static const struct route routes[] = {
    {"GET", "/", dashboard_handle_get, DROP, ROUTE_OPEN},
    {"GET", "/dashboard/{}", dashboard_handle_file, DROP, ROUTE_OPEN},
    {"GET", "/dashboard/{}/{}", dashboard_handle_file, DROP, ROUTE_OPEN},
    {"GET", "/healthz", health_handle_get, DROP, ROUTE_OPEN},
    {"GET", "/v1/openapi.json", description_handle_get, DROP, ROUTE_OPEN},
    {"GET", GUARD_HELP_PATH, keys_handle_help, DROP, ROUTE_OPEN},
    {"POST", "/v1/session", session_handle_create, JSON, ROUTE_OPEN},
    {"GET", "/v1/session", session_handle_get, DROP, ROUTE_WHO},
    {"DELETE", "/v1/session", session_handle_delete, DROP, ROUTE_OPEN},
    {"POST", "/v1/keys", keys_handle_create, JSON, ROUTE_ADMIN},
    {"GET", "/v1/keys", keys_handle_list, DROP, ROUTE_ADMIN},
    {"GET", "/v1/keys/{}", keys_handle_get, DROP, ROUTE_ADMIN},
    {"DELETE", "/v1/keys/{}", keys_handle_revoke, DROP, ROUTE_ADMIN},
    {"POST", "/v1/webhook_endpoints", webhooks_handle_create, JSON, ROUTE_SUBMIT},
    {"GET", "/v1/webhook_endpoints", webhooks_handle_list, DROP, ROUTE_READ},
    {"GET", HOOK, webhooks_handle_get, DROP, ROUTE_READ},
    {"POST", HOOK, webhooks_handle_update, JSON, ROUTE_SUBMIT},
    {"DELETE", HOOK, webhooks_handle_delete, DROP, ROUTE_SUBMIT},
    {"POST", HOOK "/rotate_secret", webhooks_handle_rotate, JSON, ROUTE_SUBMIT},
    {"POST", HOOK "/test", webhooks_handle_test, JSON, ROUTE_SUBMIT},
    {"GET", HOOK "/deliveries", webhooks_handle_deliveries, DROP, ROUTE_READ},
    {"GET", "/v1/webhook_event_types", webhooks_handle_types, DROP, ROUTE_READ},
    {"GET", "/metrics", metrics_handle_get, DROP, ROUTE_READ},
    {"GET", "/v1/backup", backups_handle_get, DROP, ROUTE_ADMIN},
    {"GET", "/v1/devices", devices_handle_list, DROP, ROUTE_READ},
    {"POST", "/v1/files", files_handle_create, UPLOAD, ROUTE_SUBMIT},
    {"GET", "/v1/files", files_handle_list, DROP, ROUTE_READ},
    {"GET", "/v1/files/{}", files_handle_get, DROP, ROUTE_READ},
    {"DELETE", "/v1/files/{}", files_handle_delete, DROP, ROUTE_SUBMIT},
    {"GET", "/v1/files/{}/content", files_handle_content, DROP, ROUTE_READ},
    {"GET", "/v1/files/{}/bytes", files_handle_bytes, DROP, ROUTE_LINK},
    {"GET", "/v1/files/{}/report", files_handle_report, DROP, ROUTE_READ},
    {"GET", "/v1/files/{}/examples/{}", files_handle_example, DROP, ROUTE_READ},
    {"POST", "/v1/files/{}/complete", files_handle_complete, DROP, ROUTE_SUBMIT},
    {"PUT", "/v1/uploads/{}", files_handle_put, RAW, ROUTE_LINK},
    {"DELETE", "/v1/uploads/{}", uploads_handle_delete, DROP, ROUTE_SUBMIT},
    {"POST", "/v1/fine_tuning/estimate", estimates_handle_create, JSON, ROUTE_READ},
    {"POST", "/v1/fine_tuning/jobs", jobs_handle_create, JSON, ROUTE_SUBMIT},
    {"GET", "/v1/fine_tuning/jobs", jobs_handle_list, DROP, ROUTE_READ},
    {"GET", JOB, jobs_handle_get, DROP, ROUTE_READ},
    {"POST", JOB "/move", jobs_handle_move, JSON, ROUTE_SUBMIT},
    {"POST", JOB "/cancel", jobs_handle_cancel, DROP, ROUTE_SUBMIT},
    {"POST", JOB "/pause", jobs_handle_pause, DROP, ROUTE_SUBMIT},
    {"POST", JOB "/resume", jobs_handle_resume, DROP, ROUTE_SUBMIT},
    {"POST", "/v1/fine_tuning/sweeps", sweeps_handle_create, JSON, ROUTE_SUBMIT},
    {"GET", "/v1/fine_tuning/sweeps", sweeps_handle_list, DROP, ROUTE_READ},
    {"GET", "/v1/fine_tuning/sweeps/{}", sweeps_handle_get, DROP, ROUTE_READ},
    {"POST", "/v1/fine_tuning/sweeps/{}/cancel", sweeps_handle_cancel, DROP, ROUTE_SUBMIT},
    {"GET", JOB "/metrics", series_handle_get, DROP, ROUTE_READ},
    {"GET", JOB "/events", events_handle_list, DROP, ROUTE_READ},
    {"GET", "/v1/events", events_handle_list_all, DROP, ROUTE_READ},
    {"GET", JOB "/checkpoints", checkpoints_handle_list, DROP, ROUTE_READ},
    {"GET", "/v1/models", models_handle_list, DROP, ROUTE_READ},
    {"GET", "/v1/models/{}", models_handle_get, DROP, ROUTE_READ},
    {"DELETE", "/v1/models/{}", models_handle_delete, DROP, ROUTE_SUBMIT},
    {"GET", "/v1/models/{}/adapter.safetensors", models_handle_adapter, DROP, ROUTE_READ},
    {"GET", "/v1/models/{}/content", models_handle_content, DROP, ROUTE_READ},
    {"GET", "/v1/models/{}/bytes", models_handle_bytes, DROP, ROUTE_LINK},
    {"GET", "/v1/plans", plans_handle_list, DROP, ROUTE_OPEN},
    {"GET", "/v1/billing", plans_handle_billing, DROP, ROUTE_READ},
    {"POST", "/v1/generations", generations_handle_any, JSON, ROUTE_SUBMIT},
    {"GET", "/v1/generations", generations_handle_any, DROP, ROUTE_READ},
    {"GET", "/v1/generations/{}", generations_handle_get, DROP, ROUTE_READ},
    {"POST", "/v1/generations/{}/cancel", generations_handle_any, DROP, ROUTE_SUBMIT},
    {"POST", "/v1/tool_schemas", generations_handle_any, JSON, ROUTE_SUBMIT},
};

const struct route *router_routes(size_t *ret_count)
{
    *ret_count = COUNT_OF(routes);
    return routes;
}

/* True when the request's segments are the path's; fills the params. */
static bool path_matches(const char *path, struct request *request)
{
    size_t at = 0, param_count = 0;

    while (*path == '/') {
        size_t size = strcspn(path + 1, "/");
        const char *segment = at < request->segment_count ? request->segments[at] : NULL;

        if (!segment)
            return false;
        if (size == 2 && memcmp(path + 1, "{}", 2) == 0) {
            assert(param_count < REQUEST_PARAM_MAX);
            if (!*segment)
                return false;
            request->params[param_count++] = segment;
        } else if (strlen(segment) != size || memcmp(segment, path + 1, size) != 0) {
            return false;
        }
        path += 1 + size;
        at++;
    }
    return at == request->segment_count;
}

static void allow(char *list, size_t capacity, const char *method)
{
    size_t size = strlen(list);

    (void)snprintf(list + size, capacity - size, "%s%s%s", size ? ", " : "", method,
                   strcmp(method, "GET") == 0 ? ", HEAD" : ""); /* three methods at most: fits */
}

/* "*", the server as a whole: OPTIONS is answered, nothing else is asked of it. */
static void answer_asterisk(struct request *request)
{
    static const char methods[] = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

    static_assert(sizeof(methods) <= sizeof(request->response.allow), "every method fits");
    if (strcmp(request->method, "OPTIONS") != 0) {
        response_refuse(&request->response, 400, "invalid_request", NULL,
                        "the target '*' goes with OPTIONS, %.20s needs a path", request->method);
        return;
    }
    response_set_empty(&request->response, 204);
    memcpy(request->response.allow, methods, sizeof(methods));
}

bool router_match(struct request *request)
{
    char allowed[sizeof(request->response.allow)] = "";

    if (request->asterisk) {
        answer_asterisk(request);
        return false;
    }
    if (request->no_memory) {
        response_refuse(&request->response, 507, "insufficient_storage", NULL,
                        "no memory for the request");
        return false;
    }
    if (request->malformed || request->segment_count > REQUEST_SEGMENT_MAX) {
        response_refuse(&request->response, request->malformed ? 400 : 404,
                        request->malformed ? "invalid_request" : "not_found", NULL,
                        request->malformed
                            ? "the path or query has a broken percent escape or a NUL"
                            : "there is nothing at this path");
        return false;
    }
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        if (!path_matches(routes[i].path, request))
            continue;
        if (strcmp(routes[i].method, request->method) == 0) {
            request->route = &routes[i];
            return true;
        }
        allow(allowed, sizeof(allowed), routes[i].method);
    }
    if (allowed[0]) {
        response_refuse(&request->response, 405, "method_not_allowed", NULL,
                        "this path takes %s, not %.20s", allowed, request->method);
        memcpy(request->response.allow, allowed, sizeof(allowed));
    } else {
        response_refuse(&request->response, 404, "not_found", NULL, "there is nothing at '%.200s'",
                        request->url);
    }
    return false;
}

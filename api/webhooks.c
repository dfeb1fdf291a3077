#include "api/courier.h"
#include "api/guard.h"
#include "api/handlers.h"
#include "api/hookcall.h"
#include "api/outbound.h"
#include "api/page.h"
#include "api/request.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "store/deliveries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_DIGITS 24
#define PAGE_DEFAULT 20
#define DELIVERIES_DEFAULT 20
#define DELIVERIES_MAX 100
#define KEEP_OLD_S INT64_C(86400)
#define HINT_LENGTH 4

/* ---- as JSON ---- */

static struct json *types_json(const struct webhook_record *webhook)
{
    struct json *array = json_new_array();
    char wanted[64];

    for (const char *const *type = webhook_types; *type; type++) {
        (void)snprintf(wanted, sizeof(wanted), ",%s,", *type);
        if (strstr(webhook->types, wanted))
            json_add_string(array, NULL, *type);
    }
    return array;
}

/* with_secret: at its making and after its change alone. */
static struct json *webhook_json(const struct webhook_record *webhook, bool with_secret)
{
    struct json *object = json_new_object();
    char hint[16];

    (void)snprintf(hint, sizeof(hint), "...%s",
                   webhook->secret + strlen(webhook->secret) - HINT_LENGTH);
    json_add_string(object, "id", webhook->id);
    json_add_string(object, "object", "webhook_endpoint");
    json_add_string(object, "name", webhook->name);
    json_add_string(object, "url", webhook->url);
    json_add(object, "event_types", types_json(webhook));
    json_add_string(object, "jobs", webhook->all_jobs ? "all" : "own");
    json_add_bool(object, "enabled", webhook->enabled);
    json_add_int(object, "created_at", webhook->created_unix_s);
    json_add_int(object, "updated_at", webhook->updated_unix_s);
    json_add_string(object, "signing_secret_hint", hint);
    if (with_secret)
        json_add_string(object, "signing_secret", webhook->secret);
    return object;
}

/* ---- what is sent ---- */

static bool read_text(const struct json *body, const char *field, char *ret_text, size_t capacity,
                      struct error *err)
{
    const char *text = NULL;

    if (!json_get_string(body, field, false, &text, err))
        return false;
    if (!text)
        return true;
    if (!text[0] || strlen(text) >= capacity)
        return error_set_param(err, ERR_INVALID, field, "'%s' has %zu bytes, 1 to %zu are needed",
                               field, strlen(text), capacity - 1);
    if (!text_check_label(field, text, err))
        return false;
    memcpy(ret_text, text, strlen(text) + 1);
    return true;
}

static bool is_type(const char *text)
{
    for (const char *const *type = webhook_types; *type; type++) {
        if (strcmp(*type, text) == 0)
            return true;
    }
    return false;
}

static bool read_types(const struct json *body, struct webhook_record *webhook, struct error *err)
{
    const struct json *array = NULL;
    size_t used = 1;

    if (!json_get_array(body, "event_types", false, &array, err))
        return false;
    if (!array)
        return true;
    if (json_count(array) == 0)
        return error_set_param(err, ERR_INVALID, "event_types",
                               "'event_types' is empty, at least one is needed");
    (void)snprintf(webhook->types, sizeof(webhook->types), ",");
    for (const struct json *element = json_first(array); element; element = json_next(element)) {
        const char *type = json_text(element);
        char known[64];

        if (!type || !is_type(type))
            return error_set_param(err, ERR_INVALID, "event_types",
                                   "'%.60s' is no type of event that this server has: there is "
                                   "%s, %s, %s",
                                   type ? type : "(no text)", webhook_types[0], webhook_types[1],
                                   webhook_types[2]);
        (void)snprintf(known, sizeof(known), ",%s,", type);
        if (!strstr(webhook->types, known)) /* each once: they fit */
            used +=
                (size_t)snprintf(webhook->types + used, sizeof(webhook->types) - used, "%s,", type);
    }
    return true;
}

static bool read_webhook(const struct request *request, const struct json *body,
                         struct webhook_record *webhook, struct error *err)
{
    static const char *const known[] = {"name", "url", "event_types", NULL};

    return json_only_fields(body, known, err) &&
           read_text(body, "name", webhook->name, sizeof(webhook->name), err) &&
           read_text(body, "url", webhook->url, sizeof(webhook->url), err) &&
           read_types(body, webhook, err) &&
           (!webhook->url[0] ||
            outbound_check_url(courier_hosts(request->services->courier), webhook->url, err));
}

static bool check_whole(const struct webhook_record *webhook, struct error *err)
{
    const char *missing = !webhook->name[0]    ? "name"
                          : !webhook->url[0]   ? "url"
                          : !webhook->types[0] ? "event_types"
                                               : NULL;

    return !missing || error_set_param(err, ERR_INVALID, missing, "field '%s' is missing", missing);
}

/* A body may be left out here. */
static bool read_optional(const struct request *request, struct json **ret_body, struct error *err)
{
    if (request->body.size > 0)
        return request_read_json(request, ret_body, err);
    *ret_body = json_new_object();
    return *ret_body || error_set(err, ERR_NO_MEMORY, "no memory for the request");
}

static bool get_webhook(struct request *request, struct webhook_record *ret_webhook,
                        struct error *err)
{
    *ret_webhook = (struct webhook_record){0};
    return webhooks_get(request->store, request->params[0], ret_webhook, err) &&
           guard_may_change(request, ret_webhook->owner, "webhook endpoint", ret_webhook->id, err);
}

/* ---- handlers ---- */

bool webhooks_handle_create(struct request *request, struct error *err)
{
    struct webhook_record webhook = {.all_jobs = request->scope == KEY_ADMIN, .enabled = true};
    struct json *body = NULL;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = read_webhook(request, body, &webhook, err) && check_whole(&webhook, err);
    json_free(body);
    if (!ok || !file_random_id(webhook.id, sizeof(webhook.id), "we-", ID_DIGITS, err) ||
        !hookcall_make_secret(webhook.secret, err))
        return false;
    (void)snprintf(webhook.owner, sizeof(webhook.owner), "%s", request->owner);
    webhook.created_unix_s = webhook.updated_unix_s = clock_unix_s();
    if (!webhooks_insert(request->store, &webhook, LIMIT_WEBHOOKS, err))
        return false;
    courier_wake(request->services->courier);
    return response_set_json(&request->response, 200, webhook_json(&webhook, true), err);
}

bool webhooks_handle_list(struct request *request, struct error *err)
{
    const char *owner = request->scope == KEY_ADMIN ? NULL : request->owner;
    struct webhook_record *webhooks = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;
    struct json *data;

    if (!page_read(request, PAGE_DEFAULT, LIMIT_EVENT_PAGE, &page, err) ||
        !webhooks_list(request->store, owner, &page, &webhooks, &count, &has_more, err))
        return false;
    data = json_new_array();
    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, webhook_json(&webhooks[i], false));
    free(webhooks);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

bool webhooks_handle_get(struct request *request, struct error *err)
{
    struct webhook_record webhook;

    return get_webhook(request, &webhook, err) &&
           response_set_json(&request->response, 200, webhook_json(&webhook, false), err);
}

bool webhooks_handle_update(struct request *request, struct error *err)
{
    struct webhook_record webhook, wanted = {0};
    struct webhook_change change;
    struct json *body = NULL;
    bool ok;

    if (!get_webhook(request, &webhook, err) || !read_optional(request, &body, err))
        return false;
    ok = read_webhook(request, body, &wanted, err);
    json_free(body);
    if (!ok)
        return false;
    change = (struct webhook_change){.name = wanted.name[0] ? wanted.name : NULL,
                                     .url = wanted.url[0] ? wanted.url : NULL,
                                     .types = wanted.types[0] ? wanted.types : NULL};
    if (!webhooks_update(request->store, request->params[0], &change, &webhook, err))
        return false;
    courier_wake(request->services->courier);
    return response_set_json(&request->response, 200, webhook_json(&webhook, false), err);
}

bool webhooks_handle_delete(struct request *request, struct error *err)
{
    struct webhook_record webhook;
    struct json *answer;

    if (!get_webhook(request, &webhook, err) || !webhooks_delete(request->store, webhook.id, err))
        return false;
    answer = json_new_object();
    json_add_string(answer, "id", webhook.id);
    json_add_string(answer, "object", "webhook_endpoint.deleted");
    json_add_bool(answer, "deleted", true);
    return response_set_json(&request->response, 200, answer, err);
}

bool webhooks_handle_rotate(struct request *request, struct error *err)
{
    static const char field[] = "keep_old_secret_active_for_24_hours";
    static const char *const known[] = {field, NULL};
    char secret[WEBHOOK_SECRET_SIZE];
    struct webhook_record webhook;
    struct json *body = NULL;
    bool keeps = false, ok;

    if (!get_webhook(request, &webhook, err) || !read_optional(request, &body, err))
        return false;
    ok = json_only_fields(body, known, err) && json_get_bool(body, field, false, &keeps, err);
    json_free(body);
    if (!ok)
        return false;
    return hookcall_make_secret(secret, err) &&
           webhooks_rotate(request->store, request->params[0], secret, keeps ? KEEP_OLD_S : 0,
                           &webhook, err) &&
           response_set_json(&request->response, 200, webhook_json(&webhook, true), err);
}

bool webhooks_handle_test(struct request *request, struct error *err)
{
    static const char *const known[] = {"event_type", NULL};
    const struct services *services = request->services;
    const char *type = webhook_types[0];
    struct webhook_record webhook;
    struct json *body = NULL, *answer;
    long status = 0;
    bool ok;

    if (!get_webhook(request, &webhook, err) || !read_optional(request, &body, err))
        return false;
    ok = json_only_fields(body, known, err) &&
         json_get_string(body, "event_type", false, &type, err);
    if (ok && !is_type(type))
        ok = error_set_param(err, ERR_INVALID, "event_type",
                             "'%.60s' is no type of event that this server has", type);
    ok = ok && courier_try(services->courier, &webhook, type, services->stopping, &status, err);
    answer = ok ? json_new_object() : NULL;
    json_add_string(answer, "object", "webhook_endpoint.test");
    json_add_string(answer, "webhook_endpoint_id", webhook.id);
    json_add_string(answer, "event_type", type);
    json_add_int(answer, "status_code", status);
    json_add_bool(answer, "success", true);
    json_free(body);
    return ok && response_set_json(&request->response, 200, answer, err);
}

static struct json *delivery_json(const struct delivery_record *delivery)
{
    struct json *object = json_new_object();
    const char *state = "waiting";

    if (delivery->next_unix_s == 0)
        state = delivery->last_error[0] ? "given_up" : "delivered";
    json_add_string(object, "id", delivery->event_id);
    json_add_string(object, "object", "webhook_delivery");
    json_add_string(object, "status", state);
    json_add_int(object, "created_at", delivery->created_unix_s);
    json_add_int(object, "attempts", delivery->attempt_count);
    if (delivery->next_unix_s > 0)
        json_add_int(object, "next_attempt_at", delivery->next_unix_s);
    else
        json_add_null(object, "next_attempt_at");
    if (delivery->last_status > 0)
        json_add_int(object, "last_status_code", delivery->last_status);
    else
        json_add_null(object, "last_status_code");
    json_add_string(object, "last_error", delivery->last_error[0] ? delivery->last_error : NULL);
    json_add(object, "event", json_parse_or(delivery->body, json_new_null));
    return object;
}

bool webhooks_handle_deliveries(struct request *request, struct error *err)
{
    struct delivery_record *deliveries = NULL;
    struct webhook_record webhook;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;
    struct json *data;

    if (!page_read(request, DELIVERIES_DEFAULT, DELIVERIES_MAX, &page, err) ||
        !get_webhook(request, &webhook, err) ||
        !deliveries_list(request->store, webhook.id, page.limit, &deliveries, &count, &has_more,
                         err))
        return false;
    data = json_new_array();
    for (size_t i = 0; i < count; i++) {
        json_add(data, NULL, delivery_json(&deliveries[i]));
        delivery_release(&deliveries[i]);
    }
    free(deliveries);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

bool webhooks_handle_types(struct request *request, struct error *err)
{
    struct webhook_record all = {.types = ""};
    struct json *answer = json_new_object();
    size_t used = 1;

    (void)snprintf(all.types, sizeof(all.types), ",");
    for (const char *const *type = webhook_types; *type; type++)
        used += (size_t)snprintf(all.types + used, sizeof(all.types) - used, "%s,", *type);
    json_add_string(answer, "object", "list");
    json_add(answer, "data", types_json(&all));
    return response_set_json(&request->response, 200, answer, err);
}

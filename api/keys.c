#include "api/guard.h"
#include "api/handlers.h"
#include "api/keyring.h"
#include "api/page.h"
#include "api/request.h"
#include "api/stream.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "store/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_DIGITS 16
#define PAGE_DEFAULT 100

static void add_time(struct json *object, const char *name, int64_t unix_s)
{
    if (unix_s > 0)
        json_add_int(object, name, unix_s);
    else
        json_add_null(object, name);
}

static void add_limit(struct json *object, const char *name, int64_t limit)
{
    add_time(object, name, limit); /* 0: none */
}

static struct json *key_json(struct keyring *keyring, const struct key_record *key)
{
    struct json *object = json_new_object();
    int64_t used_unix_s = keyring_last_used(keyring, key->id);

    json_add_string(object, "id", key->id);
    json_add_string(object, "object", "key");
    json_add_string(object, "name", key->name);
    json_add_string(object, "scope", key_scope_name(key->scope));
    json_add_string(object, "hint", key->hint);
    add_limit(object, "jobs_max", key->jobs_max);
    add_limit(object, "bytes_max", key->bytes_max);
    json_add_int(object, "created_at", key->created_unix_s);
    add_time(object, "last_used_at",
             used_unix_s > key->last_used_unix_s ? used_unix_s : key->last_used_unix_s);
    add_time(object, "revoked_at", key->revoked_unix_s);
    return object;
}

static bool read_name(const struct json *body, struct key_record *key, struct error *err)
{
    const char *name = NULL;

    if (!json_get_string(body, "name", true, &name, err))
        return false;
    if (!text_check_label("name", name, err))
        return false;
    if (!name[0] || strlen(name) >= sizeof(key->name))
        return error_set_param(err, ERR_INVALID, "name",
                               "'name' has %zu bytes, 1 to %zu are needed", strlen(name),
                               sizeof(key->name) - 1);
    memcpy(key->name, name, strlen(name) + 1);
    return true;
}

static bool read_key(const struct json *body, struct key_record *key, struct error *err)
{
    static const char *const known[] = {"name", "scope", "jobs_max", "bytes_max", NULL};
    const char *scope = key_scope_name(KEY_SUBMIT);

    if (!json_only_fields(body, known, err) || !read_name(body, key, err) ||
        !json_get_string(body, "scope", false, &scope, err) ||
        !json_get_int(body, "jobs_max", false, 1, 1000000, &key->jobs_max, err) ||
        !json_get_int(body, "bytes_max", false, 1, ((int64_t)1 << 53) - 1, &key->bytes_max, err))
        return false;
    return key_scope_from_name(scope, &key->scope) ||
           error_set_param(err, ERR_INVALID, "scope",
                           "scope is '%.40s', 'read', 'submit' or 'admin' is needed", scope);
}

bool keys_handle_create(struct request *request, struct error *err)
{
    struct key_record key = {.created_unix_s = clock_unix_s()};
    char secret[KEYRING_SECRET_SIZE];
    struct json *body = NULL, *answer;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = read_key(body, &key, err);
    json_free(body);
    if (!ok || !file_random_id(key.id, sizeof(key.id), "key-", ID_DIGITS, err) ||
        !keyring_make_secret(secret, &key, err) ||
        !keys_insert(request->store, &key, LIMIT_KEYS, err))
        return false;
    keyring_add(request->services->keyring, &key);
    log_write_for(LOG_LEVEL_INFO, "key", key.id, "created with scope %s",
                  key_scope_name(key.scope));
    answer = key_json(request->services->keyring, &key);
    json_add_string(answer, "key", secret);
    return response_set_json(&request->response, 201, answer, err);
}

bool keys_handle_list(struct request *request, struct error *err)
{
    struct key_record *keys = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;
    struct json *data;

    if (!page_read(request, PAGE_DEFAULT, LIMIT_KEYS, &page, err) ||
        !keys_list(request->store, &page, &keys, &count, &has_more, err))
        return false;
    data = json_new_array();
    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, key_json(request->services->keyring, &keys[i]));
    free(keys);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

bool keys_handle_get(struct request *request, struct error *err)
{
    struct key_record key = {0};

    return keys_get(request->store, request->params[0], &key, err) &&
           response_set_json(&request->response, 200, key_json(request->services->keyring, &key),
                             err);
}

bool keys_handle_revoke(struct request *request, struct error *err)
{
    const char *id = request->params[0];
    struct key_record key = {0};

    if (!keys_revoke(request->store, id, err) || !keys_get(request->store, id, &key, err))
        return false;
    keyring_remove(request->services->keyring, key.id);
    streams_end_owner(request->services->streams, key.id); /* after the keyring: see exchange.c */
    log_write_for(LOG_LEVEL_INFO, "key", key.id, "revoked");
    return response_set_json(&request->response, 200, key_json(request->services->keyring, &key),
                             err);
}

bool keys_handle_help(struct request *request, struct error *err)
{
    static const char help[] =
        "This needled asks for an API key: a header  Authorization: Bearer needle_ft_...\n"
        "\n"
        "Whoever runs it makes one, on its own machine, over its Unix socket (no key is needed "
        "there)\n"
        "or with a key of scope admin:\n"
        "\n"
        "    needlectl key create NAME --scope submit\n"
        "\n"
        "The key is shown once. needlectl takes it from NEEDLED_API_KEY, Needle's own client from\n"
        "NEEDLE_API_KEY, the OpenAI SDK from OPENAI_API_KEY.\n"
        "\n"
        "Scopes: read looks at everything, submit also uploads and makes jobs, admin also manages "
        "keys\n"
        "and what others made. A key that is lost is revoked (needlectl key revoke) and "
        "replaced.\n";
    struct buf text;

    buf_init(&text, sizeof(help));
    buf_append_text(&text, help);
    return response_set_text(&request->response, "text/plain; charset=utf-8", &text, err);
}

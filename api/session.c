#include "api/session.h"

#include "api/handlers.h"
#include "api/links.h"
#include "api/request.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the cookie: OWNER.EXPIRES.SIGNATURE ---- */

static void sign(const struct links *links, const char *owner, const char *expires,
                 const char *key_sha256, char ret_signature[LINKS_SIGNATURE_SIZE])
{
    const char *const texts[] = {"session", owner, expires, key_sha256};

    links_sign(links, texts, COUNT_OF(texts), ret_signature);
}

/* Cookies know no ports: two daemons of one machine would take each other's, were its port not in it. */
void session_write_name(const char *host, char ret_name[SESSION_NAME_SIZE])
{
    const char *port = host ? strrchr(host, ':') : NULL;
    int64_t number = 0;

    if (port && text_read_number(port + 1, 65535, &number))
        (void)snprintf(ret_name, SESSION_NAME_SIZE, SESSION_COOKIE "_%" PRId64, number); /* fits */
    else
        (void)snprintf(ret_name, SESSION_NAME_SIZE, SESSION_COOKIE);
}

bool session_find_caller(struct keyring *keyring, const struct links *links,
                         const struct request *request, struct caller *ret_caller,
                         int64_t *ret_expires_unix_s)
{
    char owner[STORE_ID_SIZE], expires[24], sha256[SHA256_HEX_SIZE];
    char signature[LINKS_SIGNATURE_SIZE];
    const char *cookie = request->session_cookie;
    const char *second = cookie ? strchr(cookie, '.') : NULL;
    const char *third = second ? strchr(second + 1, '.') : NULL;
    int64_t expires_unix_s = 0;

    if (!third || (size_t)(second - cookie) >= sizeof(owner) ||
        (size_t)(third - second) > sizeof(expires))
        return false;
    (void)snprintf(owner, sizeof(owner), "%.*s", (int)(second - cookie), cookie);
    (void)snprintf(expires, sizeof(expires), "%.*s", (int)(third - second - 1), second + 1);
    if (!text_read_number(expires, INT64_MAX, &expires_unix_s) ||
        !keyring_find_owner(keyring, owner, ret_caller, sha256))
        return false;
    sign(links, owner, expires, sha256, signature);
    if (!text_equal_secret(third + 1, signature) || clock_unix_s() >= expires_unix_s)
        return false;
    if (ret_expires_unix_s)
        *ret_expires_unix_s = expires_unix_s;
    return true;
}

/* The authority of an address equals this one. */
static bool has_authority(const char *url, const char *authority, size_t size)
{
    const char *start = strstr(url, "://");

    if (!start)
        return false;
    start += 3;
    return strcspn(start, "/?#") == size && strncasecmp(start, authority, size) == 0;
}

bool session_is_own_page(const struct links *links, const struct request *request)
{
    const char *origin = request->origin, *own = links->public_url;

    if (!request->has_session_header)
        return false;
    if (!origin || (request->host && has_authority(origin, request->host, strlen(request->host))))
        return true;
    own = own ? strstr(own, "://") : NULL;
    return own && has_authority(origin, own + 3, strcspn(own + 3, "/?#"));
}

/* After the answer's content; expires_unix_s 0: the cookie goes. */
static void set_cookie(struct request *request, const char *value, int64_t seconds)
{
    const char *public_url = request->services->links->public_url;
    const bool is_secure = public_url && strncasecmp(public_url, "https:", 6) == 0;
    char name[SESSION_NAME_SIZE];

    session_write_name(request->host, name);
    (void)snprintf(request->response.cookie, sizeof(request->response.cookie),
                   "%s=%s; Path=/; Max-Age=%" PRId64 "; HttpOnly; SameSite=Strict%s", name, value,
                   seconds, is_secure ? "; Secure" : ""); /* value has at most 140 bytes */
}

/* False: the key went meanwhile. */
static bool begin_session(struct request *request, const char *owner)
{
    const struct services *services = request->services;
    char sha256[SHA256_HEX_SIZE], signature[LINKS_SIGNATURE_SIZE], expires[24], value[160];
    struct caller caller;

    if (!keyring_find_owner(services->keyring, owner, &caller, sha256))
        return false;
    (void)snprintf(expires, sizeof(expires), "%" PRId64, clock_unix_s() + SESSION_S); /* fits */
    sign(services->links, owner, expires, sha256, signature);
    (void)snprintf(value, sizeof(value), "%s.%s.%s", owner, expires, signature); /* fits */
    set_cookie(request, value, SESSION_S);
    return true;
}

/* ---- calls ---- */

/* caller NULL: nobody; expires_unix_s 0: not by a cookie. */
static bool answer(struct request *request, const struct caller *caller, int64_t expires_unix_s,
                   struct error *err)
{
    struct json *object = json_new_object();
    struct key_record key = {0};

    if (caller && caller->owner[0] && !keys_get(request->store, caller->owner, &key, err)) {
        json_free(object);
        return false;
    }
    json_add_string(object, "object", "session");
    json_add_bool(object, "key_needed", !keyring_is_open(request->services->keyring));
    json_add_bool(object, "signed_in", caller != NULL);
    json_add_string(object, "key_id", key.id[0] ? key.id : NULL);
    json_add_string(object, "name", key.name[0] ? key.name : NULL);
    json_add_string(object, "scope", caller ? key_scope_name(caller->scope) : NULL);
    if (expires_unix_s > 0)
        json_add_int(object, "expires_at", expires_unix_s);
    else
        json_add_null(object, "expires_at");
    return response_set_json(&request->response, 200, object, err);
}

bool session_handle_create(struct request *request, struct error *err)
{
    static const char *const known[] = {"key", NULL};
    struct caller caller = CALLER_OPERATOR;
    struct json *body = NULL;
    const char *secret = NULL;
    bool ok, is_ours = false;

    if (!request_read_json(request, &body, err))
        return false;
    ok = json_only_fields(body, known, err) && json_get_string(body, "key", true, &secret, err);
    if (ok)
        is_ours = keyring_find(request->services->keyring, secret, &caller);
    json_free(body);
    if (!ok)
        return false;
    if (!is_ours && keyring_is_open(request->services->keyring))
        return answer(request, &caller, 0, err); /* nobody is asked for a key */
    if (is_ours && !answer(request, &caller, clock_unix_s() + SESSION_S, err))
        return false;
    if (!is_ours || !begin_session(request, caller.owner)) {
        response_refuse(&request->response, 401, "invalid_api_key", "key",
                        "the API key is none that this server knows, or it was revoked");
        return true;
    }
    log_write_for(LOG_LEVEL_INFO, "request", request->id, "a browser signed in with %s",
                  caller.owner[0] ? caller.owner : "the key of the settings");
    return true;
}

bool session_handle_get(struct request *request, struct error *err)
{
    const struct services *services = request->services;
    struct caller caller = CALLER_OPERATOR;
    int64_t expires_unix_s = 0;

    if (!request->is_known)
        return answer(request, NULL, 0, err);
    if (request->by_cookie &&
        !session_find_caller(services->keyring, services->links, request, &caller, &expires_unix_s))
        return answer(request, NULL, 0, err);                                 /* over just now */
    (void)snprintf(caller.owner, sizeof(caller.owner), "%s", request->owner); /* an id of ours */
    caller.scope = request->scope;
    if (request->by_cookie && expires_unix_s - clock_unix_s() < SESSION_S - SESSION_RENEW_S) {
        expires_unix_s = clock_unix_s() + SESSION_S;
        return answer(request, &caller, expires_unix_s, err) &&
               (begin_session(request, caller.owner) || answer(request, NULL, 0, err));
    }
    return answer(request, &caller, expires_unix_s, err);
}

bool session_handle_delete(struct request *request, struct error *err)
{
    const bool is_open = keyring_is_open(request->services->keyring);
    const struct caller anybody = CALLER_OPERATOR;

    if (!answer(request, is_open ? &anybody : NULL, 0, err))
        return false;
    set_cookie(request, "", 0);
    return true;
}

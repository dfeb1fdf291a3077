#include "api/session.h"

#include "api/handlers.h"
#include "api/links.h"
#include "api/request.h"
#include "api/stream.h"
#include "api/text.h"
#include "api/visitors.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the cookie ---- */

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

bool session_find_caller(struct keyring *keyring, struct visitors *visitors,
                         const struct request *request, struct caller *ret_caller,
                         struct session_record *ret_session)
{
    struct session_record session;
    struct caller caller;
    char key_sha256[SHA256_HEX_SIZE];

    if (!request->session_cookie || !visitors_find(visitors, request->session_cookie, &session) ||
        !keyring_find_owner(keyring, session.owner, &caller, key_sha256) ||
        strcmp(key_sha256, session.key_sha256) != 0)
        return false;
    *ret_caller = caller;
    *ret_session = session;
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

static bool is_own_page(const struct links *links, const struct request *request)
{
    const char *origin = request->origin, *own = links->public_url;

    if (!request->has_session_header)
        return false;
    if (!origin || (request->host && has_authority(origin, request->host, strlen(request->host))))
        return true;
    own = own ? strstr(own, "://") : NULL;
    return own && has_authority(origin, own + 3, strcspn(own + 3, "/?#"));
}

bool session_check_page(const struct links *links, struct request *request)
{
    if (is_own_page(links, request))
        return true;
    response_refuse(&request->response, 403, "origin_not_allowed", NULL,
                    "a call that changes something is taken by cookie from this server's own pages "
                    "alone, with the header " SESSION_HEADER
                    "; programs send Authorization: Bearer KEY");
    return false;
}

/* After the answer's content; value "" and no seconds: the cookie goes. */
static void set_cookie(struct request *request, const char *value, int64_t seconds)
{
    const char *public_url = request->services->links->public_url;
    const bool is_secure = public_url && strncasecmp(public_url, "https:", 6) == 0;
    char name[SESSION_NAME_SIZE];

    session_write_name(request->host, name);
    (void)snprintf(request->response.cookie, sizeof(request->response.cookie),
                   "%s=%s; Path=/; Max-Age=%" PRId64 "; HttpOnly; SameSite=Strict%s", name, value,
                   seconds, is_secure ? "; Secure" : ""); /* value: a token */
}

/* Ends what the request's cookie stands for, with its streams. */
static bool end_session(struct request *request, const char *token_sha256, struct error *err)
{
    const struct services *services = request->services;

    if (!visitors_end(services->visitors, request->store, token_sha256, err))
        return false;
    streams_end_session(services->streams, token_sha256); /* after the visitors: see exchange.c */
    return true;
}

/* *ret_begun false: the key went meanwhile. A browser that signs in again leaves its session before. */
static bool begin_session(struct request *request, const char *owner, bool *ret_begun,
                          struct error *err)
{
    const struct services *services = request->services;
    struct session_record session = {.expires_unix_s = clock_unix_s() + SESSION_S}, before;
    struct error trouble = {0};
    char token[VISITORS_TOKEN_SIZE];
    struct caller caller;

    *ret_begun = keyring_find_owner(services->keyring, owner, &caller, session.key_sha256);
    if (!*ret_begun)
        return true;
    if (session_find_caller(services->keyring, services->visitors, request, &caller, &before) &&
        !end_session(request, before.token_sha256, &trouble))
        log_write_for(LOG_LEVEL_WARN, "request", request->id, "the session before goes on: %s",
                      trouble.message);
    (void)snprintf(session.owner, sizeof(session.owner), "%s", owner); /* an id of ours */
    if (!visitors_add(services->visitors, request->store, &session, token, err))
        return false;
    set_cookie(request, token, SESSION_S);
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
    bool ok, is_ours = false, begun = false;

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
    if (is_ours && !begin_session(request, caller.owner, &begun, err))
        return false;
    if (!begun) {
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
    struct session_record session = {0};
    struct caller caller = CALLER_OPERATOR;
    bool is_old;

    if (!request->is_known)
        return answer(request, NULL, 0, err);
    if (request->by_cookie &&
        !session_find_caller(services->keyring, services->visitors, request, &caller, &session))
        return answer(request, NULL, 0, err);                                 /* over just now */
    (void)snprintf(caller.owner, sizeof(caller.owner), "%s", request->owner); /* an id of ours */
    caller.scope = request->scope;
    is_old =
        request->by_cookie && session.expires_unix_s - clock_unix_s() < SESSION_S - SESSION_RENEW_S;
    if (is_old) {
        session.expires_unix_s = clock_unix_s() + SESSION_S;
        if (!visitors_extend(services->visitors, request->store, session.token_sha256,
                             session.expires_unix_s))
            return answer(request, NULL, 0, err);
    }
    if (!answer(request, &caller, session.expires_unix_s, err))
        return false;
    if (is_old)
        set_cookie(request, request->session_cookie, SESSION_S);
    return true;
}

bool session_handle_delete(struct request *request, struct error *err)
{
    const struct services *services = request->services;
    const bool is_open = keyring_is_open(services->keyring);
    const struct caller anybody = CALLER_OPERATOR;
    struct session_record session;
    struct caller caller;

    if (session_find_caller(services->keyring, services->visitors, request, &caller, &session)) {
        if (!session_check_page(services->links, request))
            return true; /* refused */
        if (!end_session(request, session.token_sha256, err))
            return false;
        log_write_for(LOG_LEVEL_INFO, "request", request->id, "a browser signed out of %s",
                      caller.owner[0] ? caller.owner : "the key of the settings");
    }
    if (!answer(request, is_open ? &anybody : NULL, 0, err))
        return false;
    set_cookie(request, "", 0);
    return true;
}

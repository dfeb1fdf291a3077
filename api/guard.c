#include "api/guard.h"

#include "api/keyring.h"
#include "api/links.h"
#include "api/request.h"
#include "api/router.h"
#include "api/session.h"
#include "api/text.h"
#include "store/owners.h"

#include <arpa/inet.h>
#include <assert.h>
#include <string.h>
#include <strings.h>

#define HOST_MAX 256

/* "name:port" or "[::1]:port" -> "name" or "::1", lower case. False for what is not a host. */
static bool read_host(const char *authority, char ret_host[HOST_MAX])
{
    bool bracketed = *authority == '[';
    const char *start = authority + bracketed;
    size_t size = strcspn(start, bracketed ? "]" : ":");
    const char *after = start + size;
    int64_t port;

    if (size == 0 || size >= HOST_MAX)
        return false;
    if (bracketed) {
        if (*after != ']')
            return false;
        after++;
    }
    if (*after == ':' && after[1] && !text_read_number(after + 1, 65535, &port))
        return false;
    if (*after && *after != ':')
        return false;
    memcpy(ret_host, start, size);
    ret_host[size] = '\0';
    if (!bracketed && size > 1 && ret_host[size - 1] == '.')
        ret_host[size - 1] = '\0'; /* a rooted name is the same name */
    return true;
}

static bool is_address(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

static bool is_listed(const char *list, const char *host)
{
    while (list && *list) {
        size_t size;

        list += strspn(list, ", \t");
        size = strcspn(list, ", \t");
        if (size == strlen(host) && strncasecmp(list, host, size) == 0 && size > 0)
            return true;
        list += size;
    }
    return false;
}

/* The authority of "scheme://authority/...", into ret_host. */
static bool host_of_url(const char *url, char ret_host[HOST_MAX])
{
    char authority[HOST_MAX + 8];
    const char *start = strstr(url, "://");
    size_t size;

    if (!start)
        return false;
    start += 3;
    size = strcspn(start, "/?#");
    if (size >= sizeof(authority))
        return false;
    memcpy(authority, start, size);
    authority[size] = '\0';
    return read_host(authority, ret_host);
}

static bool host_is_ours(const struct guard *guard, const char *host)
{
    char own[HOST_MAX];

    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
        strcmp(host, "::1") == 0)
        return true;
    if (is_listed(guard->allowed_hosts, host))
        return true;
    if (guard->public_url && host_of_url(guard->public_url, own) && strcasecmp(own, host) == 0)
        return true;
    return guard->any_address && is_address(host);
}

bool guard_check_host(const struct guard *guard, struct request *request, bool is_socket)
{
    char host[HOST_MAX];

    if (request->repeated) {
        response_refuse(&request->response, 400, "invalid_request", NULL,
                        "the header %s stands there twice, once is right", request->repeated);
        return false;
    }
    /* Pages, against which this is, name a host always: without one it is a health check or a script. */
    if (!is_socket && (request->host || !request->is_old) &&
        (!request->host || !read_host(request->host, host) || !host_is_ours(guard, host))) {
        response_refuse(&request->response, 403, "host_not_allowed", NULL,
                        "the Host '%.100s' is not one this server answers for; allowed_hosts "
                        "names further ones",
                        request->host ? request->host : "");
        return false;
    }
    if (request->origin && (!host_of_url(request->origin, host) || !host_is_ours(guard, host))) {
        response_refuse(&request->response, 403, "origin_not_allowed", NULL,
                        "pages of '%.100s' may not use this server", request->origin);
        return false;
    }
    return true;
}

/* ---- keys ---- */

/* The token of "Bearer TOKEN", or NULL. */
static const char *read_token(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    return authorization + 7 + strspn(authorization + 7, " ");
}

static void admit_caller(struct request *request, const struct caller *caller)
{
    /* Without memory it owns nothing and may do nothing. */
    const char *owner = arena_copy(&request->arena, caller->owner, strlen(caller->owner));

    request->owner = owner ? owner : "key-unknown";
    request->scope = owner ? caller->scope : KEY_READ;
    request->jobs_max = caller->jobs_max;
    request->bytes_max = caller->bytes_max;
}

static void refuse_key(const struct guard *guard, struct request *request, bool is_socket)
{
    const char *message = request->authorization
                              ? "the API key is none that this server knows, or it was revoked"
                              : "this server needs an API key: Authorization: Bearer KEY";
    struct buf url;

    if (!request->authorization && is_socket)
        message = "on this socket the daemon's own user and root need no API key, others do: "
                  "Authorization: Bearer KEY";
    else if (is_socket && request->peer_is_owner)
        message = "the API key is none that this server knows, or it was revoked; on this socket "
                  "you need none";
    buf_init(&url, LINKS_URL_BYTES);
    links_write_origin(guard->links, request, &url);
    buf_append_text(&url, GUARD_HELP_PATH);
    response_refuse_key(&request->response, url.failed ? NULL : url.data, message);
    buf_release(&url);
}

/* Whether who asks may ask at all; sets who that is. */
static bool admit_known(const struct guard *guard, struct request *request, bool is_socket)
{
    const char *token = read_token(request->authorization);
    struct caller caller = CALLER_OPERATOR;
    bool is_open = keyring_is_open(guard->keyring);
    bool is_trusted = is_socket ? request->peer_is_owner : is_open;

    /* While there are keys, one that is given decides: a wrong one is never better than a right one. */
    request->by_cookie = false;
    if (!(is_trusted && (is_open || !request->authorization)) &&
        !(token && keyring_find(guard->keyring, token, &caller))) {
        struct session_record session;

        request->by_cookie =
            !request->authorization &&
            session_find_caller(guard->keyring, guard->visitors, request, &caller, &session);
        if (!request->by_cookie)
            return false;
        memcpy(request->session, session.token_sha256, sizeof(request->session));
    }
    admit_caller(request, &caller);
    request->is_known = true;
    return true;
}

void guard_identify(const struct guard *guard, struct request *request, bool is_socket)
{
    request->is_known = admit_known(guard, request, is_socket);
}

bool guard_check_key(const struct guard *guard, struct request *request, bool is_socket)
{
    if (!admit_known(guard, request, is_socket)) {
        refuse_key(guard, request, is_socket);
        return false;
    }
    return !request->by_cookie || strcmp(request->method, "GET") == 0 ||
           session_check_page(guard->links, request);
}

bool guard_check_scope(struct request *request)
{
    enum key_scope needed = KEY_READ;

    assert(request->route);
    switch (request->route->access) {
    case ROUTE_OPEN:
    case ROUTE_WHO:
    case ROUTE_LINK:
        return true;
    case ROUTE_READ:
        break;
    case ROUTE_SUBMIT:
        needed = KEY_SUBMIT;
        break;
    case ROUTE_ADMIN:
        needed = KEY_ADMIN;
        break;
    }
    if (request->scope >= needed)
        return true;
    response_refuse(&request->response, 403, "missing_scope", NULL,
                    "this call needs a key of scope '%s', this one's scope is '%s'",
                    key_scope_name(needed), key_scope_name(request->scope));
    return false;
}

bool guard_may_change(const struct request *request, const char *owner, const char *kind,
                      const char *id, struct error *err)
{
    if (request->scope == KEY_ADMIN || strcmp(request->owner, owner) == 0)
        return true;
    return error_set_word(err, ERR_INVALID, "not_owner", "",
                          "%s '%.64s' was made with another key: that one or one of scope "
                          "'admin' is needed",
                          kind, id);
}

/* What a route's first parameter names, by the beginning of its path. */
static const struct {
    const char *path;
    enum owned kind;
    const char *word;
} named[] = {
    {"/v1/files/{}/complete", OWNED_UPLOAD, "upload"},
    {"/v1/uploads/{}", OWNED_UPLOAD, "upload"},
    {"/v1/files/{}", OWNED_FILE, "file"},
    {"/v1/fine_tuning/jobs/{}", OWNED_JOB, "job"},
    {"/v1/fine_tuning/sweeps/{}", OWNED_SWEEP, "sweep"},
    {"/v1/models/{}", OWNED_MODEL, "model"},
    {"/v1/webhook_endpoints/{}", OWNED_WEBHOOK, "webhook endpoint"},
};

bool guard_check_owner(struct request *request, struct error *err)
{
    const char *id = request->params[0];
    char owner[STORE_ID_SIZE];
    bool found = false;
    size_t i = 0;

    if (request->route->access != ROUTE_SUBMIT || request->scope == KEY_ADMIN)
        return true;
    while (i < COUNT_OF(named) &&
           strncmp(request->route->path, named[i].path, strlen(named[i].path)) != 0)
        i++;
    if (i == COUNT_OF(named))
        return true;
    if (!owners_find(request->store, named[i].kind, id, &found, owner, err))
        return false;
    return !found || guard_may_change(request, owner, named[i].word, id, err);
}

bool guard_check_type(struct request *request)
{
    static const char *const taken[] = {"application/json", "multipart/form-data",
                                        "application/octet-stream"};
    const char *type = request->content_type;

    assert(request->route);
    if (strcmp(request->method, "GET") == 0)
        return true;
    if (!type && !request_has_body(request))
        return true;
    for (size_t i = 0; type && i < COUNT_OF(taken); i++) {
        bool fits = request->route->body != ROUTE_BODY_JSON || i == 0;

        if (fits && text_is_media_type(type, taken[i]))
            return true;
    }
    if (request->route->body == ROUTE_BODY_NONE && type && !request_has_body(request) &&
        text_is_media_type(type, "application/x-www-form-urlencoded"))
        return true; /* curl -X POST -d '' on a call without a body */
    response_refuse(&request->response, 415, "unsupported_media_type", NULL,
                    "Content-Type is '%.80s', %s is needed", type ? type : "missing",
                    request->route->body == ROUTE_BODY_FILE   ? "multipart/form-data"
                    : request->route->body == ROUTE_BODY_JSON ? "application/json"
                                                              : "application/json or no body");
    return false;
}

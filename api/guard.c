#include "api/guard.h"

#include "api/request.h"
#include "api/router.h"
#include "api/text.h"

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

    if (!is_socket &&
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

bool guard_check_key(const struct guard *guard, struct request *request)
{
    const char *given = request->authorization;
    bool known = false;

    if (!guard->api_key || !guard->api_key[0])
        return true;
    if (given && strncasecmp(given, "Bearer ", 7) == 0)
        known = text_equal_secret(given + 7 + strspn(given + 7, " "), guard->api_key);
    if (known)
        return true;
    response_refuse(&request->response, 401, "invalid_api_key", NULL,
                    given ? "the API key is not the one this server was given"
                          : "this server needs an API key: Authorization: Bearer KEY");
    return false;
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

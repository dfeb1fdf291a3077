#include "api/outbound.h"

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define CONNECT_TIMEOUT_S 5L
#define HOST_MAX 256

enum listed { NOT_LISTED, LISTED_BY_PATTERN, LISTED_BY_NAME };

/* ---- names ---- */

static bool matches(const char *item, size_t size, const char *host)
{
    size_t length = strlen(host);

    if (size == 1 && item[0] == '*')
        return true;
    return size > 2 && item[0] == '*' && item[1] == '.' && length > size - 1 &&
           strncasecmp(host + length - (size - 1), item + 1, size - 1) == 0;
}

static enum listed look_up(const char *hosts, const char *host)
{
    enum listed found = NOT_LISTED;

    while (hosts && *hosts) {
        size_t size;

        hosts += strspn(hosts, ", \t");
        size = strcspn(hosts, ", \t");
        if (size == strlen(host) && size > 0 && strncasecmp(hosts, host, size) == 0)
            return LISTED_BY_NAME;
        if (matches(hosts, size, host))
            found = LISTED_BY_PATTERN;
        hosts += size;
    }
    return found;
}

/* The parts of a URL, each "" where it has none; one that is too long is cut. */
struct parts {
    char scheme[16], user[8], password[8], host[HOST_MAX + 1];
};

/* False: there was no memory. */
static bool get_part(CURLU *url, CURLUPart part, char *ret_text, size_t capacity)
{
    char *text = NULL;
    const CURLUcode code = curl_url_get(url, part, &text, 0);

    (void)snprintf(ret_text, capacity, "%s", code == CURLUE_OK && text ? text : "");
    curl_free(text);
    return code != CURLUE_OUT_OF_MEMORY;
}

static bool get_parts(CURLU *url, struct parts *parts)
{
    return get_part(url, CURLUPART_SCHEME, parts->scheme, sizeof(parts->scheme)) &&
           get_part(url, CURLUPART_USER, parts->user, sizeof(parts->user)) &&
           get_part(url, CURLUPART_PASSWORD, parts->password, sizeof(parts->password)) &&
           get_part(url, CURLUPART_HOST, parts->host, sizeof(parts->host));
}

static bool read_host(CURLU *parsed, const char *text, char ret_host[HOST_MAX], struct error *err)
{
    struct parts parts = {0};
    char *const host = parts.host;
    CURLUcode code;
    size_t size;

    for (const char *at = text; *at; at++) {
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return error_set_param(err, ERR_INVALID, "url",
                                   "the URL has a blank or control character");
    }
    code = curl_url_set(parsed, CURLUPART_URL, text, 0);
    if (code == CURLUE_OUT_OF_MEMORY || (code == CURLUE_OK && !get_parts(parsed, &parts)))
        return error_set(err, ERR_NO_MEMORY, "no memory for a URL");
    if (code != CURLUE_OK ||
        (strcmp(parts.scheme, "http") != 0 && strcmp(parts.scheme, "https") != 0))
        return error_set_param(err, ERR_INVALID, "url",
                               "'%.100s' is no URL of http or https, such as "
                               "https://example.com/hook",
                               text);
    if (parts.user[0] || parts.password[0])
        return error_set_param(err, ERR_INVALID, "url", "the URL has a user or password in it");
    if (!host[0] || strlen(host) >= HOST_MAX)
        return error_set_param(err, ERR_INVALID, "url", "the URL has no host that could be called");
    size = strlen(host);
    if (host[0] == '[' && host[size - 1] == ']') { /* lists have addresses without brackets */
        memmove(host, host + 1, size - 2);
        host[size - 2] = '\0';
    } else if (size > 1 && host[size - 1] == '.') {
        host[size - 1] = '\0'; /* a rooted name is the same name */
    }
    memcpy(ret_host, host, HOST_MAX);
    return true;
}

static bool check(const char *hosts, const char *text, enum listed *ret_listed, struct error *err)
{
    char host[HOST_MAX];
    CURLU *parsed = curl_url();
    bool ok;

    if (!parsed)
        return error_set(err, ERR_NO_MEMORY, "no memory for a URL");
    ok = read_host(parsed, text, host, err);
    curl_url_cleanup(parsed);
    if (!ok)
        return false;
    *ret_listed = look_up(hosts, host);
    return *ret_listed != NOT_LISTED ||
           error_set_param(err, ERR_INVALID, "url",
                           "'%.100s' is no host that this server may call: its setting "
                           "webhook_hosts %s",
                           host,
                           hosts && hosts[0] ? "does not list it" : "is empty, and names them");
}

bool outbound_check_url(const char *hosts, const char *url, struct error *err)
{
    enum listed listed;

    return check(hosts, url, &listed, err);
}

/* ---- addresses ---- */

static bool is_public_v4(uint32_t address)
{
    static const struct {
        uint32_t prefix;
        int bits;
    } special[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* carriers' */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local, metadata services */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocols */
        {0xc0000200, 24}, /* documentation */
        {0xc0586300, 24}, /* relays of 6to4 */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xc6336400, 24}, /* documentation */
        {0xcb007100, 24}, /* documentation */
        {0xe0000000, 4},  /* multicast */
        {0xf0000000, 4},  /* reserved, broadcast */
    };

    for (size_t i = 0; i < COUNT_OF(special); i++) {
        if ((address ^ special[i].prefix) >> (32 - special[i].bits) == 0)
            return false;
    }
    return true;
}

static uint32_t v4_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Of the internet's own range (2000::/3), and not one that carries a special IPv4 address. */
static bool is_public_v6(const uint8_t bytes[16])
{
    static const uint8_t translated[12] = {0x00, 0x64, 0xff, 0x9b};
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (memcmp(bytes, mapped, sizeof(mapped)) == 0 ||
        memcmp(bytes, translated, sizeof(translated)) == 0)
        return is_public_v4(v4_at(bytes + 12));
    if (bytes[0] >> 5 != 1)
        return false;
    if (bytes[0] == 0x20 && bytes[1] == 0x02) /* 6to4 */
        return is_public_v4(v4_at(bytes + 2));
    /* 2001:0000::/23 are protocols (Teredo), 2001:db8::/32 and 3fff::/20 documentation. */
    return !(bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] <= 0x01) &&
           !(bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0x0d && bytes[3] == 0xb8) &&
           !(bytes[0] == 0x3f && bytes[1] == 0xff && bytes[2] <= 0x0f);
}

bool outbound_is_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_public_v4(
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return is_public_v6(
            ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
    return false;
}

/* ---- calls ---- */

/* Between resolving and connecting: nothing can resolve otherwise after the check. */
static curl_socket_t open_public(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    bool *refused = context;

    (void)purpose; /* there is one */
    if (!outbound_is_public(&address->addr)) {
        *refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t drop(char *bytes, size_t one, size_t count, void *context)
{
    (void)bytes; /* an answer's status says all */
    (void)context;
    return one * count;
}

bool outbound_prepare(CURL *easy, const char *hosts, const char *url, long timeout_s, bool *refused,
                      struct error *err)
{
    enum listed listed;
    bool ok;

    if (!check(hosts, url, &listed, err))
        return false;
    ok = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_TIMEOUT, timeout_s) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_USERAGENT, "needled/" NEEDLED_VERSION) == CURLE_OK &&
         curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop) == CURLE_OK;
    if (ok && listed != LISTED_BY_NAME)
        ok = curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_public) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, refused) == CURLE_OK;
    return ok || error_set(err, ERR_NO_MEMORY, "the HTTP library refused a setting");
}

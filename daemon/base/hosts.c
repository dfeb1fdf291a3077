#include "daemon/base/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 253 /* of a name in the DNS */
#define LABEL_MAX_BYTES 63
#define PORT_MAX 65535

/* The first size bytes of text into ret_text; false: they do not fit. */
static bool cut(const char *text, size_t size, char ret_text[NAME_MAX_BYTES + 1])
{
    if (size > NAME_MAX_BYTES)
        return false;
    memcpy(ret_text, text, size);
    ret_text[size] = '\0';
    return true;
}

static bool is_address(int family, const char *text, size_t size)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    char whole[NAME_MAX_BYTES + 1];

    return cut(text, size, whole) && inet_pton(family, whole, bytes) == 1;
}

/* Also of an IPv4 address, whose numbers are labels. */
static bool is_name(const char *text, size_t size)
{
    size_t label = 0;

    if (size == 0 || size > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)text[i];

        if (byte == '.' && label > 0)
            label = 0;
        else if ((byte < 0x80 && isalnum(byte)) || byte == '-' || byte == '_')
            label++;
        else
            return false;
        if (label > LABEL_MAX_BYTES)
            return false;
    }
    return label > 0;
}

static bool is_pattern(const char *text, size_t size)
{
    return (size == 1 && text[0] == '*') ||
           (size > 2 && text[0] == '*' && text[1] == '.' && is_name(text + 2, size - 2));
}

bool hosts_check_list(const char *setting, const char *list, bool patterns, struct error *err)
{
    static const char between[] = ", \t";

    for (const char *item = list + strspn(list, between); *item;) {
        const size_t size = strcspn(item, between);

        if (!is_name(item, size) && !is_address(AF_INET6, item, size) &&
            !(patterns && is_pattern(item, size)))
            return error_set_param(err, ERR_INVALID, setting,
                                   "%s has '%.*s', needed are names of hosts or addresses, without "
                                   "a scheme, port or path, as in 'tuner.example.org,10.0.0.7'%s",
                                   setting, size < 100 ? (int)size : 100, item,
                                   patterns ? ", or '*.example.org', or '*'" : "");
        item += size;
        item += strspn(item, between);
    }
    return true;
}

static bool is_port(const char *text, size_t size)
{
    unsigned port = 0;

    if (size == 0 || size > 5)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    return port >= 1 && port <= PORT_MAX;
}

/* "host[:port]" */
static bool is_authority(const char *text, size_t size)
{
    const char *port = memchr(text, ':', size);
    size_t host_size = port ? (size_t)(port - text) : size;
    bool ok;

    if (size > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', size);

        if (!end)
            return false;
        host_size = (size_t)(end + 1 - text);
        ok = is_address(AF_INET6, text + 1, host_size - 2);
    } else {
        ok = is_name(text, host_size);
    }
    if (!ok || host_size == size)
        return ok;
    return text[host_size] == ':' && is_port(text + host_size + 1, size - host_size - 1);
}

static bool is_path(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f ||
            strchr("?#\"<>\\", *text))
            return false;
    }
    return true;
}

bool hosts_check_url(const char *setting, const char *url, struct error *err)
{
    const size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                          : strncasecmp(url, "https://", 8) == 0 ? 8
                                                                 : 0;
    const size_t size = strcspn(url + scheme, "/?#");

    if (url[0] == '\0' ||
        (scheme > 0 && is_authority(url + scheme, size) && is_path(url + scheme + size)))
        return true;
    return error_set_param(err, ERR_INVALID, setting,
                           "%s is '%.100s', needed is http:// or https://, a host, and a port or "
                           "path if there is one, as in 'https://tuner.example.org'",
                           setting, url);
}

#include "api/listen.h"

#include "api/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128
#define HOST_MAX 64

/* "host:port" and "[host]:port" into its two halves. */
static bool split_address(const char *address, char ret_host[HOST_MAX], const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    size_t size = colon ? (size_t)(colon - address) : 0;
    int64_t port;

    if (!colon || !text_read_number(colon + 1, 65535, &port))
        return false;
    if (size >= 2 && address[0] == '[' && address[size - 1] == ']') {
        address++;
        size -= 2;
    } else if (memchr(address, ':', size)) {
        return false; /* an IPv6 address needs its brackets */
    }
    if (size == 0 || size >= HOST_MAX)
        return false;
    memcpy(ret_host, address, size);
    ret_host[size] = '\0';
    if (strcmp(ret_host, "localhost") == 0)
        memcpy(ret_host, "127.0.0.1", sizeof("127.0.0.1"));
    *ret_port = colon + 1;
    return true;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >>
                24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

static int port_of(int descriptor)
{
    union address address = {0};
    socklen_t size = sizeof(address);

    if (getsockname(descriptor, &address.any, &size) != 0)
        return 0;
    switch (address.any.sa_family) {
    case AF_INET:
        return ntohs(address.v4.sin_port);
    case AF_INET6:
        return ntohs(address.v6.sin6_port);
    default:
        return 0;
    }
}

/* Closes the socket and reports errno. */
static bool refuse(int descriptor, const char *address, struct error *err)
{
    int reason = errno;

    if (descriptor >= 0)
        (void)close(descriptor); /* nothing was written to it */
    return error_set(err, ERR_IO, "cannot listen on '%s': %s", address, strerror(reason));
}

static bool resolve(const char *address, struct addrinfo **ret_found, struct error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    char host[HOST_MAX];
    const char *port = NULL;

    if (!split_address(address, host, &port) || getaddrinfo(host, port, &hints, ret_found) != 0)
        return error_set_param(err, ERR_INVALID, "listen",
                               "'%s' is not an address with a port, such as 127.0.0.1:7733",
                               address);
    return true;
}

bool listen_check(const char *address, bool *ret_is_loopback, struct error *err)
{
    struct addrinfo *found = NULL;

    if (!resolve(address, &found, err))
        return false;
    *ret_is_loopback = is_loopback(found->ai_addr);
    freeaddrinfo(found);
    return true;
}

bool listen_tcp(const char *address, int *ret_descriptor, int *ret_port, struct error *err)
{
    struct addrinfo *found = NULL;
    int descriptor, on = 1;
    bool bound;

    if (!resolve(address, &found, err))
        return false;
    descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bound = descriptor >= 0 &&
            setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
            bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
            listen(descriptor, BACKLOG) == 0;
    freeaddrinfo(found);
    if (!bound)
        return refuse(descriptor, address, err);
    *ret_descriptor = descriptor;
    *ret_port = port_of(descriptor);
    return true;
}

/* True when somebody answers there. */
static bool is_served(const struct sockaddr_un *address)
{
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool served;

    if (descriptor < 0)
        return false;
    served = connect(descriptor, (const struct sockaddr *)address, sizeof(*address)) == 0;
    (void)close(descriptor); /* nothing was written to it */
    return served;
}

bool listen_unix(const char *path, int *ret_descriptor, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat about;
    int descriptor;

    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, ERR_INVALID, "the socket's path '%s' is longer than %zu bytes", path,
                         sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path));
    if (lstat(path, &about) == 0) {
        if (!S_ISSOCK(about.st_mode))
            return error_set(err, ERR_IO, "'%s' is there and is not a socket", path);
        if (is_served(&address))
            return error_set(err, ERR_IO, "'%s' is served by another process", path);
        if (unlink(path) != 0)
            return refuse(-1, path, err);
    }
    descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0 ||
        bind(descriptor, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        chmod(path, 0660) != 0 || /* before listen: nobody can be connected yet */
        listen(descriptor, BACKLOG) != 0)
        return refuse(descriptor, path, err);
    *ret_descriptor = descriptor;
    return true;
}

/* ---- a socket of somebody else's ---- */

static bool has_option(int descriptor, int option, int wanted)
{
    int value = 0;
    socklen_t size = sizeof(value);

    return getsockopt(descriptor, SOL_SOCKET, option, &value, &size) == 0 && value == wanted;
}

/* As people write it. */
static void write_address(const union address *address, socklen_t size,
                          char ret_text[LISTEN_TEXT_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "";

    switch (address->any.sa_family) {
    case AF_INET:
        (void)inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host)); /* it fits */
        (void)snprintf(ret_text, LISTEN_TEXT_SIZE, "%s:%d", host, ntohs(address->v4.sin_port));
        return;
    case AF_INET6:
        (void)inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host)); /* it fits */
        (void)snprintf(ret_text, LISTEN_TEXT_SIZE, "[%s]:%d", host, ntohs(address->v6.sin6_port));
        return;
    default:
        break;
    }
    if (size <= offsetof(struct sockaddr_un, sun_path) || !address->local.sun_path[0])
        (void)snprintf(ret_text, LISTEN_TEXT_SIZE, "(no path)");
    else
        (void)snprintf(ret_text, LISTEN_TEXT_SIZE, "%.*s",
                       (int)(size - offsetof(struct sockaddr_un, sun_path)),
                       address->local.sun_path);
}

bool listen_look(int descriptor, const char *name, struct listen_about *ret_about,
                 struct error *err)
{
    union address address = {0};
    socklen_t size = sizeof(address);
    const int flags = fcntl(descriptor, F_GETFL);
    int family;

    if (flags < 0 || getsockname(descriptor, &address.any, &size) != 0)
        return error_set(err, ERR_INVALID, "the descriptor %d ('%s') passed to us is no socket: %s",
                         descriptor, name, strerror(errno));
    family = address.any.sa_family;
    if ((family != AF_INET && family != AF_INET6 && family != AF_UNIX) ||
        !has_option(descriptor, SO_TYPE, SOCK_STREAM) || !has_option(descriptor, SO_ACCEPTCONN, 1))
        return error_set(err, ERR_INVALID,
                         "the socket %d ('%s') passed to us does not listen for streams of TCP or "
                         "a Unix socket",
                         descriptor, name);
    if (fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(err, ERR_IO, "the socket %d ('%s') passed to us: %s", descriptor, name,
                         strerror(errno));
    *ret_about =
        (struct listen_about){.is_unix = family == AF_UNIX,
                              .is_loopback = family == AF_UNIX || is_loopback(&address.any),
                              .port = family == AF_UNIX ? 0 : port_of(descriptor)};
    write_address(&address, size, ret_about->address);
    return true;
}

#include "daemon/base/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_DESCRIPTOR 3  /* SD_LISTEN_FDS_START */
#define SEND_WAIT_US 500000 /* a manager reads at once; nothing of ours may stand still for it */

/* ---- telling ---- */

/* The address in NOTIFY_SOCKET; 0: none. */
static socklen_t find_address(struct sockaddr_un *ret_address)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length;

    if (path == NULL || (path[0] != '/' && path[0] != '@'))
        return 0;
    length = strlen(path);
    if (length >= sizeof(ret_address->sun_path))
        return 0;
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, length);
    if (path[0] == '@')
        ret_address->sun_path[0] = '\0'; /* the abstract namespace */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

bool notify_is_heard(void)
{
    struct sockaddr_un address;

    return find_address(&address) > 0;
}

void notify_send(const char *message)
{
    struct sockaddr_un address;
    const struct timeval patience = {.tv_usec = SEND_WAIT_US}; /* with a manager that is stuck */
    const socklen_t size = find_address(&address);
    int descriptor;

    if (size == 0)
        return;
    descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return;
    (void)setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    (void)sendto(descriptor, message, strlen(message), MSG_NOSIGNAL,
                 (const struct sockaddr *)&address, size);
    (void)close(descriptor);
}

void notify_status(const char *text)
{
    char message[NOTIFY_TEXT_BYTES];

    (void)snprintf(message, sizeof(message), "STATUS=%s", text);
    for (char *byte = message; *byte; byte++) {
        if ((unsigned char)*byte < 0x20 || *byte == 0x7f)
            *byte = ' ';
    }
    notify_send(message);
}

void notify_extend(int64_t more_ns)
{
    char message[64];

    (void)snprintf(message, sizeof(message), "EXTEND_TIMEOUT_USEC=%" PRId64, more_ns / 1000);
    notify_send(message);
}

/* ---- being asked ---- */

/* A variable that is a whole number up to max; -1: it is not there, or is none. */
static int64_t read_variable(const char *name, int64_t max)
{
    const char *text = getenv(name);
    char *end = NULL;
    intmax_t number;

    if (text == NULL || text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    number = strtoimax(text, &end, 10);
    return errno != 0 || *end != '\0' || number > max ? -1 : number;
}

int64_t notify_watchdog_ns(void)
{
    const int64_t limit_us = read_variable("WATCHDOG_USEC", INT64_MAX / 1000);

    if (limit_us <= 0 ||
        (getenv("WATCHDOG_PID") != NULL && read_variable("WATCHDOG_PID", INT32_MAX) != getpid()))
        return 0;
    return limit_us * 1000;
}

/* The next of names joined by ':', into ret_name; NULL: it was the last one. */
static const char *next_name(const char *names, char *ret_name, size_t size)
{
    size_t length;

    ret_name[0] = '\0';
    if (names == NULL)
        return NULL;
    length = strcspn(names, ":");
    (void)snprintf(ret_name, size, "%.*s", (int)length, names);
    return names[length] == ':' ? names + length + 1 : NULL;
}

bool notify_take_sockets(struct notify_socket ret_sockets[NOTIFY_SOCKETS_MAX], size_t *ret_count,
                         struct error *err)
{
    static const char *const variables[] = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"};
    const bool ours = read_variable("LISTEN_PID", INT32_MAX) == getpid();
    const char *names = getenv("LISTEN_FDNAMES");
    const int64_t count = ours ? read_variable("LISTEN_FDS", INT32_MAX) : 0;

    *ret_count = 0;
    if (count < 0)
        return error_set(err, ERR_INVALID, "LISTEN_FDS is not the number of sockets passed to us");
    if (count > NOTIFY_SOCKETS_MAX)
        return error_set(err, ERR_INVALID,
                         "%" PRId64 " sockets were passed to us, at most %d can be", count,
                         NOTIFY_SOCKETS_MAX);
    for (int i = 0; i < (int)count; i++) {
        struct notify_socket *item = &ret_sockets[i];

        item->descriptor = FIRST_DESCRIPTOR + i;
        names = next_name(names, item->name, sizeof(item->name));
        if (fcntl(item->descriptor, F_SETFD, FD_CLOEXEC) != 0)
            return error_set(err, ERR_INVALID, "LISTEN_FDS is %" PRId64 ", but descriptor %d: %s",
                             count, item->descriptor, strerror(errno));
    }
    for (size_t i = 0; i < COUNT_OF(variables); i++)
        (void)unsetenv(variables[i]); /* fails for a bad name only */
    *ret_count = (size_t)count;
    return true;
}

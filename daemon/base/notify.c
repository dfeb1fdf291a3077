#include "daemon/base/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *message)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length;
    int descriptor;

    if (path == NULL || (path[0] != '/' && path[0] != '@'))
        return;
    length = strlen(path);
    if (length >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* the abstract namespace */
    descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0)
        return;
    (void)sendto(descriptor, message, strlen(message), MSG_NOSIGNAL,
                 (const struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    (void)close(descriptor);
}

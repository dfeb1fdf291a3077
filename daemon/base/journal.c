#include "daemon/base/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_PATH "/run/systemd/journal/socket"
#define ENTRY_BYTES 10240 /* a log line and its field, each with its bound */

bool journal_is_stderr(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat about;
    char text[64];

    if (stream == NULL || fstat(STDERR_FILENO, &about) != 0)
        return false;
    (void)snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)about.st_dev, (uintmax_t)about.st_ino);
    return strcmp(stream, text) == 0;
}

int journal_open(void)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = SOCKET_PATH};
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (descriptor >= 0 &&
        connect(descriptor, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        (void)close(descriptor); /* nothing was written to it */
        return -1;
    }
    return descriptor;
}

/* The field of a key: ids of things by that word, everything else by its own. */
static void name_field(const char *key, char *ret_name, size_t size)
{
    static const char *const ids[] = {"job", "request", "key", "webhook"};
    size_t length = 0;

    for (; key[length] && length + 1 < size; length++) {
        const char letter = key[length];

        ret_name[length] = letter >= 'a' && letter <= 'z' ? (char)(letter - 'a' + 'A') : '_';
    }
    ret_name[length] = '\0';
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        if (strcmp(key, ids[i]) == 0)
            (void)snprintf(ret_name + length, size - length, "_ID");
    }
}

bool journal_send(int descriptor, const struct journal_entry *entry)
{
    char text[ENTRY_BYTES], name[64];
    int size = snprintf(text, sizeof(text), "MESSAGE=%s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=needled\n",
                        entry->text, entry->priority);

    if (size < 0 || (size_t)size >= sizeof(text))
        return false;
    /* A value with a line end would need the protocol's other form, and is none of ours. */
    if (entry->key && entry->value && !strchr(entry->value, '\n')) {
        int more;

        name_field(entry->key, name, sizeof(name));
        more = snprintf(text + size, sizeof(text) - (size_t)size, "%s=%s\n", name, entry->value);
        if (more > 0 && (size_t)more < sizeof(text) - (size_t)size)
            size += more;
    }
    return send(descriptor, text, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL) == size;
}

#include "api/connections.h"

#include "daemon/base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define LINGER_MAX 64   /* sockets read dry at once; further ones are closed as they are */
#define LINGER_S 2      /* longest time one is read dry */
#define LINGER_READS 64 /* pieces read per tick, so that a fast sender does not hold the sweep */

struct connection_entry {
    int descriptor;
    bool busy, unread;
    int64_t idle_since_ns;
    struct connection_entry *next, *previous;
};

struct lingering {
    int descriptor;
    int64_t until_ns;
};

struct connections {
    int64_t header_timeout_ns;
    pthread_mutex_t lock;
    struct connection_entry *first;         /* guarded by lock */
    struct lingering lingering[LINGER_MAX]; /* guarded by lock */
    size_t lingering_count;                 /* guarded by lock */
};

struct connections *connections_new(int header_timeout_s)
{
    struct connections *connections = calloc(1, sizeof(*connections));

    if (!connections)
        return NULL;
    connections->header_timeout_ns = header_timeout_s * NS_PER_S;
    pthread_mutex_init(&connections->lock, NULL);
    return connections;
}

void connections_free(struct connections *connections)
{
    if (!connections)
        return;
    assert(!connections->first);
    for (size_t i = 0; i < connections->lingering_count; i++)
        (void)close(connections->lingering[i].descriptor); /* nothing was to be written */
    pthread_mutex_destroy(&connections->lock);
    free(connections);
}

struct connection_entry *connections_add(struct connections *connections, int descriptor)
{
    struct connection_entry *entry = calloc(1, sizeof(*entry));

    if (!entry)
        return NULL;
    entry->descriptor = descriptor;
    entry->idle_since_ns = clock_monotonic_ns();
    pthread_mutex_lock(&connections->lock);
    entry->next = connections->first;
    if (entry->next)
        entry->next->previous = entry;
    connections->first = entry;
    pthread_mutex_unlock(&connections->lock);
    return entry;
}

void connections_remove(struct connections *connections, struct connection_entry *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&connections->lock);
    if (entry->next)
        entry->next->previous = entry->previous;
    if (entry->previous)
        entry->previous->next = entry->next;
    else
        connections->first = entry->next;
    if (entry->unread && connections->lingering_count < LINGER_MAX) {
        int copy = dup(entry->descriptor);

        if (copy >= 0)
            connections->lingering[connections->lingering_count++] =
                (struct lingering){copy, clock_monotonic_ns() + LINGER_S * NS_PER_S};
    }
    pthread_mutex_unlock(&connections->lock);
    free(entry);
}

void connections_set_busy(struct connections *connections, struct connection_entry *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&connections->lock);
    entry->busy = true;
    pthread_mutex_unlock(&connections->lock);
}

void connections_set_idle(struct connections *connections, struct connection_entry *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&connections->lock);
    entry->busy = false;
    entry->idle_since_ns = clock_monotonic_ns();
    pthread_mutex_unlock(&connections->lock);
}

void connections_set_unread(struct connections *connections, struct connection_entry *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&connections->lock);
    entry->unread = true;
    pthread_mutex_unlock(&connections->lock);
}

/* True when the other side has closed or gone, or had its time. */
static bool linger_is_over(const struct lingering *lingering, int64_t now_ns)
{
    char bytes[16384];

    if (now_ns >= lingering->until_ns)
        return true;
    for (int i = 0; i < LINGER_READS; i++) {
        ssize_t size = recv(lingering->descriptor, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (size == 0)
            return true;
        if (size < 0)
            return false; /* nothing yet; an error shows as the end of its time */
    }
    return false;
}

void connections_tick(struct connections *connections, int64_t now_ns)
{
    struct connection_entry *entry;
    size_t i = 0;

    pthread_mutex_lock(&connections->lock);
    for (entry = connections->first; entry; entry = entry->next) {
        if (!entry->busy && now_ns - entry->idle_since_ns > connections->header_timeout_ns)
            (void)shutdown(entry->descriptor, SHUT_RDWR); /* the library sees the end and closes */
    }
    while (i < connections->lingering_count) {
        if (linger_is_over(&connections->lingering[i], now_ns)) {
            (void)close(connections->lingering[i].descriptor); /* nothing was to be written */
            connections->lingering[i] = connections->lingering[--connections->lingering_count];
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&connections->lock);
}

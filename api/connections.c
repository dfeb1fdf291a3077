#include "api/connections.h"

#include "daemon/base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define LINGER_S 2      /* longest time one is read dry */
#define LINGER_READS 64 /* pieces read per tick, so that a fast sender does not hold the sweep */

struct connection_entry {
    int descriptor;
    struct connection_group *group;
    bool unread, ending;
    bool waits; /* for a request: it is in the list of those */
    int64_t idle_since_ns;
    struct connection_entry *newer, *older;
};

struct lingering {
    int descriptor;
    int64_t until_ns;
};

struct connections {
    int64_t header_timeout_ns;
    size_t linger_max; /* further ones are closed as they are */
    pthread_mutex_t lock;
    size_t open_count;                        /* guarded by lock */
    struct connection_entry *newest, *oldest; /* guarded by lock: of those without a request */
    struct lingering lingering[CONNECTIONS_LINGER_MAX]; /* guarded by lock */
    size_t lingering_count;                             /* guarded by lock */
};

struct connections *connections_new(int header_timeout_s, size_t linger_max)
{
    struct connections *connections = calloc(1, sizeof(*connections));

    assert(linger_max <= CONNECTIONS_LINGER_MAX);
    if (!connections)
        return NULL;
    connections->linger_max = linger_max;
    connections->header_timeout_ns = header_timeout_s * NS_PER_S;
    pthread_mutex_init(&connections->lock, NULL);
    return connections;
}

void connections_free(struct connections *connections)
{
    if (!connections)
        return;
    assert(connections->open_count == 0);
    for (size_t i = 0; i < connections->lingering_count; i++)
        (void)close(connections->lingering[i].descriptor); /* nothing was to be written */
    pthread_mutex_destroy(&connections->lock);
    free(connections);
}

/* ---- those without a request; the lock is held ---- */

static void begin_to_wait(struct connections *connections, struct connection_entry *entry)
{
    entry->idle_since_ns = clock_monotonic_ns();
    entry->waits = true;
    entry->newer = NULL;
    entry->older = connections->newest;
    if (entry->older)
        entry->older->newer = entry;
    else
        connections->oldest = entry;
    connections->newest = entry;
}

static void end_to_wait(struct connections *connections, struct connection_entry *entry)
{
    if (!entry->waits)
        return;
    entry->waits = false;
    if (entry->newer)
        entry->newer->older = entry->older;
    else
        connections->newest = entry->older;
    if (entry->older)
        entry->older->newer = entry->newer;
    else
        connections->oldest = entry->newer;
}

/* The library sees the end and closes it. */
static void shut(struct connections *connections, struct connection_entry *entry)
{
    end_to_wait(connections, entry);
    entry->ending = true;
    entry->group->ending++;
    (void)shutdown(entry->descriptor,
                   SHUT_RDWR); /* of one that is gone already it changes nothing */
}

static bool is_crowded(const struct connection_group *group)
{
    return group->count_max > 0 && group->open - group->ending > group->count_max;
}

static void make_room(struct connections *connections, const struct connection_group *group)
{
    struct connection_entry *entry = connections->oldest;

    if (!is_crowded(group))
        return;
    while (entry && entry->group != group)
        entry = entry->newer;
    if (entry)
        shut(connections, entry);
}

/* ---- as they come and go ---- */

struct connection_entry *connections_add(struct connections *connections,
                                         struct connection_group *group, int descriptor)
{
    struct connection_entry *entry = calloc(1, sizeof(*entry));

    if (!entry)
        return NULL;
    entry->descriptor = descriptor;
    entry->group = group;
    pthread_mutex_lock(&connections->lock);
    connections->open_count++;
    group->open++;
    make_room(connections, group); /* of those who were there before */
    begin_to_wait(connections, entry);
    pthread_mutex_unlock(&connections->lock);
    return entry;
}

void connections_remove(struct connections *connections, struct connection_entry *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&connections->lock);
    end_to_wait(connections, entry);
    connections->open_count--;
    entry->group->open--;
    entry->group->ending -= entry->ending;
    if (entry->unread && connections->lingering_count < connections->linger_max) {
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
    end_to_wait(connections, entry);
    pthread_mutex_unlock(&connections->lock);
}

void connections_set_idle(struct connections *connections, struct connection_entry *entry)
{
    if (!entry)
        return;
    pthread_mutex_lock(&connections->lock);
    if (!entry->ending && !entry->waits) {
        begin_to_wait(connections, entry);
        /* Where all had requests when the last one came nobody could leave, and now no more may come. It
         * has had its answer, which others still wait to ask for. */
        if (is_crowded(entry->group))
            shut(connections, entry);
    }
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
    size_t i = 0;

    pthread_mutex_lock(&connections->lock);
    while (connections->oldest &&
           now_ns - connections->oldest->idle_since_ns > connections->header_timeout_ns)
        shut(connections, connections->oldest);
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

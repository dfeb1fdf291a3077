/*
 * connections: the open sockets, watched for what the library does not watch.
 *
 * Purpose    A connection whose request header is not whole in time is shut, byte by byte or not
 *            (the library's own timeout counts silence only). Where an address has nearly as many
 *            connections as the library takes, each new one shuts the one that has been without a
 *            request for longest: connections that do nothing lock nobody out. Where all of them have
 *            requests, the first that is answered goes. A socket that closes with an unread body is
 *            read dry for a moment, so that the refusal reaches the client instead of a reset.
 * Ownership  connections_new / _free; an entry lives from connections_add to connections_remove.
 * Threads    Any.
 * Failure    Without memory an entry is NULL: that connection is served without the watch.
 */
#ifndef NEEDLED_API_CONNECTIONS_H
#define NEEDLED_API_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONNECTIONS_LINGER_MAX 64

struct connections;
struct connection_entry;

struct connection_group { /* those of one address that is listened on */
    size_t count_max;     /* from so many on; 0: never */
    size_t open, ending;  /* guarded by the connections' lock; ending: shut and not closed yet */
};

/* So many sockets at once are read dry, at most CONNECTIONS_LINGER_MAX. NULL without memory. */
struct connections *connections_new(int header_timeout_s, size_t linger_max);
void connections_free(struct connections *connections); /* NULL is fine */

/* The group outlives the entry. */
struct connection_entry *connections_add(struct connections *connections,
                                         struct connection_group *group, int descriptor);
/* Before the socket is closed. NULL is fine. */
void connections_remove(struct connections *connections, struct connection_entry *entry);
/* A header is whole: no deadline until connections_set_idle. NULL entries are fine. */
void connections_set_busy(struct connections *connections, struct connection_entry *entry);
void connections_set_idle(struct connections *connections, struct connection_entry *entry);
/* The answer went out before the body was read. */
void connections_set_unread(struct connections *connections, struct connection_entry *entry);

/* Called about once a second. */
void connections_tick(struct connections *connections, int64_t now_ns);

#endif

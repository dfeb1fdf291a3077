/*
 * server: the HTTP side of the daemon.
 *
 * Purpose    Listens on TCP and a Unix socket, routes requests (router.c), answers JSON and event
 *            streams.
 * Ownership  server_start / server_stop. The scheduler and feed outlive it.
 * Threads    libmicrohttpd's pool; nothing here waits for training.
 * Failure    A port that is taken or a non-loopback address without a key is refused with the
 *            address.
 */
#ifndef NEEDLED_SERVER_H
#define NEEDLED_SERVER_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct events_feed;
struct scheduler;

struct server_socket {
    int descriptor; /* listens already */
    const char *name;
};

struct server_options {
    const char *listen;      /* "127.0.0.1:7733"; port 0 takes a free one */
    const char *socket_path; /* NULL: no Unix socket */
    const struct server_socket
        *sockets;        /* in place of both, if there are any; the server's to close */
    size_t socket_count; /* SERVER_SOCKETS_MAX at most */
    const char *state_folder;
    const char *database_path;
    const char *public_url; /* NULL: links from the checked Host */
    const char
        *allowed_hosts;  /* NULL: loopback names; else a comma-separated list of further names */
    const char *api_key; /* NULL: none needed (loopback only) */
    const char *webhook_hosts; /* NULL: no webhook is called; see outbound.h */
    size_t upload_limit_bytes; /* 0: LIMIT_UPLOAD_BYTES */
    size_t metrics_kept;       /* of a finished job's steps; 0: all */
    /* Open connections of one address over TCP; 0: no limit; below 0: LIMIT_CONNECTIONS_PER_ADDRESS on an
     * address beyond loopback without a public_url, that is without a proxy, else no limit. */
    int64_t connections_per_address;
    size_t stream_limit; /* readers of events at once; 0: LIMIT_STREAMS */
    struct scheduler *scheduler;
    struct events_feed *feed;
};

#define SERVER_SOCKETS_MAX 8

struct server;

/* What server_start would refuse of the address and key, without opening anything. */
MUST_CHECK bool server_check(const struct server_options *options, struct error *err);
MUST_CHECK bool server_start(const struct server_options *options, struct server **ret_server,
                             struct error *err);
int server_port(const struct server *server); /* the one in force; 0: no TCP */
/* Takes over what may change while it runs: api_key, allowed_hosts, webhook_hosts,
 * upload_limit_bytes. The rest of the options is not looked at. Not from two threads at once. */
MUST_CHECK bool server_reload(struct server *server, const struct server_options *options,
                              struct error *err);
/* Does every thread of the library take a connection, and does /healthz answer through pool, scheduler
 * and database, by then? A server that is full counts as alive. */
MUST_CHECK bool server_is_alive(struct server *server, int64_t deadline_ns, struct error *err);
/* A thread of the server's beside those: has it work and shown nothing for some times limit_ns, each with
 * its own patience? False: none. */
bool server_find_stuck(const struct server *server, int64_t limit_ns, char *ret_who, size_t size);
/* Ends event streams, finishes running answers, closes the sockets. NULL is fine. */
void server_stop(struct server *server);

#endif

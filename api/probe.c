#include "api/probe.h"

#include "daemon/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS_MAX 16
#define NS_PER_MS INT64_C(1000000)

static const char request[] =
    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/* The library gives a connection to the thread whose number is the descriptor's modulo their count: a
 * descriptor for this thread. Takes it, also where it fails. */
static int move_to_thread(int descriptor, size_t thread, size_t thread_count)
{
    while (descriptor >= 0 && (size_t)descriptor % thread_count != thread) {
        const int next = fcntl(descriptor, F_DUPFD_CLOEXEC, descriptor + 1);

        (void)close(descriptor); /* nothing was written to it */
        descriptor = next;
    }
    return descriptor;
}

/* Our end of a connection of that thread's; -1: there is none to be had. */
static int connect_to(struct MHD_Daemon *daemon, size_t thread, size_t thread_count)
{
    /* The library wants a peer's address; that of a socket pair is none. */
    const struct sockaddr_in nobody = {.sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int ends[2], theirs;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -1;
    /* It is small and the buffer empty: it is written whole. */
    (void)send(ends[0], request, sizeof(request) - 1, MSG_NOSIGNAL);
    theirs = move_to_thread(ends[1], thread, thread_count);
    if (theirs < 0 ||
        MHD_add_connection(daemon, theirs, (const struct sockaddr *)&nobody, sizeof(nobody)) !=
            MHD_YES) { /* which closes theirs in any case */
        (void)close(ends[0]);
        return -1;
    }
    return ends[0];
}

/* True when there is something to read, or the end, by the deadline. */
static bool is_answered(int descriptor, int64_t deadline_ns)
{
    struct pollfd wait = {.fd = descriptor, .events = POLLIN};
    int64_t left_ms;
    int count;

    do {
        left_ms = (deadline_ns - clock_monotonic_ns()) / NS_PER_MS;
        count = poll(&wait, 1, left_ms > 0 ? (int)left_ms : 0);
    } while (count < 0 && errno == EINTR);
    return count > 0;
}

bool probe_daemon(struct MHD_Daemon *daemon, size_t thread_count, int64_t deadline_ns,
                  struct error *err)
{
    int ours[THREADS_MAX];
    const size_t count = thread_count < THREADS_MAX ? thread_count : THREADS_MAX;
    size_t late = 0;

    for (size_t i = 0; i < count; i++)
        ours[i] = connect_to(daemon, i, count);
    for (size_t i = 0; i < count; i++) {
        if (ours[i] < 0)
            continue;
        late += !is_answered(ours[i], deadline_ns);
        (void)close(ours[i]); /* nothing more is wanted of it */
    }
    return late == 0 ||
           error_set(err, ERR_UNAVAILABLE, "%zu of %zu threads of the HTTP server gave no answer",
                     late, count);
}

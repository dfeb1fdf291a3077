#include "tests/bench/readers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define START_WAIT_S 30
#define READY_MAX 128
#define PIECE_BYTES 65536

struct reader {
    int descriptor;
    bool begun;
    _Atomic int64_t number; /* of the last whole event */
};

struct readers {
    struct reader *all;
    size_t count;
    int poll;
    pthread_t thread;
    bool runs;
    atomic_bool stop;
    _Atomic size_t begun_count;
    _Atomic size_t broken_count; /* refused, or ended */
    struct arrival *arrivals;    /* the thread's until it has ended */
    size_t arrival_count, arrival_capacity;
    double cpu_s;
    char piece[PIECE_BYTES + 1];
};

static int64_t wall_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the thread -------------------------------------------------------------------------------- */

/* The number of the last event that is whole in these bytes, or 0. */
static int64_t last_number(const char *bytes, size_t size)
{
    const bool cut = size < 4 || (memcmp(bytes + size - 4, "\n\n\r\n", 4) != 0 &&
                                  memcmp(bytes + size - 2, "\n\n", 2) != 0);
    static const char mark[] = "id: ";

    for (size_t at = size; at >= sizeof(mark) - 1; at--) {
        char *end = NULL;
        long long number;

        if (memcmp(bytes + at - 4, mark, 4) != 0 || (at > 4 && bytes[at - 5] != '\n'))
            continue;
        number = strtoll(bytes + at, &end, 10); /* the bytes end with a NUL */
        if (end && *end == '\n')
            return cut ? number - 1 : number;
    }
    return 0;
}

static void note(struct readers *readers, struct reader *reader, int64_t number)
{
    if (number <= reader->number)
        return;
    reader->number = number;
    if (readers->arrival_count == readers->arrival_capacity) {
        size_t capacity = 2 * readers->arrival_capacity + 65536;
        struct arrival *grown = realloc(readers->arrivals, capacity * sizeof(*grown));

        if (!grown)
            abort(); /* a bench without its figures is none */
        readers->arrivals = grown;
        readers->arrival_capacity = capacity;
    }
    readers->arrivals[readers->arrival_count++] =
        (struct arrival){wall_ns(CLOCK_REALTIME), number, (uint32_t)(reader - readers->all)};
}

static void take(struct readers *readers, struct reader *reader)
{
    ssize_t size = recv(reader->descriptor, readers->piece, PIECE_BYTES, MSG_DONTWAIT);

    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size <= 0 ||
        (!reader->begun && (size < 12 || memcmp(readers->piece + 8, " 200", 4) != 0))) {
        (void)epoll_ctl(readers->poll, EPOLL_CTL_DEL, reader->descriptor, NULL);
        (void)atomic_fetch_add(&readers->broken_count, 1);
        return;
    }
    if (!reader->begun)
        (void)atomic_fetch_add(&readers->begun_count, 1);
    reader->begun = true;
    readers->piece[size] = '\0';
    note(readers, reader, last_number(readers->piece, (size_t)size));
}

static void *listen_to_all(void *context)
{
    const struct timespec nap = {.tv_nsec = READERS_NAP_MS * 1000000L};
    struct readers *readers = context;
    struct epoll_event ready[READY_MAX];

    while (!atomic_load(&readers->stop)) {
        int count = epoll_wait(readers->poll, ready, READY_MAX, 0);

        for (int i = 0; i < count; i++)
            take(readers, ready[i].data.ptr);
        if (count < READY_MAX)
            (void)nanosleep(&nap, NULL);
    }
    readers->cpu_s = (double)wall_ns(CLOCK_THREAD_CPUTIME_ID) / 1e9;
    return NULL;
}

/* ---- from outside ------------------------------------------------------------------------------ */

static bool ask(struct readers *readers, struct reader *reader, int port, const char *path)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = reader};
    char request[512];

    (void)snprintf(request, sizeof(request),
                   "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
                   "Last-Event-ID: %lld\r\n\r\n",
                   path, (long long)atomic_load(&reader->number));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    reader->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return reader->descriptor >= 0 &&
           connect(reader->descriptor, (struct sockaddr *)&address, sizeof(address)) == 0 &&
           send(reader->descriptor, request, strlen(request), MSG_NOSIGNAL) ==
               (ssize_t)strlen(request) &&
           epoll_ctl(readers->poll, EPOLL_CTL_ADD, reader->descriptor, &event) == 0;
}

static bool wait_until_begun(struct readers *readers, struct error *err)
{
    const struct timespec moment = {.tv_nsec = 5000000};

    for (int i = 0; i < START_WAIT_S * 200; i++) {
        size_t broken = atomic_load(&readers->broken_count);

        if (broken > 0)
            return error_set(err, ERR_IO, "%zu streams were refused", broken);
        if (atomic_load(&readers->begun_count) == readers->count)
            return true;
        (void)nanosleep(&moment, NULL);
    }
    return error_set(err, ERR_IO, "%zu of %zu streams have begun after %d s",
                     atomic_load(&readers->begun_count), readers->count, START_WAIT_S);
}

bool readers_open(int port, const char *const paths[2], int64_t after, size_t count,
                  struct readers **ret_readers, struct error *err)
{
    struct readers *readers = calloc(1, sizeof(*readers));

    if (readers)
        readers->all = calloc(count, sizeof(*readers->all));
    if (!readers || !readers->all) {
        free(readers);
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu readers", count);
    }
    readers->count = count;
    for (size_t i = 0; i < count; i++) {
        readers->all[i].descriptor = -1;
        atomic_init(&readers->all[i].number, after);
    }
    readers->poll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < count; i++) {
        if (!ask(readers, &readers->all[i], port, paths[i % 2])) {
            error_set(err, ERR_IO, "reader %zu: %s", i, strerror(errno));
            readers_close(readers);
            return false;
        }
    }
    readers->runs = pthread_create(&readers->thread, NULL, listen_to_all, readers) == 0;
    if (!readers->runs || !wait_until_begun(readers, err)) {
        readers_close(readers);
        return false;
    }
    *ret_readers = readers;
    return true;
}

static void end_thread(struct readers *readers)
{
    if (!readers->runs)
        return;
    atomic_store(&readers->stop, true);
    (void)pthread_join(readers->thread, NULL);
    readers->runs = false;
}

bool readers_wait(const struct readers *readers, int64_t number, double seconds)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    const int64_t end_ns = wall_ns(CLOCK_MONOTONIC) + (int64_t)(seconds * 1e9);
    size_t i = 0;

    while (i < readers->count && wall_ns(CLOCK_MONOTONIC) < end_ns) {
        if (atomic_load(&readers->all[i].number) >= number)
            i++;
        else
            (void)nanosleep(&moment, NULL);
    }
    return i == readers->count;
}

bool readers_stop(struct readers *readers, const struct arrival **ret_arrivals, size_t *ret_count,
                  double *ret_cpu_s, struct error *err)
{
    size_t broken;

    end_thread(readers);
    broken = atomic_load(&readers->broken_count);
    if (broken > 0)
        return error_set(err, ERR_IO, "%zu streams have ended", broken);
    *ret_arrivals = readers->arrivals;
    *ret_count = readers->arrival_count;
    *ret_cpu_s = readers->cpu_s;
    return true;
}

void readers_close(struct readers *readers)
{
    if (!readers)
        return;
    end_thread(readers);
    for (size_t i = 0; i < readers->count; i++)
        if (readers->all[i].descriptor >= 0)
            (void)close(readers->all[i].descriptor);
    if (readers->poll >= 0)
        (void)close(readers->poll);
    free(readers->arrivals);
    free(readers->all);
    free(readers);
}

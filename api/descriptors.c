#include "api/descriptors.h"

#include "daemon/base/limits.h"

#include <assert.h>

#define PER_CONNECTION 2 /* its socket, and the file that it sends or is sent */
#define PER_STORE 2      /* the database and its log */
#define PER_CALL 2       /* a webhook's socket, and one to look its host up */
#define PER_THREAD 2     /* the library's epoll and its wake-up */
#define OTHER_STORES 2   /* the teller's and the courier's, beside one for each handler */
#define OTHER_FILES 8    /* the courier's wake-up, validating, a backup, the watchdog's questions */
#define CONNECTIONS_MIN 2 /* of a listener: one makes room for the other */

/* By the limit: the last that it reaches. */
static const struct level {
    size_t limit;
    unsigned serving_threads, working_threads;
    size_t call_max, linger_max;
} levels[] = {{0, 1, 2, 1, 1}, {128, 1, 8, 4, 8}, {512, 4, 8, 32, 64}};

static const struct level *choose(size_t limit)
{
    const struct level *level = &levels[0];

    for (size_t i = 1; i < COUNT_OF(levels); i++)
        if (limit >= levels[i].limit)
            level = &levels[i];
    return level;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t own_needs(const struct descriptors_needs *needs, const struct level *level)
{
    return needs->used + needs->job_files +
           (needs->tcp + needs->local) * (1 + (size_t)level->serving_threads * PER_THREAD) +
           ((size_t)level->working_threads + OTHER_STORES) * PER_STORE +
           level->call_max * PER_CALL + level->linger_max + OTHER_FILES;
}

/* Unix sockets have an eighth: who is shut out of the addresses comes in there. */
static void divide(const struct descriptors_needs *needs, size_t total,
                   struct descriptors_share *share)
{
    size_t local = needs->tcp > 0 ? total / 8 : total;

    if (needs->local == 0)
        local = 0;
    else if (local < needs->local * CONNECTIONS_MIN)
        local = needs->local * CONNECTIONS_MIN;
    if (needs->tcp > 0)
        share->tcp_max = least((total - local) / needs->tcp, LIMIT_CONNECTIONS);
    if (needs->local > 0)
        share->local_max =
            least((total - needs->tcp * share->tcp_max) / needs->local, LIMIT_CONNECTIONS);
}

bool descriptors_share(const struct descriptors_needs *needs, struct descriptors_share *ret_share,
                       struct error *err)
{
    const struct level *level = choose(needs->limit);
    const size_t own = own_needs(needs, level);
    const size_t least_total = (needs->tcp + needs->local) * CONNECTIONS_MIN;
    struct descriptors_share share = {.serving_threads = level->serving_threads,
                                      .working_threads = level->working_threads,
                                      .call_max = level->call_max,
                                      .linger_max = level->linger_max};

    if (needs->limit < own + least_total * PER_CONNECTION)
        return error_set(err, ERR_LIMIT,
                         "the limit of open files (ulimit -n, LimitNOFILE=) is %zu, %zu are needed",
                         needs->limit, own + least_total * PER_CONNECTION);
    divide(needs, (needs->limit - own) / PER_CONNECTION, &share);
    share.stream_max = (share.tcp_max > 0 ? share.tcp_max : share.local_max) / 2;
    if (share.stream_max == 0) /* of no listener at all, which is told later */
        share.stream_max = 1;
    *ret_share = share;
    return true;
}

size_t descriptors_crowd(size_t connection_max)
{
    assert(connection_max >= CONNECTIONS_MIN);
    return connection_max - (connection_max / 8 > 0 ? connection_max / 8 : 1);
}

#include "client/follow.h"

#include "client/http.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TRIES_MAX 12        /* in a row without an event */
#define RETRY_MS 1000       /* unless the server has said */
#define RETRY_MS_MAX 10000L /* whatever it said */

struct follow {
    struct sse sse;
    sse_take_fn *take;
    void *context;
    bool stopped;
};

static bool take_event(void *context, const struct sse_event *event)
{
    struct follow *follow = context;

    follow->stopped = !follow->take(follow->context, event);
    return !follow->stopped;
}

static bool take_bytes(void *context, const char *bytes, size_t size)
{
    struct follow *follow = context;

    return sse_feed(&follow->sse, bytes, size);
}

/* A server that is full or about to stop is asked again, any other refusal stands. */
static bool is_refusal(long status)
{
    return status >= 400 && status != 429 && status != 503;
}

static void pause_before_retry(const struct sse *sse)
{
    long ms = sse->retry_ms > 0 ? sse->retry_ms : RETRY_MS;

    (void)usleep((useconds_t)(1000 * (ms < RETRY_MS_MAX ? ms : RETRY_MS_MAX)));
}

enum follow_end follow_stream(struct http *http, const char *path, const char *after,
                              sse_take_fn *take, void *context)
{
    struct follow follow = {.take = take, .context = context};
    enum follow_end end = FOLLOW_LOST;

    sse_init(&follow.sse, take_event, &follow);
    (void)snprintf(follow.sse.id, sizeof(follow.sse.id), "%s", after);
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        char last_id[sizeof(follow.sse.id)];

        memcpy(last_id, follow.sse.id, sizeof(last_id));
        sse_restart(&follow.sse);
        (void)http_stream(http, path, last_id, take_bytes, &follow); /* its status tells */
        if (follow.stopped || http_status(http) == 204 || is_refusal(http_status(http))) {
            end = follow.stopped             ? FOLLOW_STOPPED
                  : http_status(http) == 204 ? FOLLOW_READ
                                             : FOLLOW_REFUSED;
            break;
        }
        if (strcmp(last_id, follow.sse.id) != 0)
            tries = 0;
        if (tries + 1 < TRIES_MAX)
            pause_before_retry(&follow.sse);
    }
    sse_release(&follow.sse);
    return end;
}

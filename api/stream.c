#include "api/stream.h"

#include "api/objects.h"
#include "api/stores.h"
#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/events.h"
#include "store/events.h"
#include "store/jobs.h"

#include <assert.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)
#define PAGE_ROWS 32 /* rows read at once: what a slow reader can hold in memory */
#define PAGE_BYTES ((size_t)4 << 20)
#define BLOCK_BYTES 8192   /* the library's piece */
#define RETRY_MS 2000      /* what a browser waits before it comes again */
#define CLOSING_EVENT_S 30 /* a final job without its `done` by then has none to come */

struct stream {
    struct streams *owner;
    struct stream *next, *previous; /* guarded by owner's lock */
    struct MHD_Connection *connection;
    int descriptor;
    struct events_listener listener;
    bool started;

    bool asleep;        /* guarded by owner's lock: the connection is suspended */
    bool news;          /* guarded by owner's lock: look at the store again */
    bool keepalive_due; /* guarded by owner's lock */
    bool gone;          /* guarded by owner's lock: the reader has closed */
    bool probed;        /* guarded by owner's lock: half-closed, a comment was sent to see */
    int64_t written_ns; /* guarded by owner's lock */

    int64_t after_number; /* the serving thread's from here */
    struct buf pending;
    size_t sent; /* bytes of pending */
    bool greeted, done;
    bool more; /* the last page was full */
};

struct streams {
    struct events_feed *feed;
    struct stores *stores;
    int64_t keepalive_ns;
    pthread_mutex_t lock;
    struct stream *first; /* guarded by lock */
    size_t count;         /* guarded by lock */
    bool stopping;        /* guarded by lock */
};

/* ---- all of them ---- */

struct streams *streams_new(struct events_feed *feed, struct stores *stores, int keepalive_s)
{
    struct streams *streams = calloc(1, sizeof(*streams));

    if (!streams)
        return NULL;
    streams->feed = feed;
    streams->stores = stores;
    streams->keepalive_ns = keepalive_s * NS_PER_S;
    pthread_mutex_init(&streams->lock, NULL);
    return streams;
}

void streams_free(struct streams *streams)
{
    if (!streams)
        return;
    assert(!streams->first);
    pthread_mutex_destroy(&streams->lock);
    free(streams);
}

/* With the lock held. */
static void wake_locked(struct stream *stream)
{
    if (!stream->asleep)
        return;
    stream->asleep = false;
    MHD_resume_connection(stream->connection);
}

void streams_stop(struct streams *streams)
{
    pthread_mutex_lock(&streams->lock);
    streams->stopping = true;
    for (struct stream *stream = streams->first; stream; stream = stream->next)
        wake_locked(stream);
    pthread_mutex_unlock(&streams->lock);
}

void streams_tick(struct streams *streams, int64_t now_ns)
{
    pthread_mutex_lock(&streams->lock);
    for (struct stream *stream = streams->first; stream; stream = stream->next) {
        struct pollfd about = {.fd = stream->descriptor, .events = POLLRDHUP};

        if (!stream->asleep)
            continue;                 /* the library looks after it */
        if (poll(&about, 1, 0) > 0) { /* 0 ms: asks, does not wait */
            if (about.revents & (POLLERR | POLLHUP | POLLNVAL)) {
                stream->gone = true;
            } else if (!stream->probed) {
                /* Closed for writing: a reader that is done asking, or one that has left. What we
                 * send now tells; the latter answers with a reset. */
                stream->probed = true;
                stream->keepalive_due = true;
            }
        }
        if (now_ns - stream->written_ns >= streams->keepalive_ns)
            stream->keepalive_due = true;
        if (stream->gone || stream->keepalive_due)
            wake_locked(stream);
    }
    pthread_mutex_unlock(&streams->lock);
}

size_t streams_count(struct streams *streams)
{
    size_t count;

    pthread_mutex_lock(&streams->lock);
    count = streams->count;
    pthread_mutex_unlock(&streams->lock);
    return count;
}

/* ---- one of them ---- */

static void hear_news(void *context)
{
    struct stream *stream = context;

    pthread_mutex_lock(&stream->owner->lock);
    stream->news = true;
    wake_locked(stream);
    pthread_mutex_unlock(&stream->owner->lock);
}

struct stream *stream_new(struct streams *streams, const char *job_id, int64_t after_number)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->owner = streams;
    stream->after_number = after_number;
    stream->descriptor = -1;
    stream->listener.wake = hear_news;
    stream->listener.context = stream;
    (void)snprintf(stream->listener.job_id, sizeof(stream->listener.job_id), "%s",
                   job_id); /* the id of a stored job: fits */
    buf_init(&stream->pending, PAGE_BYTES);
    return stream;
}

void stream_free(struct stream *stream)
{
    struct streams *streams;

    if (!stream)
        return;
    streams = stream->owner;
    if (stream->started) {
        events_feed_remove(streams->feed, &stream->listener);
        pthread_mutex_lock(&streams->lock);
        assert(!stream->asleep);
        if (stream->next)
            stream->next->previous = stream->previous;
        if (stream->previous)
            stream->previous->next = stream->next;
        else
            streams->first = stream->next;
        streams->count--;
        pthread_mutex_unlock(&streams->lock);
    }
    buf_release(&stream->pending);
    free(stream);
}

void stream_start(struct stream *stream, struct MHD_Connection *connection)
{
    struct streams *streams = stream->owner;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    stream->connection = connection;
    stream->descriptor = info ? info->connect_fd : -1;
    stream->started = true;
    pthread_mutex_lock(&streams->lock);
    stream->written_ns = clock_monotonic_ns();
    stream->next = streams->first;
    if (stream->next)
        stream->next->previous = stream;
    streams->first = stream;
    streams->count++;
    pthread_mutex_unlock(&streams->lock);
    events_feed_add(streams->feed, &stream->listener);
}

static void write_frame(struct stream *stream, const struct event_record *event, struct error *err)
{
    struct buf *out = &stream->pending;
    struct json *object = objects_event(event);

    buf_format(out, "id: %lld\nevent: %s\n", (long long)event->number, event->type);
    if (!stream->greeted)
        buf_format(out, "retry: %d\n", RETRY_MS);
    stream->greeted = true;
    buf_append_text(out, "data: ");
    if (!object || !json_print(object, out, err))
        out->failed = true;
    buf_append_text(out, "\n\n");
    json_free(object);
}

/* A final job whose closing event did not come in time (its writer died in between). */
static bool is_abandoned(const struct stream *stream, struct store *store, struct error *err)
{
    struct job_record job = {0};
    bool over;

    if (!jobs_get(store, stream->listener.job_id, &job, err))
        return false;
    over = job_state_is_final(job.state) && job.finished_unix_s > 0 &&
           clock_unix_s() - job.finished_unix_s > CLOSING_EVENT_S;
    job_record_release(&job);
    return over;
}

/* The next rows into pending, or the end. keepalive: also when there are none. */
static bool fill(struct stream *stream, bool keepalive, struct error *err)
{
    struct event_record *events = NULL;
    struct store *store = NULL;
    size_t count = 0;
    bool ok = false;

    buf_clear(&stream->pending);
    stream->sent = 0;
    if (!stores_take(stream->owner->stores, &store, err))
        return false;
    if (!events_since(store, stream->listener.job_id, stream->after_number, PAGE_ROWS, &events,
                      &count, err))
        goto out;
    for (size_t i = 0; i < count && !stream->done; i++) {
        write_frame(stream, &events[i], err);
        stream->after_number = events[i].number;
        stream->done = strcmp(events[i].type, "done") == 0;
    }
    stream->more = count == PAGE_ROWS;
    if (count == 0 && keepalive) {
        buf_append_text(&stream->pending, ":\n");
        stream->done = is_abandoned(stream, store, err);
    }
    ok = !stream->pending.failed;
    if (!ok)
        error_set(err, ERR_NO_MEMORY, "no memory for a page of events");
out:
    events_free(events, count);
    stores_give(stream->owner->stores, store);
    return ok;
}

enum next_step { STEP_FILL, STEP_SLEEP, STEP_END, STEP_GONE };

/* Nothing is pending: sleep, unless somebody has called in the meantime. */
static enum next_step choose_step(struct stream *stream, bool *ret_keepalive)
{
    struct streams *streams = stream->owner;
    enum next_step step = STEP_FILL;

    pthread_mutex_lock(&streams->lock);
    *ret_keepalive = stream->keepalive_due;
    if (stream->gone) {
        step = STEP_GONE;
    } else if (streams->stopping || stream->done) {
        step = STEP_END;
    } else if (stream->more || stream->news || stream->keepalive_due) {
        stream->news = false;
        stream->keepalive_due = false;
    } else {
        stream->asleep = true;
        MHD_suspend_connection(stream->connection);
        step = STEP_SLEEP;
    }
    pthread_mutex_unlock(&streams->lock);
    return step;
}

static ssize_t give_pending(struct stream *stream, char *bytes, size_t capacity)
{
    size_t left = stream->pending.size - stream->sent;
    size_t size = left < capacity ? left : capacity;

    memcpy(bytes, stream->pending.data + stream->sent, size);
    stream->sent += size;
    pthread_mutex_lock(&stream->owner->lock);
    stream->written_ns = clock_monotonic_ns();
    pthread_mutex_unlock(&stream->owner->lock);
    return (ssize_t)size;
}

static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t capacity)
{
    struct stream *stream = context;
    struct error err = {0};
    bool keepalive = false;

    (void)position; /* a stream is read once, forwards */
    for (;;) {
        if (stream->sent < stream->pending.size)
            return give_pending(stream, bytes, capacity);
        buf_release(&stream->pending); /* a sleeping stream holds no page */
        buf_init(&stream->pending, PAGE_BYTES);
        stream->sent = 0;

        switch (choose_step(stream, &keepalive)) {
        case STEP_END:
            return MHD_CONTENT_READER_END_OF_STREAM;
        case STEP_GONE:
            return MHD_CONTENT_READER_END_WITH_ERROR;
        case STEP_SLEEP:
            return 0;
        case STEP_FILL:
            break;
        }
        if (!fill(stream, keepalive, &err)) {
            log_write_for(LOG_LEVEL_WARN, "job", stream->listener.job_id, "event stream ended: %s",
                          err.message);
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
}

static void free_stream(void *context)
{
    stream_free(context);
}

struct MHD_Response *stream_build(struct stream *stream)
{
    stream->news = true; /* not started: ours alone. The first read looks at the store */
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, stream,
                                             free_stream);
}

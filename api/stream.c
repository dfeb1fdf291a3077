#include "api/stream.h"

#include "api/pool.h"
#include "api/stores.h"
#include "api/tail.h"
#include "api/teller.h"
#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "store/events.h"
#include "store/jobs.h"

#include <assert.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NS_PER_S INT64_C(1000000000)
#define PAGE_ROWS 128                    /* rows read from the database at once */
#define PENDING_BYTES ((size_t)17 << 20) /* the largest event's frame */
#define BLOCK_BYTES 8192                 /* the library's piece */
#define SOCKET_BYTES (64 << 10)          /* what waits in the kernel; it takes twice that */
#define SILENT_PEER_MS 60000 /* nothing acknowledged for so long: the other host is gone */
#define RETRY_MS 2000        /* what a browser waits before it comes again, */
#define RETRY_SPREAD_MS 2000 /* and up to this more, so that a crowd does not come at once */
#define CLOSING_EVENT_S 30   /* a final job without its `done` by then has none to come */

struct stream {
    struct pool_task task; /* first: the pool's view */
    struct streams *owner;
    struct stream *next, *previous; /* guarded by owner's lock */
    struct MHD_Connection *connection;
    int descriptor;
    bool started;
    char reader[STORE_ID_SIZE]; /* whose key asked; "" the operator */
    char session[65];           /* the digest of its cookie's token; "" none */

    bool asleep;        /* guarded by owner's lock: suspended, for want of news */
    bool news;          /* guarded by owner's lock: look again */
    bool keepalive_due; /* guarded by owner's lock */
    bool gone;          /* guarded by owner's lock: the reader has closed */
    bool revoked;       /* guarded by owner's lock: the reader's key or session is no more */
    bool probed;        /* guarded by owner's lock: half-closed, a comment was sent to see */
    int64_t written_ns; /* guarded by owner's lock */

    /* Set before the pool gets the stream, cleared (release) as the last thing before the connection
     * is resumed, read (acquire) by the library's thread before it touches what the pool wrote. The
     * library's own lock orders the two as well; this says so in our own code. */
    _Atomic bool working;
    /* From here the serving thread's; the pool's while working, the connection suspended. */
    struct tail_cursor cursor;
    struct buf pending;
    size_t sent;    /* bytes of pending */
    bool more;      /* the last page was full */
    bool comment;   /* silence is to be broken if the database has no news */
    bool abandoned; /* the job has ended without its last event */
    bool failed;    /* the database could not be read */
    bool farewell;  /* that the server stops has been told */
};

struct streams {
    struct streams_options options;
    struct teller *teller;
    int64_t keepalive_ns;
    pthread_mutex_t lock;
    struct stream *first;          /* guarded by lock */
    size_t count;                  /* guarded by lock: made and not freed */
    bool stopping;                 /* guarded by lock */
    struct MHD_Connection **woken; /* the teller's: count_max of them */
};

/* ---- all of them ---- */

/* With the lock held. True: the caller resumes the connection, which nobody else does now. */
static bool rouse(struct stream *stream)
{
    const bool was_asleep = stream->asleep;

    stream->asleep = false;
    return was_asleep;
}

static bool concerns(const struct stream *stream, const struct event_record *events, size_t count)
{
    if (count == 0 || stream->cursor.job_id[0] == '\0')
        return true;
    for (size_t i = 0; i < count; i++) {
        const bool seen = i > 0 && strcmp(events[i].job_id, events[i - 1].job_id) == 0;

        if (!seen && strcmp(events[i].job_id, stream->cursor.job_id) == 0)
            return true;
    }
    return false;
}

/* On the teller's thread. The connections are resumed without the lock, which their own threads
 * take at once; they stay until then, being suspended. */
static void tell(void *context, const struct event_record *events, size_t count)
{
    struct streams *streams = context;
    size_t woken_count = 0;

    pthread_mutex_lock(&streams->lock);
    for (struct stream *stream = streams->first; stream; stream = stream->next) {
        if (!concerns(stream, events, count))
            continue;
        stream->news = true;
        if (rouse(stream))
            streams->woken[woken_count++] = stream->connection;
    }
    pthread_mutex_unlock(&streams->lock);
    for (size_t i = 0; i < woken_count; i++)
        MHD_resume_connection(streams->woken[i]);
}

bool streams_start(const struct streams_options *options, struct streams **ret_streams,
                   struct error *err)
{
    struct streams *streams = calloc(1, sizeof(*streams));

    if (!streams)
        return error_set(err, ERR_NO_MEMORY, "no memory for the event streams");
    streams->options = *options;
    streams->keepalive_ns = options->keepalive_s * NS_PER_S;
    pthread_mutex_init(&streams->lock, NULL);
    streams->woken = calloc(options->count_max, sizeof(struct MHD_Connection *));
    if (!streams->woken) {
        streams_free(streams);
        return error_set(err, ERR_NO_MEMORY, "no memory for the event streams");
    }
    if (!teller_start(options->feed, options->stores, tell, streams, &streams->teller, err)) {
        streams_free(streams);
        return false;
    }
    *ret_streams = streams;
    return true;
}

void streams_free(struct streams *streams)
{
    if (!streams)
        return;
    assert(!streams->first);
    teller_free(streams->teller);
    pthread_mutex_destroy(&streams->lock);
    free(streams->woken);
    free(streams);
}

const struct pulse *streams_pulse(const struct streams *streams)
{
    return teller_pulse(streams->teller);
}

void streams_stop(struct streams *streams)
{
    teller_stop(streams->teller); /* resumes what it has roused */
    pthread_mutex_lock(&streams->lock);
    streams->stopping = true;
    for (struct stream *stream = streams->first; stream; stream = stream->next) {
        if (rouse(stream))
            MHD_resume_connection(stream->connection);
    }
    pthread_mutex_unlock(&streams->lock);
}

void streams_tick(struct streams *streams, int64_t now_ns)
{
    pthread_mutex_lock(&streams->lock);
    for (struct stream *stream = streams->first; stream; stream = stream->next) {
        struct pollfd about = {.fd = stream->descriptor, .events = POLLRDHUP};

        if (!stream->asleep)
            continue;                 /* the library or the pool looks after it */
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
        if ((stream->gone || stream->keepalive_due) && rouse(stream))
            MHD_resume_connection(stream->connection);
    }
    pthread_mutex_unlock(&streams->lock);
}

/* With the streams' lock held. */
static void end_reading(struct stream *stream)
{
    stream->revoked = true;
    if (rouse(stream))
        MHD_resume_connection(stream->connection);
}

void streams_end_owner(struct streams *streams, const char *owner)
{
    pthread_mutex_lock(&streams->lock);
    for (struct stream *stream = streams->first; stream; stream = stream->next) {
        if (strcmp(stream->reader, owner) == 0)
            end_reading(stream);
    }
    pthread_mutex_unlock(&streams->lock);
}

void streams_end_session(struct streams *streams, const char *session)
{
    pthread_mutex_lock(&streams->lock);
    for (struct stream *stream = streams->first; stream; stream = stream->next) {
        if (strcmp(stream->session, session) == 0)
            end_reading(stream);
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

/* ---- one of them: its life ---- */

/* Takes a place; the first makes the teller read. */
static bool take_place(struct streams *streams, struct error *err)
{
    bool taken;

    pthread_mutex_lock(&streams->lock);
    taken = streams->count < streams->options.count_max;
    streams->count += taken;
    teller_listen(streams->teller, streams->count > 0);
    pthread_mutex_unlock(&streams->lock);
    return taken ||
           error_set_word(err, ERR_UNAVAILABLE, "too_many_streams", "",
                          "%zu event streams are open, as many as this server holds: close "
                          "one, or ask for pages of events instead",
                          streams->options.count_max);
}

bool stream_new(struct streams *streams, const struct tail_cursor *cursor, const char *owner,
                const char *session, struct stream **ret_stream, struct error *err)
{
    struct stream *stream;

    if (!take_place(streams, err))
        return false;
    stream = calloc(1, sizeof(*stream));
    if (!stream) {
        pthread_mutex_lock(&streams->lock);
        streams->count--;
        pthread_mutex_unlock(&streams->lock);
        return error_set(err, ERR_NO_MEMORY, "no memory for the stream");
    }
    stream->owner = streams;
    (void)snprintf(stream->reader, sizeof(stream->reader), "%s", owner);
    (void)snprintf(stream->session, sizeof(stream->session), "%s", session);
    stream->cursor = *cursor;
    stream->descriptor = -1;
    buf_init(&stream->pending, PENDING_BYTES);
    *ret_stream = stream;
    return true;
}

void stream_free(struct stream *stream)
{
    struct streams *streams;

    if (!stream)
        return;
    streams = stream->owner;
    pthread_mutex_lock(&streams->lock);
    assert(!stream->asleep);
    if (stream->started) {
        if (stream->next)
            stream->next->previous = stream->previous;
        if (stream->previous)
            stream->previous->next = stream->next;
        else
            streams->first = stream->next;
    }
    streams->count--;
    teller_listen(streams->teller, streams->count > 0);
    pthread_mutex_unlock(&streams->lock);
    buf_release(&stream->pending);
    free(stream);
}

/* What the kernel holds for a reader that does not read, and for how long. A Unix socket takes the
 * first and not the second, which it does not need. */
static void bound_socket(int descriptor)
{
    const int bytes = SOCKET_BYTES;
    const unsigned silent_ms = SILENT_PEER_MS;

    (void)setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    (void)setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
}

/* Different for each, by the last digits of the time. */
static unsigned retry_ms(int64_t now_ns)
{
    return RETRY_MS + (unsigned)(now_ns / 1000 % RETRY_SPREAD_MS);
}

void stream_start(struct stream *stream, struct MHD_Connection *connection)
{
    struct streams *streams = stream->owner;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    stream->connection = connection;
    stream->descriptor = info ? info->connect_fd : -1;
    bound_socket(stream->descriptor);
    pthread_mutex_lock(&streams->lock);
    stream->started = true;
    stream->news = true; /* the first look is at what there is */
    stream->written_ns = clock_monotonic_ns();
    stream->cursor.retry_ms = retry_ms(stream->written_ns);
    stream->next = streams->first;
    if (stream->next)
        stream->next->previous = stream;
    streams->first = stream;
    pthread_mutex_unlock(&streams->lock);
}

/* ---- one of them: from the database, on the pool's threads ---- */

/* A final job whose closing event did not come in time (its writer died in between). */
static bool is_abandoned(const struct stream *stream, struct store *store)
{
    struct job_record job = {0};
    bool over;

    if (!jobs_get(store, stream->cursor.job_id, &job, NULL))
        return false;
    over = job_state_is_final(job.state) && job.finished_unix_s > 0 &&
           clock_unix_s() - job.finished_unix_s > CLOSING_EVENT_S;
    job_record_release(&job);
    return over;
}

/* The next rows into pending. */
static bool fill(struct stream *stream, struct store *store, struct error *err)
{
    struct tail_cursor *cursor = &stream->cursor;
    const bool of_job = cursor->job_id[0] != '\0';
    struct event_record *events = NULL;
    size_t count = 0, i = 0;
    int64_t newest_row = 0;
    bool ok;

    /* First, so that the rows up to it are among those looked at next. */
    if (!events_newest_row(store, &newest_row, err))
        return false;
    ok = of_job
             ? events_since(store, cursor->job_id, cursor->number, PAGE_ROWS, &events, &count, err)
             : events_since_row(store, cursor->types, cursor->row, PAGE_ROWS, &events, &count, err);
    if (!ok)
        return false;
    for (i = 0; i < count && stream->pending.size < STREAM_PAGE_BYTES && !cursor->done; i++)
        tail_write(cursor, &events[i], &stream->pending);
    stream->more = count == PAGE_ROWS || i < count;
    if (stream->more && of_job)
        cursor->row = -1; /* there is more of the job before the row it has come to */
    else if (!stream->more && newest_row > cursor->row)
        cursor->row = newest_row;
    events_free(events, count);
    return !stream->pending.failed ||
           error_set(err, ERR_NO_MEMORY, "no memory for a page of events");
}

static void read_page(struct pool_task *task)
{
    struct stream *stream = (struct stream *)task; /* its first member */
    struct MHD_Connection *connection = stream->connection;
    struct stores *stores = stream->owner->options.stores;
    struct store *store = NULL;
    struct error err = {0};

    if (!stores_take(stores, &store, &err) || !fill(stream, store, &err)) {
        log_write_for(LOG_LEVEL_WARN, "job", stream->cursor.job_id, "event stream ended: %s",
                      err.message);
        stream->failed = true;
    } else if (stream->comment && stream->pending.size == 0) {
        buf_append_text(&stream->pending, ":\n");
        stream->abandoned = is_abandoned(stream, store);
    }
    stores_give(stores, store);
    atomic_store_explicit(&stream->working, false, memory_order_release);
    MHD_resume_connection(connection); /* the stream is the library's again */
}

/* ---- one of them: to the reader, on the library's thread ---- */

enum next_step { STEP_LOOK, STEP_COMMENT, STEP_SLEEP, STEP_FAREWELL, STEP_END, STEP_GONE };

/* Nothing is pending: sleep, unless somebody has called in the meantime. */
static enum next_step choose_step(struct stream *stream)
{
    struct streams *streams = stream->owner;
    enum next_step step = STEP_LOOK;

    pthread_mutex_lock(&streams->lock);
    if (stream->gone || stream->failed) {
        step = STEP_GONE;
    } else if (stream->cursor.done || stream->abandoned || stream->farewell || stream->revoked) {
        step = STEP_END;
    } else if (streams->stopping) {
        step = STEP_FAREWELL;
    } else if (stream->more || stream->news) {
        stream->news = false;
    } else if (stream->keepalive_due) {
        stream->keepalive_due = false;
        step = STEP_COMMENT;
    } else {
        stream->asleep = true;
        MHD_suspend_connection(stream->connection);
        step = STEP_SLEEP;
    }
    pthread_mutex_unlock(&streams->lock);
    return step;
}

/* The connection sleeps until the page is there. */
static void send_to_pool(struct stream *stream, bool comment)
{
    stream->comment = comment;
    stream->task.work = read_page;
    atomic_store_explicit(&stream->working, true,
                          memory_order_relaxed); /* the pool's lock orders */
    MHD_suspend_connection(stream->connection);
    if (pool_submit(stream->owner->options.pool, &stream->task))
        return;                                                           /* the pool's from here */
    atomic_store_explicit(&stream->working, false, memory_order_relaxed); /* ours still */
    pthread_mutex_lock(&stream->owner->lock);
    stream->owner->stopping = true; /* the pool takes no more: so it is */
    pthread_mutex_unlock(&stream->owner->lock);
    MHD_resume_connection(stream->connection);
}

/* News from the tail into pending; false when it does not reach back to them. */
static bool look(struct stream *stream)
{
    if (!tail_read(teller_tail(stream->owner->teller), &stream->cursor, STREAM_PAGE_BYTES,
                   &stream->pending))
        return false;
    stream->failed = stream->pending.failed;
    stream->more = stream->pending.size >= STREAM_PAGE_BYTES;
    return true;
}

static ssize_t give_pending(struct stream *stream, char *bytes, size_t capacity)
{
    size_t left = stream->pending.size - stream->sent;
    size_t size = left < capacity ? left : capacity;

    memcpy(bytes, stream->pending.data + stream->sent, size);
    stream->sent += size;
    pthread_mutex_lock(&stream->owner->lock);
    stream->written_ns = clock_monotonic_ns();
    stream->keepalive_due = false;
    pthread_mutex_unlock(&stream->owner->lock);
    return (ssize_t)size;
}

static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t capacity)
{
    struct stream *stream = context;

    (void)position; /* a stream is read once, forwards */
    if (atomic_load_explicit(&stream->working, memory_order_acquire))
        return 0; /* it is resumed when the page is there */
    for (;;) {
        if (stream->sent < stream->pending.size)
            return give_pending(stream, bytes, capacity);
        buf_release(&stream->pending); /* a sleeping stream holds no page */
        buf_init(&stream->pending, PENDING_BYTES);
        stream->sent = 0;

        switch (choose_step(stream)) {
        case STEP_END:
            return MHD_CONTENT_READER_END_OF_STREAM;
        case STEP_GONE:
            return MHD_CONTENT_READER_END_WITH_ERROR;
        case STEP_SLEEP:
            return 0;
        case STEP_COMMENT:
            if (stream->cursor.job_id[0] != '\0') {
                send_to_pool(stream, true);
                return 0;
            }
            buf_append_text(&stream->pending, ":\n");
            break;
        case STEP_FAREWELL:
            /* No blank line: it sets the delay, and nobody takes it for an event. */
            buf_format(&stream->pending, "retry: %u\n", retry_ms(clock_monotonic_ns()));
            stream->farewell = true;
            break;
        case STEP_LOOK:
            if (!look(stream)) {
                send_to_pool(stream, false);
                return 0;
            }
            break;
        }
    }
}

static void free_stream(void *context)
{
    stream_free(context);
}

struct MHD_Response *stream_build(struct stream *stream)
{
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, stream,
                                             free_stream);
}

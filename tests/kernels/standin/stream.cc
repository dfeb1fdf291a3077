#include "tests/kernels/standin/stream.h"

#include "tests/kernels/standin/device.h"
#include "tests/kernels/standin/memory.h"
#include "tests/kernels/standin/report.h"

#include <stdlib.h>
#include <time.h>

struct operation {
    struct operation *next;
    uint64_t sequence; /* over all streams */
    void (*run)(void *payload);
    alignas(16) unsigned char payload[];
};

struct standin_stream {
    struct standin_stream *next;
    int device;
    bool blocking; /* waits for the device's own stream, and is waited for by it */
    struct operation *first, *last;
};

struct standin_event {
    uint64_t recorded, done; /* sequence numbers of the last record asked for and run */
    struct standin_stream *stream;
    struct timespec time;
};

static struct standin_stream default_streams[STANDIN_DEVICES_MAX];
static struct standin_stream *streams;
static uint64_t last_sequence;

static struct standin_stream *own(cudaStream_t stream)
{
    if (stream)
        return stream;
    default_streams[device_current()].device = device_current();
    return &default_streams[device_current()];
}

int stream_device(cudaStream_t stream)
{
    return own(stream)->device;
}

static void *allocate(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes);

    if (!memory)
        abort();
    return memory;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void drain(struct standin_stream *stream, uint64_t sequence);

static bool is_default(const struct standin_stream *stream)
{
    return stream == &default_streams[stream->device];
}

/* The device's own stream and the blocking ones wait for each other. */
static void drain_partners(struct standin_stream *stream, uint64_t sequence)
{
    if (is_default(stream)) {
        for (struct standin_stream *other = streams; other; other = other->next)
            if (other->blocking && other->device == stream->device)
                drain(other, sequence);
    } else if (stream->blocking) {
        drain(&default_streams[stream->device], sequence);
    }
}

static void run_on(int device, void (*run)(void *payload), void *payload)
{
    const int outer = memory_current_device();

    memory_set_current_device(device);
    memory_work_begins();
    run(payload);
    memory_work_ended();
    memory_set_current_device(outer);
}

/* Does the stream's work up to a sequence number. */
static void drain(struct standin_stream *stream, uint64_t sequence)
{
    while (stream->first && stream->first->sequence <= sequence) {
        struct operation *operation = stream->first;

        stream->first = operation->next;
        if (!stream->first)
            stream->last = NULL;
        drain_partners(stream, operation->sequence - 1);
        run_on(stream->device, operation->run, operation->payload);
        free(operation);
    }
}

void stream_give(cudaStream_t given, void (*run)(void *payload), const void *payload,
                 size_t payload_size)
{
    struct standin_stream *stream = own(given);
    struct operation *operation =
        static_cast<struct operation *>(allocate(sizeof *operation + payload_size));

    operation->sequence = ++last_sequence;
    operation->run = run;
    memcpy(operation->payload, payload, payload_size);
    if (stream->last)
        stream->last->next = operation;
    else
        stream->first = operation;
    stream->last = operation;
    if (!device_is_deferred())
        drain(stream, operation->sequence);
}

void stream_drain_device(int device)
{
    drain(&default_streams[device], last_sequence);
    for (struct standin_stream *stream = streams; stream; stream = stream->next)
        if (stream->device == device)
            drain(stream, last_sequence);
}

void stream_drain_default(void)
{
    struct standin_stream *stream = own(NULL);

    drain(stream, last_sequence);
    drain_partners(stream, last_sequence);
}

/* The error of waiting: what broke the device on the way. */
static cudaError_t after_waiting(int device)
{
    return device_fault(device) == cudaSuccess ? cudaSuccess : api_fail(device_fault(device));
}

cudaError_t cudaDeviceSynchronize(void)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    device_counts(device_current())->synchronisations++;
    stream_drain_device(device_current());
    return after_waiting(device_current());
}

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    struct standin_stream *stream = static_cast<struct standin_stream *>(allocate(sizeof *stream));
    stream->device = device_current();
    stream->blocking = !(flags & cudaStreamNonBlocking);
    stream->next = streams;
    streams = stream;
    *ret_stream = stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *ret_stream)
{
    return cudaStreamCreateWithFlags(ret_stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const struct api_call call(API_ON_BROKEN_DEVICE);
    struct standin_stream **link = &streams;

    while (*link && *link != stream)
        link = &(*link)->next;
    if (!*link)
        return api_fail(cudaErrorInvalidResourceHandle);
    drain(stream, last_sequence);
    *link = stream->next;
    free(stream);
    return call.error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    device_counts(stream_device(stream))->synchronisations++;
    if (stream)
        drain(stream, last_sequence);
    else
        stream_drain_default();
    return after_waiting(stream_device(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    return own(stream)->first ? cudaErrorNotReady : cudaSuccess; /* not an error to keep */
}

/* ---- events ---------------------------------------------------------------------------------- */

struct event_work {
    struct standin_event *event;
    uint64_t record;
};

static void run_record(void *payload)
{
    const struct event_work *work = static_cast<const struct event_work *>(payload);

    clock_gettime(CLOCK_MONOTONIC, &work->event->time);
    work->event->done = work->record;
}

static void wait_for(struct standin_event *event, uint64_t record)
{
    if (event->done < record)
        drain(event->stream, record);
}

static void run_wait(void *payload)
{
    const struct event_work *work = static_cast<const struct event_work *>(payload);

    wait_for(work->event, work->record);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    *ret_event = static_cast<struct standin_event *>(allocate(sizeof **ret_event));
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *ret_event)
{
    return cudaEventCreateWithFlags(ret_event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const struct api_call call(API_ON_BROKEN_DEVICE);

    if (event->stream)
        wait_for(event, event->recorded);
    free(event);
    return call.error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    event->stream = own(stream);
    event->recorded = last_sequence + 1; /* the one stream_give counts next */
    const struct event_work work = {event, event->recorded};
    stream_give(stream, run_record, &work, sizeof work);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    return event->done < event->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    device_counts(device_current())->synchronisations++;
    if (event->stream)
        wait_for(event, event->recorded);
    return after_waiting(device_current());
}

cudaError_t cudaEventElapsedTime(float *ret_ms, cudaEvent_t start, cudaEvent_t end)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    if (!start->recorded || !end->recorded)
        return api_fail(cudaErrorInvalidResourceHandle);
    if (start->done < start->recorded || end->done < end->recorded)
        return api_fail(cudaErrorNotReady);
    *ret_ms = (float)(end->time.tv_sec - start->time.tv_sec) * 1e3f +
              (float)(end->time.tv_nsec - start->time.tv_nsec) / 1e6f;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const struct api_call call;

    if (call.error != cudaSuccess)
        return call.error;
    if (!event->stream)
        return cudaSuccess; /* never recorded: nothing to wait for */
    const struct event_work work = {event, event->recorded};
    stream_give(stream, run_wait, &work, sizeof work);
    return cudaSuccess;
}

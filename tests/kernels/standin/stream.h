/*
 * stream: work in the order it was given, done at once or when somebody waits for it.
 *
 * Purpose    Streams and events. Deferred, a stream's work is done at the first call that waits for
 *            it and not before: host code that forgot to wait reads what stood there.
 * Ownership  As the API: created and destroyed by the caller. Work is copied when it is given.
 * Threads    Under the stand-in's lock.
 * Failure    Work on a device that broke is dropped.
 */
#ifndef NEEDLED_STANDIN_STREAM_H
#define NEEDLED_STANDIN_STREAM_H

#include "tests/kernels/standin/cuda_runtime.h"

/* Queues run(payload), with a copy of the payload. */
void stream_give(cudaStream_t stream, void (*run)(void *payload), const void *payload,
                 size_t payload_size);
/* Does all work of all streams of the device. */
void stream_drain_device(int device);
/* What a call without a stream waits for: the device's own stream and those that block with it. */
void stream_drain_default(void);
/* The device a stream works on. */
int stream_device(cudaStream_t stream);

#endif

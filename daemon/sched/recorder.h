/*
 * recorder: a running job's events on their way to the database.
 *
 * Purpose    The worker hands events in and trains on; a thread of the recorder's own commits them,
 *            at once after a pause and else 50 ms after the last commit, with all that came in
 *            between, and tells the feed after the commit.
 * Ownership  recorder_open / recorder_close. One job at a time between begin and drain.
 * Threads    recorder_add, _begin and _drain from the worker; the thread has its own store.
 * Failure    A commit that fails (disk full) is tried again each second, and the worker waits once
 *            the recorder is full; with the stop flag set the batch is given up instead. Events for
 *            a job that has ended are dropped: nothing follows its last one.
 */
#ifndef NEEDLED_RECORDER_H
#define NEEDLED_RECORDER_H

#include "store/events.h"

#include <stdatomic.h>

struct disk;
struct events_feed;
struct json;
struct recorder;

struct recorder_progress {
    int64_t completed_steps, trained_tokens;
    double train_loss;
};

/* disk hears of writes that it refuses; NULL: nobody does. */
MUST_CHECK bool recorder_open(const char *database_path, struct disk *disk,
                              struct events_feed *feed, struct recorder **ret_recorder,
                              struct error *err);
void recorder_close(struct recorder *recorder); /* writes what is left; NULL is fine */

/* stop is borrowed until the next begin. */
void recorder_begin(struct recorder *recorder, const char *job_id, const atomic_bool *stop);
/* data is taken over (NULL: none); progress may be NULL; type is static text. False: there was no memory. */
MUST_CHECK bool recorder_add(struct recorder *recorder, enum event_level level, const char *type,
                             struct json *data, const struct recorder_progress *progress,
                             const char *format, ...) PRINTF_LIKE(6, 7);
void recorder_drain(struct recorder *recorder); /* until everything is committed or given up */

#endif

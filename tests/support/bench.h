/*
 * bench: a scheduler with its state folder, its base model and its data, without HTTP.
 *
 * Purpose    Tests of jobs from create to end: uploads, submits, waits for events.
 * Ownership  bench_new / bench_free; everything goes with it.
 * Threads    The test's; the scheduler has its own.
 * Failure    Fails the test, with what was said last.
 */
#ifndef NEEDLED_BENCH_H
#define NEEDLED_BENCH_H

#include "daemon/sched/devices.h"
#include "daemon/sched/events.h"
#include "daemon/sched/scheduler.h"
#include "store/jobs.h"
#include "tests/support/hold.h"
#include "tests/support/test.h"

#include <pthread.h>

struct bench {
    char *scratch;
    char state[512], models[512], database[512];
    struct devices devices;
    struct events_feed *feed;
    struct scheduler_options options;
    struct scheduler *scheduler; /* NULL while stopped */
    struct store *store;         /* the test's */
    struct events_listener listener;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t news; /* guarded by lock */
};

struct bench *bench_new(void); /* base "needle-3", started */
void bench_free(struct bench *bench);
void bench_start(struct bench *bench);
void bench_stop(struct bench *bench);

/* Uploads; the id is good until the next upload. */
const char *bench_upload(struct bench *bench, const char *text, size_t size);
const char *bench_upload_lines(struct bench *bench, size_t count); /* short clean lines */
/* format gives the body, with ' standing for ". */
bool bench_submit(struct bench *bench, char ret_id[STORE_ID_SIZE], struct error *err,
                  const char *format, ...) PRINTF_LIKE(4, 5);
/* A small job of rank 2 on the file, with further hyper-parameters as JSON (with '), or "". */
void bench_submit_small(struct bench *bench, const char *file, const char *more,
                        char ret_id[STORE_ID_SIZE]);

/* Waits until the job has ended or is in the state (JOB_STATE_COUNT: any end). */
enum job_state bench_wait(struct bench *bench, const char *job_id, enum job_state wanted);
/* Waits until the reason for the job's state has those words. */
void bench_wait_reason(struct bench *bench, const char *job_id, const char *words);
/* Waits for the job's first event of the type after the number; returns its number. */
int64_t bench_wait_event(struct bench *bench, const char *job_id, const char *type,
                         int64_t after_number);
void bench_get(struct bench *bench, const char *job_id, struct job_record *ret_job);
/* All events of a job; free with events_free. */
struct event_record *bench_events(struct bench *bench, const char *job_id, size_t *ret_count);
size_t
bench_count_events(struct bench *bench, const char *job_id, const char *type,
                   const char *word); /* of the type (NULL: any) whose message has the word */

#endif

/*
 * scheduler: the queue, every change of job state, and the workers.
 *
 * Purpose    Takes jobs, has their files checked, gives each to one worker (a thread per slot of a device),
 *            recovers them after a restart. The one owner of job states.
 * Ownership  scheduler_start / scheduler_stop. The options' strings and devices outlive it.
 * Threads    All functions may be called from any thread; each answers after its commit.
 * Failure    As documented at each function; param names the request's field.
 */
#ifndef NEEDLED_SCHEDULER_H
#define NEEDLED_SCHEDULER_H

#include "store/retention.h"
#include "store/store.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct backend_device;
struct device;
struct devices;
struct disk;
struct events_feed;
struct job_record;
struct json;

struct scheduler_options {
    const char *state_folder;  /* uploads/, checkpoints/, artifacts/, needled.db */
    const char *models_folder; /* <base>/base.safetensors, <base>/tokenizer.model */
    const char *database_path;
    const struct devices *devices;
    struct retention_limits retention;
    struct disk *disk; /* of the state folder; NULL: always good (tests) */
    struct events_feed *feed;
    _Atomic size_t memory_limit_bytes; /* per job; 0: what the device has; may change */
    size_t jobs_per_device;            /* at once; 0: one */
    /* Between a job's resume checkpoints: time (0: 30 s), steps (0: by time alone). */
    int64_t checkpoint_interval_ns;
    size_t checkpoint_steps;
    size_t crash_limit; /* deaths.h has the rule; 0: no limit */
    /* A device as it is now, for tests with devices that are not there; NULL: backend_describe. */
    void (*describe)(const struct device *device, struct backend_device *ret_now);
    int64_t stop_wait_ns;     /* for threads to end at a stop; 0: 1.2 s */
    const atomic_bool *hurry; /* set: a stop waits for them no longer; or NULL */
};

struct scheduler;

/* Reads unfinished jobs back: running ones go to queued with an event that says so. */
MUST_CHECK bool scheduler_start(const struct scheduler_options *options,
                                struct scheduler **ret_scheduler, struct error *err);
/* Running jobs drop the unfinished step, checkpoint the last whole one and go back to queued; all
 * threads end. Within two seconds. NULL is fine. */
void scheduler_stop(struct scheduler *scheduler);

/* From now on; jobs that run keep to what they began with. */
void scheduler_set_memory_limit(struct scheduler *scheduler, size_t limit_bytes);

/* For whoever watches over the daemon: what runs now, in one line for people (cut), and which thread that
 * has work, a job's or the reader of data sets, has shown nothing for so long; false: none. */
void scheduler_write_status(struct scheduler *scheduler, char *ret_text, size_t size);
bool scheduler_find_stuck(const struct scheduler *scheduler, int64_t limit_ns, char *ret_who,
                          size_t size);

/* Who creates a job, and whether they may have done so already. */
struct job_terms {
    const char *owner;           /* a key's id; "" the operator */
    int64_t jobs_max;            /* unfinished ones of that owner; 0: no limit */
    const char *idempotency_key; /* a create under it makes one job, ever; NULL: none was given */
    bool asked_before; /* without a key: an equal body of the last minutes is this create */
    bool is_sweep;     /* at least one field must be a list of values; else it may */
};
struct job_made {
    char id[STORE_ID_SIZE];
    bool repeated; /* an earlier create has made it */
};
/* A create request's body, of either shape (request.h): hyper-parameters are checked first, then files,
 * then the model and the device; the first fault is ERR_INVALID or ERR_NOT_FOUND with param. On success
 * the job is committed in state validating_files, or was before. Lists of values make a job for every
 * combination, all or none (sweep.h); the first of them is answered. */
MUST_CHECK bool scheduler_submit(struct scheduler *scheduler, const struct json *request,
                                 const struct job_terms *terms, struct job_made *ret_made,
                                 struct error *err);
/* Paused, or queued again, is committed before these return; pauses.h has what each state answers. */
MUST_CHECK bool scheduler_pause(struct scheduler *scheduler, const char *job_id, struct error *err);
MUST_CHECK bool scheduler_resume(struct scheduler *scheduler, const char *job_id,
                                 struct error *err);
/* Cancelled is committed before this returns; a second cancel is harmless; a finished job otherwise is
 * ERR_CONFLICT. */
MUST_CHECK bool scheduler_cancel(struct scheduler *scheduler, const char *job_id,
                                 struct error *err);

/* The same for all jobs of a sweep that have not ended. */
MUST_CHECK bool scheduler_cancel_sweep(struct scheduler *scheduler, const char *sweep_id,
                                       struct error *err);
/* Gives a waiting job another place in the line, as the body says (order.h has the rule). */
MUST_CHECK bool scheduler_move(struct scheduler *scheduler, const char *job_id,
                               const struct json *body, struct error *err);

/* Where a job stands and what is expected of it (forecast.h has the rule); 0: it does not wait, does not
 * run, or it is not known. */
struct job_outlook {
    int64_t queue_position; /* among all that wait, from 1 */
    int64_t start_unix_s, finish_unix_s;
    int64_t kept_step, kept_unix_s, kept_bytes; /* of the newest resume checkpoint */
};
/* One for each of the jobs, with the caller's store. */
MUST_CHECK bool scheduler_look_ahead(struct scheduler *scheduler, struct store *store,
                                     const struct job_record *jobs, size_t count,
                                     struct job_outlook *ret_outlooks, struct error *err);

/* What is asked about a data set; texts as in a job's hyper-parameters, NULL where not given. */
struct inspect_request {
    const char *file_id, *validation_file, *model, *data_rules, *overlong;
    int64_t max_len;                       /* 0: not given */
    size_t line;                           /* scheduler_example: from 1 */
    size_t problems_after, problems_limit; /* scheduler_report: a page of all findings */
};
/* Read by the thread that reads data sets, with the trainer's own code; ERR_UNAVAILABLE when too many
 * wait for it. A report ends after a minute at most and says what it has read by then. *stop ends both
 * early. The answers' fields are in api/openapi.yaml. */
MUST_CHECK bool scheduler_report(struct scheduler *scheduler, const struct inspect_request *request,
                                 const atomic_bool *stop, struct json **ret_answer,
                                 struct error *err);
MUST_CHECK bool scheduler_example(struct scheduler *scheduler,
                                  const struct inspect_request *request, const atomic_bool *stop,
                                  struct json **ret_answer, struct error *err);

/* What a job of this create body would take; nothing is made. A body or files that a create or its job
 * would refuse are refused alike; *ret_lines (or NULL) as upload_finish's. */
MUST_CHECK bool scheduler_estimate(struct scheduler *scheduler, const struct json *request,
                                   const atomic_bool *stop, struct json **ret_answer,
                                   struct json **ret_lines, struct error *err);

/* Base models found in the models folder: names into *ret_names (array and texts in one block for the
 * caller to free()). */
MUST_CHECK bool scheduler_list_bases(struct scheduler *scheduler, char ***ret_names,
                                     size_t *ret_count, struct error *err);
/* A base's record for GET /v1/models: {id, object:"model", created (its file's time), owned_by:"system",
 * depth (layers; left out when the header cannot be read)}. NULL without memory. */
struct json *scheduler_base_json(struct scheduler *scheduler, const char *name);
int64_t scheduler_base_depth(struct scheduler *scheduler, const char *name); /* 0: not known */

/* The inventory with the job that runs on each device, as the JSON of GET /v1/devices. */
struct json *scheduler_devices_json(struct scheduler *scheduler);
/* How many files its jobs may open beside those that are open: on each device, as many at once as it takes. */
size_t scheduler_job_files(const struct scheduler *scheduler);
/* ERR_NO_MEMORY or ERR_IO while the disk takes no writes, or has no room for so many bytes more. */
MUST_CHECK bool scheduler_check_disk(struct scheduler *scheduler, uint64_t more_bytes,
                                     struct error *err);
/* ERR_IO while the state folder is gone (home.h): then nothing is to be said of what was in it. */
MUST_CHECK bool scheduler_check_state(struct scheduler *scheduler, struct error *err);
/* An error that a request met: if it is the disk's, all hear of it. True: there is more room now, which
 * one that gives room back (is_urgent) has a right to. */
bool scheduler_report_disk(struct scheduler *scheduler, const struct error *why, bool is_urgent);
/* Now and then: whether a full disk has room again. */
void scheduler_look_at_disk(struct scheduler *scheduler);
/* The same: removes what is too old, or too much (retention.h). */
MUST_CHECK bool scheduler_sweep(struct scheduler *scheduler, struct store *store,
                                struct error *err);

/* {"status":"ok", ...} of /healthz; *ret_healthy false makes it a 503, as while the state folder is gone.
 * "degraded" is no 503: the daemon answers, and a restart would not mend the disk. */
struct json *scheduler_health_json(struct scheduler *scheduler, bool *ret_healthy);

#endif

/*
 * jobs: fine-tuning jobs and the one table of their states.
 *
 * Purpose    Keeps every job from before its create is answered until it is deleted by hand. A
 *            state changes by one conditional statement, with its event in the same transaction.
 * Ownership  Records are plain values; their JSON texts are freed by job_record_release.
 * Threads    As store.h. Only the scheduler calls the functions that change a state.
 * Failure    A transition that the table does not have, or that came too late, is ERR_CONFLICT.
 */
#ifndef NEEDLED_STORE_JOBS_H
#define NEEDLED_STORE_JOBS_H

#include "store/events.h"
#include "store/store.h"

struct attempt_record;
struct checkpoint_record;
struct file_record;
struct model_record;

#define JOB_KEY_SIZE 320 /* an owner's id, a slash, and an Idempotency-Key of 255 characters */

enum job_state {
    JOB_VALIDATING_FILES,
    JOB_QUEUED,
    JOB_RUNNING,
    JOB_PAUSED,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_STATE_COUNT
};
const char *job_state_name(enum job_state state); /* as stored and answered */
MUST_CHECK bool job_state_from_name(const char *name, enum job_state *ret_state);
bool job_state_is_final(enum job_state state);
bool job_state_may_become(enum job_state from, enum job_state to); /* the transition table */

/* Where a job stands among those that wait: the highest priority first, then the lowest position. The
 * position is given at the create, and unique. */
struct job_place {
    int64_t priority, position;
};
#define JOB_PLACE_FIRST ((struct job_place){.priority = INT64_MAX}) /* before every job */

struct job_record {
    char id[STORE_ID_SIZE]; /* ftjob-... */
    enum job_state state;
    char base_model[STORE_NAME_SIZE];
    char training_file[STORE_ID_SIZE];
    char validation_file[STORE_ID_SIZE]; /* "" none */
    char suffix[72];                     /* "" none */
    int64_t seed;
    char device_wanted[32];     /* "auto", "cpu", "cuda", "cuda:1" */
    char device_used[32];       /* "" until it runs: "cpu:0" */
    char numerics[16];          /* "w4a8", "float32" */
    char *hyperparameters_json; /* resolved, as answered */
    char *metadata_json;        /* object, or NULL */
    char *plan_json;            /* memory plan and notes once known, or NULL */
    char *warnings_json;        /* array of texts or objects, or NULL */
    char state_reason[256];     /* why it waits, "" when nothing to say */
    int64_t created_unix_s, started_unix_s, finished_unix_s; /* 0: not yet */
    int64_t total_steps, completed_steps, trained_tokens;
    double last_train_loss;                                   /* NAN before the first step */
    char fine_tuned_model[STORE_NAME_SIZE];                   /* "" until success */
    char error_code[64], error_param[64], error_message[600]; /* "" none */
    char *error_lines_json;             /* array of {line, column, field, rule, reason}, or NULL */
    int64_t attempt_count;              /* starts on a device */
    int64_t fault_count;                /* of them ended by a failing device */
    char owner[STORE_ID_SIZE];          /* a key's id; "" the operator */
    char request_sha256[65];            /* of the create's body; "" not kept */
    char idempotency_key[JOB_KEY_SIZE]; /* with its owner in front; "" none */
    char
        *inputs_json; /* {training_files, validation_files, test_files: [ids]}; NULL: those above */
    int64_t max_depth;                  /* asked for; 0: that of the base */
    char parent_model[STORE_NAME_SIZE]; /* the model it goes on from, "" none */
    char result_file[STORE_ID_SIZE];    /* its steps as CSV, "" none */
    char sweep_id[STORE_ID_SIZE];       /* made together with others, "" alone */
    struct job_place place;             /* its position is not looked at by an insert */
};
void job_record_release(struct job_record *job);       /* frees the JSON texts; NULL is fine */
void jobs_free(struct job_record *jobs, size_t count); /* an array of them; NULL is fine */

/* Inserts in state validating_files with its first event; ids are the caller's. ERR_NOT_FOUND with
 * param "model" when its parent_model is gone. */
MUST_CHECK bool jobs_insert(struct store *store, const struct job_record *job,
                            const struct event_draft *event, struct error *err);
/* Whether an owner may have so many more unfinished jobs: ERR_LIMIT with the word queue_limit_reached
 * when they would be more than jobs_max (0: no limit). */
MUST_CHECK bool jobs_check_room(struct store *store, const char *owner, int64_t jobs_max,
                                int64_t more_count, struct error *err);
MUST_CHECK bool jobs_count_unfinished(struct store *store, const char *owner, int64_t *ret_count,
                                      struct error *err);
MUST_CHECK bool jobs_get(struct store *store, const char *id, struct job_record *ret_job,
                         struct error *err);
/* The job that an earlier create like `asked` made, "" none: of the same idempotency_key (another body
 * under it is ERR_INVALID with the word idempotency_key_reused); or, without a key, of the same owner
 * and body, made at since_unix_s or later and not cancelled. */
MUST_CHECK bool jobs_find_repeat(struct store *store, const struct job_record *asked,
                                 int64_t since_unix_s, char ret_id[STORE_ID_SIZE],
                                 struct error *err);
/* What a list is of; zeroed: all. */
struct jobs_filter {
    const char *metadata_json; /* array of [name, value], each of which a job has; NULL: any */
    bool without_metadata;     /* only jobs that have none */
    const char *states;        /* names, each between commas: ",queued,paused,"; NULL: any */
    const char *search; /* a part of name, id or model, letters of ASCII in either case; NULL */
};
/* *ret_jobs: array for the caller; release each, then free(). */
MUST_CHECK bool jobs_list(struct store *store, const struct jobs_filter *filter,
                          const struct store_page *page, struct job_record **ret_jobs,
                          size_t *ret_count, bool *ret_has_more, struct error *err);
/* How many the filter lets through. */
MUST_CHECK bool jobs_count(struct store *store, const struct jobs_filter *filter,
                           int64_t *ret_count, struct error *err);
/* In the order they are to be served, of one state, behind `after`; at most limit. */
MUST_CHECK bool jobs_list_state(struct store *store, enum job_state state,
                                const struct job_place *after, size_t limit,
                                struct job_record **ret_jobs, size_t *ret_count, struct error *err);
/* The first of all that wait: to be validated, or for a device. */
MUST_CHECK bool jobs_list_waiting(struct store *store, size_t limit, struct job_record **ret_jobs,
                                  size_t *ret_count, struct error *err);
/* Of one sweep, in the order of its create; one that is not there has none. */
MUST_CHECK bool jobs_list_sweep(struct store *store, const char *sweep_id,
                                struct job_record **ret_jobs, size_t *ret_count, struct error *err);

/* What changes with a transition; NULL members stay as they are. */
struct job_change {
    const char *device_used;
    const char *state_reason; /* "" clears */
    const char *fine_tuned_model;
    const char *error_code, *error_param, *error_message, *error_lines_json;
    const char *plan_json, *warnings_json;
    int64_t total_steps, completed_steps, trained_tokens; /* -1: as it is */
    bool device_fault;                                    /* counts one more */
    /* Records that appear together with the change. */
    const struct model_record *models;
    size_t model_count;
    const struct checkpoint_record *checkpoint;
    const struct file_record *result_file; /* becomes the job's */
    /* The daemon died, and this is held against the job; NULL: a run ends in order. */
    const struct attempt_record *death;
};
#define JOB_CHANGE_NONE                                                                            \
    ((struct job_change){.total_steps = -1, .completed_steps = -1, .trained_tokens = -1})

/* from -> to with the change and up to event_count events, in one transaction. ERR_CONFLICT when the
 * job is not in `from` any more. */
MUST_CHECK bool jobs_move(struct store *store, const char *id, enum job_state from,
                          enum job_state to, const struct job_change *change,
                          const struct event_draft *events, size_t event_count, struct error *err);
/* The same without a state change (plan, reason, warnings, progress), for a job that has not ended. */
MUST_CHECK bool jobs_update(struct store *store, const char *id, const struct job_change *change,
                            const struct event_draft *events, size_t event_count,
                            struct error *err);

#endif

#include "daemon/sched/queue.h"

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/events.h"
#include "daemon/sched/placement.h"
#include "daemon/sched/warnings.h"
#include "store/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT 256 /* queued jobs considered at once */

static void tell(struct queue *queue, const char *job_id)
{
    events_feed_publish(queue->options->feed, job_id);
    mailbox_tell_news(queue->mailbox);
}

static void free_jobs(struct job_record *jobs, size_t count)
{
    for (size_t i = 0; jobs && i < count; i++)
        job_record_release(&jobs[i]);
    free(jobs);
}

static bool move(struct queue *queue, const char *job_id, enum job_state from, enum job_state to,
                 const struct job_change *change, const struct notes *notes, struct error *err)
{
    if (notes->failed)
        return error_set(err, ERR_NO_MEMORY, "no memory for the events of job '%s'", job_id);
    if (!jobs_move(queue->store, job_id, from, to, change, notes->drafts, notes->count, err))
        return false;
    log_write_for(LOG_LEVEL_INFO, "job", job_id, "%s -> %s", job_state_name(from),
                  job_state_name(to));
    tell(queue, job_id);
    return true;
}

/* A reason of a new kind (its text up to the colon) that the job does not get over by itself. */
static bool is_news(const char *before, const char *reason)
{
    const size_t kind = strcspn(reason, ":");

    return reason[0] != '\0' && strncmp(reason, "waits for a device", kind) != 0 &&
           strncmp(before, reason, kind) != 0;
}

/* Puts a changed reason into the job's record, and into its events and the log if it is news. */
static bool keep_reason(struct queue *queue, const struct job_record *job, const char *reason,
                        struct error *err)
{
    struct job_change change = JOB_CHANGE_NONE;
    struct notes notes;
    bool ok;

    notes_init(&notes);
    change.state_reason = reason;
    if (is_news(job->state_reason, reason)) {
        const char *verb = strncmp(reason, "waits ", 6) == 0 ? "" : "waits: ";

        log_write_for(LOG_LEVEL_WARN, "job", job->id, "%s%s", verb, reason);
        notes_add(&notes, EVENT_WARN, "message", NULL, "The job %s%s", verb, reason);
    }
    ok = jobs_update(queue->store, job->id, &change, notes.drafts, notes.count, err);
    if (ok && notes.count > 0)
        events_feed_publish(queue->options->feed, job->id);
    notes_release(&notes);
    return ok;
}

/* ---- ends ----------------------------------------------------------------------------------------- */

static struct json *failure_data(const char *code, const struct error *fault, const char *lines)
{
    struct json *data = notes_status(job_state_name(JOB_FAILED));
    struct json *object = json_new_object(), *parsed = NULL;

    json_add_string(object, "code", code);
    json_add_string(object, "message", fault->message);
    json_add_string(object, "param", fault->param[0] ? fault->param : NULL);
    if (lines && json_parse(lines, strlen(lines), &parsed, NULL))
        json_add(object, "lines", parsed);
    json_add(data, "error", object);
    return data;
}

/* "invalid_training_file", else the error's kind. */
static void name_failure(const struct error *fault, char *ret_code, size_t capacity)
{
    if (fault->code == ERR_INVALID && fault->param[0])
        (void)snprintf(ret_code, capacity, "invalid_%s", fault->param);
    else
        (void)snprintf(ret_code, capacity, "%s", error_code_name(fault->code));
}

static bool fail_job(struct queue *queue, const char *job_id, enum job_state from,
                     const struct job_change *given, const struct error *fault, struct error *err)
{
    struct job_change change = *given;
    char code[64];
    struct notes notes;
    bool ok;

    name_failure(fault, code, sizeof(code));
    change.state_reason = "";
    change.error_code = code;
    change.error_param = fault->param;
    change.error_message = fault->message;
    notes_init(&notes);
    notes_add(&notes, EVENT_ERROR, "state", failure_data(code, fault, change.error_lines_json),
              "The job failed: %s", fault->message);
    notes_add_done(&notes, job_state_name(JOB_FAILED), NULL);
    ok = move(queue, job_id, from, JOB_FAILED, &change, &notes, err);
    notes_release(&notes);
    return ok;
}

/* ---- looking at those that wait ----------------------------------------------------------------------- */

static bool review_job(struct queue *queue, const struct placement_view *view,
                       const struct job_record *job, struct error *err)
{
    struct job_change none = JOB_CHANGE_NONE;
    struct error fault = {0};
    char reason[sizeof(job->state_reason)];

    if (!placement_is_possible(view, job, &fault))
        return fail_job(queue, job->id, JOB_QUEUED, &none, &fault, err);
    placement_explain(view, job, reason, sizeof(reason));
    return strcmp(reason, job->state_reason) == 0 || keep_reason(queue, job, reason, err);
}

/* Waiting jobs say why, and those that can never run end: looked at again whenever something
 * changed. */
static void review(struct queue *queue)
{
    struct placement_view view;
    struct job_record *jobs = NULL;
    struct error err = {0};
    size_t count = 0;
    bool ok = jobs_list_state(queue->store, JOB_QUEUED, LOOKED_AT, &jobs, &count, &err);

    if (ok && count > 0)
        placement_look(queue, &view);
    for (size_t i = 0; ok && i < count; i++)
        ok = review_job(queue, &view, &jobs[i], &err);
    if (!ok && strcmp(queue->last_trouble, err.message) != 0) /* said once, not at every look */
        log_write(LOG_LEVEL_WARN, "look at the queue: %s", err.message);
    (void)snprintf(queue->last_trouble, sizeof(queue->last_trouble), "%s", ok ? "" : err.message);
    free_jobs(jobs, count);
}

/* ---- create, cancel, judge -------------------------------------------------------------------------- */

bool queue_submit(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const struct job_record *job = arguments;
    struct notes notes;
    bool ok;

    notes_init(&notes);
    notes_add(&notes, EVENT_INFO, "state", notes_status(job_state_name(JOB_VALIDATING_FILES)),
              "Created fine-tuning job %s; validating its files", job->id);
    ok = !notes.failed || error_set(err, ERR_NO_MEMORY, "no memory for a job");
    ok = ok && jobs_insert(queue->store, job, notes.drafts, err);
    notes_release(&notes);
    if (ok)
        tell(queue, job->id);
    return ok;
}

bool queue_cancel(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const char *job_id = arguments;
    struct job_change change = JOB_CHANGE_NONE;
    struct job_record job = {0};
    struct notes notes;
    bool ok;

    if (!jobs_get(queue->store, job_id, &job, err))
        return false;
    job_record_release(&job);
    if (job.state == JOB_CANCELLED)
        return true;
    if (job_state_is_final(job.state))
        return error_set(err, ERR_CONFLICT, "job '%.48s' has %s: it cannot be cancelled", job_id,
                         job_state_name(job.state));
    change.state_reason = "";
    notes_init(&notes);
    notes_add(&notes, EVENT_INFO, "state", notes_status(job_state_name(JOB_CANCELLED)),
              "The job was cancelled");
    notes_add_done(&notes, job_state_name(JOB_CANCELLED), NULL);
    ok = move(queue, job_id, job.state, JOB_CANCELLED, &change, &notes, err);
    notes_release(&notes);
    if (ok)
        slots_cancel(&queue->slots, job_id);
    return ok;
}

/* The notes of a verdict and the event that closes the state. */
static bool accept_job(struct queue *queue, const struct queue_verdict *verdict, struct error *err)
{
    struct job_change change = JOB_CHANGE_NONE;
    struct notes closing;
    struct event_draft drafts[NOTES_MAX + 1];
    size_t count = verdict->notes ? verdict->notes->count : 0;
    bool ok;

    change.plan_json = verdict->plan_json;
    change.warnings_json = verdict->warnings_json;
    if (count)
        memcpy(drafts, verdict->notes->drafts, count * sizeof(*drafts));
    notes_init(&closing);
    notes_add(&closing, EVENT_INFO, "state", notes_status(job_state_name(JOB_QUEUED)),
              "Files validated; the job is queued");
    if (closing.failed) {
        notes_release(&closing);
        return error_set(err, ERR_NO_MEMORY, "no memory for an event");
    }
    drafts[count] = closing.drafts[0];
    ok = jobs_move(queue->store, verdict->job_id, JOB_VALIDATING_FILES, JOB_QUEUED, &change, drafts,
                   count + 1, err);
    notes_release(&closing);
    if (!ok)
        return false;
    log_write_for(LOG_LEVEL_INFO, "job", verdict->job_id, "validating_files -> queued");
    review(queue);
    tell(queue, verdict->job_id);
    return true;
}

bool queue_judge(void *owner, void *arguments, struct error *err)
{
    const struct queue_verdict *verdict = arguments;
    struct job_change change = JOB_CHANGE_NONE;

    if (!verdict->fault)
        return accept_job(owner, verdict, err);
    change.error_lines_json = verdict->lines_json;
    change.warnings_json = verdict->warnings_json;
    return fail_job(owner, verdict->job_id, JOB_VALIDATING_FILES, &change, verdict->fault, err);
}

/* ---- claim ------------------------------------------------------------------------------------------ */

/* That the job would have taken a GPU: told and kept with it. */
static bool warn_of_fallback(struct job_record *job, const char *device_id, const char *why,
                             struct notes *notes, struct error *err)
{
    struct json *warnings = warnings_read(job->warnings_json);
    char *text = NULL;
    char reason[384];
    bool ok = true;

    (void)snprintf(reason, sizeof(reason), "The job runs on %s and not on a GPU: %s", device_id,
                   why);
    if (warnings_add(warnings, "device", reason)) {
        notes_add(notes, EVENT_WARN, "message", NULL, "%s", reason);
        log_write_for(LOG_LEVEL_WARN, "job", job->id, "%s", reason);
        ok = json_print_text(warnings, &text, err);
    }
    json_free(warnings);
    if (ok && text) {
        free(job->warnings_json);
        job->warnings_json = text;
    }
    return ok;
}

static bool start_job(struct queue *queue, const struct placement_view *view,
                      const struct placement_grant *grant, struct job_record *job, size_t slot,
                      struct error *err)
{
    const char *device_id = slots_device(&queue->slots, slot)->id;
    struct job_change change = JOB_CHANGE_NONE;
    char fallback[256];
    struct json *data = notes_status(job_state_name(JOB_RUNNING));
    struct notes notes;
    bool ok = true;

    json_add_string(data, "device", device_id);
    notes_init(&notes);
    if (placement_is_fallback(view, job, queue->slots.items[slot].device, fallback,
                              sizeof(fallback)))
        ok = warn_of_fallback(job, device_id, fallback, &notes, err);
    notes_add(&notes, EVENT_INFO, "state", data, "Fine-tuning job started on %s", device_id);
    change.device_used = device_id;
    change.state_reason = "";
    change.warnings_json = job->warnings_json;
    slots_occupy(&queue->slots, slot, job->id, grant->reserved_bytes);
    ok = ok && move(queue, job->id, JOB_QUEUED, JOB_RUNNING, &change, &notes, err);
    notes_release(&notes);
    if (!ok)
        slots_vacate(&queue->slots, slot);
    return ok;
}

bool queue_take(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct queue_claim *claim = arguments;
    const size_t device = queue->slots.items[claim->slot].device;
    struct placement_view view;
    struct placement_grant grant = {0};
    struct job_record *jobs = NULL;
    size_t count = 0, chosen = 0;
    bool ok = true;

    claim->found = false;
    if (queue->stopping || !slots_use(&queue->slots, device).in_service)
        return true;
    if (!jobs_list_state(queue->store, JOB_QUEUED, LOOKED_AT, &jobs, &count, err))
        return false;
    if (count > 0)
        placement_look(queue, &view);
    while (chosen < count && !placement_takes(&view, &jobs[chosen], device, &grant))
        chosen++;
    if (chosen < count) {
        ok = start_job(queue, &view, &grant, &jobs[chosen], claim->slot, err);
        if (ok) {
            claim->job = jobs[chosen];
            jobs[chosen] = (struct job_record){0}; /* its texts are the claim's now */
            claim->memory_limit_bytes = grant.limit_bytes;
            claim->found = true;
        }
    }
    free_jobs(jobs, count);
    if (count)
        review(queue);
    return ok;
}

/* ---- the end of a run --------------------------------------------------------------------------------- */

static bool succeed(struct queue *queue, const struct queue_outcome *outcome, struct error *err)
{
    const struct model_record *model = &outcome->models[0];
    struct job_change change = JOB_CHANGE_NONE;
    struct json *data = notes_status(job_state_name(JOB_SUCCEEDED));
    struct notes notes;
    bool ok;

    change.fine_tuned_model = model->id;
    change.completed_steps = outcome->steps;
    change.trained_tokens = outcome->trained_tokens;
    change.models = outcome->models;
    change.model_count = outcome->model_count;
    change.checkpoint = outcome->checkpoint;
    json_add_string(data, "fine_tuned_model", model->id);
    notes_init(&notes);
    notes_add(&notes, EVENT_INFO, "message", NULL, "New fine-tuned model created: %s", model->id);
    notes_add(&notes, EVENT_INFO, "state", data, "The job has successfully completed");
    notes_add_done(&notes, job_state_name(JOB_SUCCEEDED), model->id);
    ok = move(queue, outcome->job_id, JOB_RUNNING, JOB_SUCCEEDED, &change, &notes, err);
    notes_release(&notes);
    return ok;
}

static bool requeue(struct queue *queue, const struct queue_outcome *outcome, const char *why,
                    struct error *err)
{
    bool fault = outcome->kind == OUTCOME_DEVICE_FAULT;
    struct job_change change = JOB_CHANGE_NONE;
    struct notes notes;
    bool ok;

    change.device_fault = fault;
    if (!fault) {
        change.completed_steps = outcome->steps;
        change.trained_tokens = outcome->trained_tokens;
    }
    notes_init(&notes);
    notes_add(&notes, fault ? EVENT_WARN : EVENT_INFO, "state",
              notes_status(job_state_name(JOB_QUEUED)), "%s; the job is queued again", why);
    ok = move(queue, outcome->job_id, JOB_RUNNING, JOB_QUEUED, &change, &notes, err);
    notes_release(&notes);
    return ok;
}

static bool end_with_fault(struct queue *queue, const struct queue_outcome *outcome,
                           struct error *err)
{
    struct queue_fault fault = {outcome->slot, outcome->fault->message};
    struct job_change change = JOB_CHANGE_NONE;
    struct job_record job = {0};
    char why[sizeof(err->message)];

    if (!queue_set_service(queue, &fault, err) ||
        !jobs_get(queue->store, outcome->job_id, &job, err))
        return false;
    job_record_release(&job);
    change.device_fault = true;
    if (job.fault_count + 1 >= QUEUE_FAULTS_MAX)
        return fail_job(queue, outcome->job_id, JOB_RUNNING, &change, outcome->fault, err);
    (void)snprintf(why, sizeof(why), "Device %s failed and is out of service (%.300s)",
                   slots_device(&queue->slots, outcome->slot)->id, outcome->fault->message);
    return requeue(queue, outcome, why, err);
}

bool queue_end(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct queue_outcome *outcome = arguments;
    struct job_change change = JOB_CHANGE_NONE;
    char why[96];
    bool ok = false;

    switch (outcome->kind) {
    case OUTCOME_SUCCEEDED:
        ok = succeed(queue, outcome, err);
        break;
    case OUTCOME_FAILED:
        ok = fail_job(queue, outcome->job_id, JOB_RUNNING, &change, outcome->fault, err);
        break;
    case OUTCOME_STOPPED:
        (void)snprintf(why, sizeof(why), "The daemon stopped, checkpointed at step %lld",
                       (long long)outcome->steps);
        ok = requeue(queue, outcome, why, err);
        break;
    case OUTCOME_CANCELLED:
        break;
    case OUTCOME_DEVICE_FAULT:
        ok = end_with_fault(queue, outcome, err);
        break;
    }
    /* A cancel that came first has set the state and said the last word. */
    outcome->kept = ok;
    if (!ok && (outcome->kind == OUTCOME_CANCELLED || err->code == ERR_CONFLICT))
        ok = true;
    if (ok) { /* else the worker tries again: the device stays taken */
        slots_vacate(&queue->slots, outcome->slot);
        mailbox_tell_news(queue->mailbox);
        review(queue);
    }
    return ok;
}

/* ---- service ------------------------------------------------------------------------------------------ */

bool queue_set_service(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const struct queue_fault *fault = arguments;

    (void)err; /* nothing here can fail */
    if (!slots_set_service(&queue->slots, queue->slots.items[fault->slot].device, fault->reason))
        return true; /* another job on it has said so */
    if (fault->reason)
        log_write_for(LOG_LEVEL_ERROR, "device", slots_device(&queue->slots, fault->slot)->id,
                      "out of service: %s", fault->reason);
    review(queue);
    mailbox_tell_news(queue->mailbox); /* its jobs may run elsewhere now */
    return true;
}

bool queue_stop(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;

    (void)arguments;
    (void)err; /* nothing here can fail */
    queue->stopping = true;
    slots_stop(&queue->slots);
    return true;
}

bool queue_abandon(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct notes notes;
    bool ok = true;

    (void)arguments;
    atomic_store(&queue->abandoned, true);
    notes_init(&notes);
    notes_add(&notes, EVENT_INFO, "state", notes_status(job_state_name(JOB_QUEUED)),
              "The daemon stopped while the job's files were being read; the job is queued again");
    for (size_t i = 0; i < queue->slots.count && ok; i++) {
        const char *job_id = queue->slots.items[i].job_id; /* only this thread writes it */

        if (job_id[0] == '\0')
            continue;
        ok = move(queue, job_id, JOB_RUNNING, JOB_QUEUED, NULL, &notes, err) ||
             err->code == ERR_CONFLICT; /* cancelled meanwhile */
    }
    notes_release(&notes);
    return ok;
}

bool queue_ping(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;

    (void)arguments;
    return store_ping(queue->store, err);
}

/* ---- start and end -------------------------------------------------------------------------------------- */

static bool recover(struct queue *queue, struct error *err)
{
    struct job_record *jobs = NULL;
    struct notes notes;
    size_t count = 0;
    bool ok;

    notes_init(&notes);
    notes_add(&notes, EVENT_WARN, "state", notes_status(job_state_name(JOB_QUEUED)),
              "The daemon ended while the job ran; it is queued again and goes on from its last "
              "checkpoint");
    do {
        ok = jobs_list_state(queue->store, JOB_RUNNING, LOOKED_AT, &jobs, &count, err);
        for (size_t i = 0; ok && i < count; i++)
            ok = move(queue, jobs[i].id, JOB_RUNNING, JOB_QUEUED, NULL, &notes, err);
        free_jobs(jobs, count);
        jobs = NULL;
    } while (ok && count > 0);
    notes_release(&notes);
    return ok;
}

bool queue_open(const struct scheduler_options *options, struct mailbox *mailbox,
                struct queue **ret_queue, struct error *err)
{
    struct queue *queue = calloc(1, sizeof(*queue));

    if (!queue)
        return error_set(err, ERR_NO_MEMORY, "no memory for the queue");
    slots_init(&queue->slots, options->devices, options->jobs_per_device);
    queue->options = options;
    queue->mailbox = mailbox;
    if (!inventory_open(options->devices, options->state_folder, &queue->inventory, err) ||
        !digests_new(&queue->digests, err) ||
        !store_open(options->database_path, false, &queue->store, err) || !recover(queue, err)) {
        queue_close(queue);
        return false;
    }
    review(queue);
    *ret_queue = queue;
    return true;
}

void queue_close(struct queue *queue)
{
    if (!queue)
        return;
    store_close(queue->store);
    digests_free(queue->digests);
    inventory_close(queue->inventory);
    slots_release(&queue->slots);
    free(queue);
}

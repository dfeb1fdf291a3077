#include "daemon/sched/queue.h"

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/events.h"
#include "daemon/sched/placement.h"
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
        log_write_for(LOG_LEVEL_WARN, "job", job->id, "waits: %s", reason);
        notes_add(&notes, EVENT_WARN, "message", NULL, "The job waits: %s", reason);
    }
    ok = jobs_update(queue->store, job->id, &change, notes.drafts, notes.count, err);
    if (ok && notes.count > 0)
        events_feed_publish(queue->options->feed, job->id);
    notes_release(&notes);
    return ok;
}

/* Waiting jobs say why: looked at again whenever something changed. */
static void review(struct queue *queue)
{
    struct job_record *jobs = NULL;
    struct error err = {0};
    size_t count = 0;
    bool ok = jobs_list_state(queue->store, JOB_QUEUED, LOOKED_AT, &jobs, &count, &err);

    for (size_t i = 0; ok && i < count; i++) {
        char reason[sizeof(jobs[i].state_reason)];

        placement_explain(queue, &jobs[i], reason, sizeof(reason));
        if (strcmp(reason, jobs[i].state_reason) != 0)
            ok = keep_reason(queue, &jobs[i], reason, &err);
    }
    if (!ok && strcmp(queue->last_trouble, err.message) != 0) /* said once, not at every look */
        log_write(LOG_LEVEL_WARN, "look at the queue: %s", err.message);
    (void)snprintf(queue->last_trouble, sizeof(queue->last_trouble), "%s", ok ? "" : err.message);
    free_jobs(jobs, count);
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

static void tell_worker(struct queue *queue, const char *job_id)
{
    (void)pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->slot_count; i++) {
        if (strcmp(queue->slots[i].job_id, job_id) != 0)
            continue;
        atomic_store_explicit(&queue->slots[i].cancelled, true, memory_order_release);
        atomic_store_explicit(&queue->slots[i].stop, true, memory_order_release);
    }
    (void)pthread_mutex_unlock(&queue->lock);
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
        tell_worker(queue, job_id);
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

static void occupy(struct queue *queue, struct queue_slot *slot, const char *job_id)
{
    atomic_store_explicit(&slot->cancelled, false, memory_order_relaxed);
    atomic_store_explicit(&slot->stop, false, memory_order_release);
    (void)pthread_mutex_lock(&queue->lock);
    (void)snprintf(slot->job_id, sizeof(slot->job_id), "%s", job_id);
    (void)pthread_mutex_unlock(&queue->lock);
}

static void vacate(struct queue *queue, struct queue_slot *slot)
{
    (void)pthread_mutex_lock(&queue->lock);
    slot->job_id[0] = '\0';
    (void)pthread_mutex_unlock(&queue->lock);
}

static bool start_job(struct queue *queue, const struct job_record *job, struct queue_slot *slot,
                      struct error *err)
{
    struct job_change change = JOB_CHANGE_NONE;
    char fallback[256];
    struct json *data = notes_status(job_state_name(JOB_RUNNING));
    struct notes notes;
    bool ok;

    change.device_used = slot->device->id;
    change.state_reason = "";
    json_add_string(data, "device", slot->device->id);
    notes_init(&notes);
    if (placement_is_fallback(queue, job, slot, fallback, sizeof(fallback)))
        notes_add(&notes, EVENT_WARN, "message", NULL, "The job runs on %s and not on a GPU: %s",
                  slot->device->id, fallback);
    notes_add(&notes, EVENT_INFO, "state", data, "Fine-tuning job started on %s", slot->device->id);
    occupy(queue, slot, job->id);
    ok = move(queue, job->id, JOB_QUEUED, JOB_RUNNING, &change, &notes, err);
    notes_release(&notes);
    if (!ok)
        vacate(queue, slot);
    return ok;
}

bool queue_take(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct queue_claim *claim = arguments;
    struct queue_slot *slot = &queue->slots[claim->slot];
    struct job_record *jobs = NULL;
    size_t count = 0, chosen = 0;
    bool ok = true;

    claim->found = false;
    if (queue->stopping || !placement_in_service(queue, slot))
        return true;
    if (!jobs_list_state(queue->store, JOB_QUEUED, LOOKED_AT, &jobs, &count, err))
        return false;
    while (chosen < count && !placement_takes(queue, &jobs[chosen], slot))
        chosen++;
    if (chosen < count) {
        ok = start_job(queue, &jobs[chosen], slot, err);
        if (ok) {
            claim->job = jobs[chosen];
            jobs[chosen] = (struct job_record){0}; /* its texts are the claim's now */
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
    const struct queue_slot *slot = &queue->slots[outcome->slot];
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
                   slot->device->id, outcome->fault->message);
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
        vacate(queue, &queue->slots[outcome->slot]);
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
    struct queue_slot *slot = &queue->slots[fault->slot];

    (void)err; /* nothing here can fail */
    (void)pthread_mutex_lock(&queue->lock);
    slot->in_service = fault->reason == NULL;
    (void)snprintf(slot->reason, sizeof(slot->reason), "%s", fault->reason ? fault->reason : "");
    (void)pthread_mutex_unlock(&queue->lock);
    if (fault->reason)
        log_write_for(LOG_LEVEL_ERROR, "device", slot->device->id, "out of service: %s",
                      fault->reason);
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
    for (size_t i = 0; i < queue->slot_count; i++)
        atomic_store_explicit(&queue->slots[i].stop, true, memory_order_release);
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
    for (size_t i = 0; i < queue->slot_count && ok; i++) {
        const char *job_id = queue->slots[i].job_id; /* only this thread writes it */

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
    (void)pthread_mutex_init(&queue->lock, NULL); /* cannot fail with default attributes */
    queue->options = options;
    queue->mailbox = mailbox;
    queue->slot_count = options->devices->count;
    for (size_t i = 0; i < queue->slot_count; i++) {
        queue->slots[i].device = &options->devices->items[i];
        queue->slots[i].in_service = true;
    }
    if (!digests_new(&queue->digests, err) ||
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
    (void)pthread_mutex_destroy(&queue->lock); /* nobody holds it */
    free(queue);
}

/* ---- shown ---------------------------------------------------------------------------------------------- */

static struct json *slot_json(struct queue *queue, size_t index)
{
    const struct queue_slot *slot = &queue->slots[index];
    const struct device *device = slot->device;
    struct backend_device now = device->description;
    struct json *object = json_new_object();

    (void)backend_describe(device->kind, device->index, &now); /* else as at the start */
    json_add_string(object, "id", device->id);
    json_add_string(object, "object", "device");
    json_add_string(object, "platform", backend_name(device->kind));
    json_add_string(object, "name", now.name);
    json_add_string(object, "detail", now.library);
    json_add_string(object, "simd_level", device->simd_level[0] ? device->simd_level : NULL);
    json_add_string(object, "simd_warning", device->simd_warning[0] ? device->simd_warning : NULL);
    json_add_int(object, "memory_total_bytes", (int64_t)now.memory_total_bytes);
    json_add_int(object, "memory_free_bytes", (int64_t)now.memory_free_bytes);
    json_add_int(object, "cores", now.core_count);
    json_add_int(object, "threads", device->thread_count);
    (void)pthread_mutex_lock(&queue->lock);
    json_add_bool(object, "in_service", slot->in_service);
    json_add_string(object, "reason", slot->reason[0] ? slot->reason : NULL);
    json_add_string(object, "job", slot->job_id[0] ? slot->job_id : NULL);
    (void)pthread_mutex_unlock(&queue->lock);
    return object;
}

struct json *queue_slots_json(struct queue *queue)
{
    struct json *array = json_new_array();

    for (size_t i = 0; i < queue->slot_count; i++)
        json_add(array, NULL, slot_json(queue, i));
    return array;
}

size_t queue_slots_in_service(struct queue *queue)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->slot_count; i++)
        count += queue->slots[i].in_service;
    (void)pthread_mutex_unlock(&queue->lock);
    return count;
}

#include "daemon/sched/queue.h"

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/changes.h"
#include "daemon/sched/deaths.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/placement.h"
#include "daemon/sched/waiting.h"
#include "daemon/sched/warnings.h"
#include "store/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        changes_tell(queue, job->id);
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
    ok = changes_move(queue, job_id, job.state, JOB_CANCELLED, &change, &notes, err);
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
    waiting_review(queue);
    changes_tell(queue, verdict->job_id);
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
    return changes_fail(owner, verdict->job_id, JOB_VALIDATING_FILES, &change, verdict->fault, err);
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

static bool start_job(struct queue *queue, struct waiting_choice *choice, size_t slot,
                      struct error *err)
{
    struct job_record *job = &choice->job;
    const char *device_id = slots_device(&queue->slots, slot)->id;
    struct job_change change = JOB_CHANGE_NONE;
    char fallback[256];
    struct json *data = notes_status(job_state_name(JOB_RUNNING));
    struct notes notes;
    bool ok = true;

    json_add_string(data, "device", device_id);
    json_add_int(data, "attempt", job->attempt_count + 1);
    notes_init(&notes);
    if (placement_is_fallback(&choice->view, job, queue->slots.items[slot].device, fallback,
                              sizeof(fallback)))
        ok = warn_of_fallback(job, device_id, fallback, &notes, err);
    notes_add(&notes, EVENT_INFO, "state", data, "Fine-tuning job started on %s", device_id);
    change.device_used = device_id;
    change.state_reason = "";
    change.warnings_json = job->warnings_json;
    slots_occupy(&queue->slots, slot, job->id, choice->grant.reserved_bytes,
                 choice->grant.disk_bytes);
    ok = ok && changes_move(queue, job->id, JOB_QUEUED, JOB_RUNNING, &change, &notes, err);
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
    struct waiting_choice choice;
    bool ok = true;

    claim->found = false;
    if (queue->stopping || !slots_use(&queue->slots, device).in_service ||
        !disk_check_home(queue->options->disk, NULL) ||
        !disk_check_service(queue->options->disk, NULL))
        return true;
    if (!waiting_choose(queue, device, &choice, err))
        return false;
    if (choice.found) {
        ok = start_job(queue, &choice, claim->slot, err);
        if (ok) {
            claim->job = choice.job; /* its texts are the claim's now */
            claim->memory_limit_bytes = choice.grant.limit_bytes;
            claim->found = true;
        } else {
            job_record_release(&choice.job);
        }
    }
    if (choice.looked_at > 0)
        waiting_review(queue);
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
    change.result_file = outcome->result_file;
    json_add_string(data, "fine_tuned_model", model->id);
    notes_init(&notes);
    notes_add(&notes, EVENT_INFO, "message", NULL, "New fine-tuned model created: %s", model->id);
    notes_add(&notes, EVENT_INFO, "state", data, "The job has successfully completed");
    notes_add_done(&notes, job_state_name(JOB_SUCCEEDED), model->id);
    ok = changes_move(queue, outcome->job_id, JOB_RUNNING, JOB_SUCCEEDED, &change, &notes, err);
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
    ok = changes_move(queue, outcome->job_id, JOB_RUNNING, JOB_QUEUED, &change, &notes, err);
    notes_release(&notes);
    return ok;
}

static bool end_with_fault(struct queue *queue, const struct queue_outcome *outcome,
                           struct error *err)
{
    const struct error shown = changes_show(queue, outcome->job_id, outcome->fault);
    struct queue_fault fault = {.slot = outcome->slot, .reason = shown.message};
    struct job_change change = JOB_CHANGE_NONE;
    struct job_record job = {0};
    char why[sizeof(err->message)];

    if (!queue_set_service(queue, &fault, err) ||
        !jobs_get(queue->store, outcome->job_id, &job, err))
        return false;
    job_record_release(&job);
    change.device_fault = true;
    if (job.fault_count + 1 >= QUEUE_FAULTS_MAX)
        return changes_fail(queue, outcome->job_id, JOB_RUNNING, &change, outcome->fault, err);
    (void)snprintf(why, sizeof(why), "Device %s failed and is out of service (%.300s)",
                   slots_device(&queue->slots, outcome->slot)->id, shown.message);
    return requeue(queue, outcome, why, err);
}

/* What is said of it: in an event, in the job's record, and of when the job goes on. */
static const char *const *disk_words(const struct error *fault)
{
    static const char *const full[] = {"The disk is full", "disk full", "it takes writes"};
    static const char *const gone[] = {"The disk is gone", "disk gone", "it takes writes"};
    static const char *const fails[] = {"The disk fails", "disk failing", "it takes writes"};
    static const char *const files[] = {"No more files can be opened", "open-file limit",
                                        "some can"};

    return strcmp(fault->word, ERROR_DISK_FULL) == 0    ? full
           : strcmp(fault->word, ERROR_STATE_GONE) == 0 ? gone
           : error_is_open_files(fault)                 ? files
                                                        : fails;
}

/* A full disk is waited for, however often, and so is one that is gone, and files that can be opened. One that refuses the same job's
 * writes again and again has something wrong where its files lie. */
static bool end_with_disk_fault(struct queue *queue, const struct queue_outcome *outcome,
                                struct error *err)
{
    const struct error shown = changes_show(queue, outcome->job_id, outcome->fault);
    const bool refuses = strcmp(outcome->fault->word, ERROR_DISK_FAULT) == 0;
    const char *const *words = disk_words(outcome->fault);
    struct job_change change = JOB_CHANGE_NONE;
    struct job_record job = {0};
    struct notes notes;
    char reason[sizeof(job.state_reason)];
    bool ok;

    if (!jobs_get(queue->store, outcome->job_id, &job, err))
        return false;
    job_record_release(&job);
    change.device_fault = refuses;
    if (refuses && job.fault_count + 1 >= QUEUE_FAULTS_MAX)
        return changes_fail(queue, outcome->job_id, JOB_RUNNING, &change, outcome->fault, err);
    (void)snprintf(reason, sizeof(reason), "%s: %.200s", words[1], shown.message);
    change.state_reason = reason;
    notes_init(&notes);
    notes_add(&notes, EVENT_WARN, "state", notes_status(job_state_name(JOB_QUEUED)),
              "%s (%.300s); the job is queued again and goes on from its last checkpoint when %s",
              words[0], shown.message, words[2]);
    ok = changes_move(queue, outcome->job_id, JOB_RUNNING, JOB_QUEUED, &change, &notes, err);
    notes_release(&notes);
    return ok;
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
        ok = changes_fail(queue, outcome->job_id, JOB_RUNNING, &change, outcome->fault, err);
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
    case OUTCOME_DISK_FAULT:
        ok = end_with_disk_fault(queue, outcome, err);
        break;
    }
    /* A cancel that came first has set the state and said the last word. */
    outcome->kept = ok;
    if (!ok && (outcome->kind == OUTCOME_CANCELLED || err->code == ERR_CONFLICT))
        ok = true;
    if (ok) { /* else the worker tries again: the device stays taken */
        slots_vacate(&queue->slots, outcome->slot);
        mailbox_tell_news(queue->mailbox);
        waiting_review(queue);
    }
    return ok;
}

/* ---- service ------------------------------------------------------------------------------------------ */

bool queue_set_service(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const struct queue_fault *fault = arguments;

    (void)err; /* nothing here can fail */
    if (queue->stopping && fault->is_passing)
        return true; /* the stop itself may be what broke off the check */
    if (!slots_set_service(&queue->slots, queue->slots.items[fault->slot].device, fault->reason))
        return true; /* another job on it has said so */
    if (fault->reason)
        log_write_for(LOG_LEVEL_ERROR, "device", slots_device(&queue->slots, fault->slot)->id,
                      "out of service: %s", fault->reason);
    waiting_review(queue);
    mailbox_tell_news(queue->mailbox); /* its jobs may run elsewhere now */
    return true;
}

bool queue_stop(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;

    (void)arguments;
    queue->stopping = true;
    slots_stop(&queue->slots);
    return attempts_end_reading(queue->store, err); /* who still reads is no dead */
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
        ok = changes_move(queue, job_id, JOB_RUNNING, JOB_QUEUED, NULL, &notes, err) ||
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
        !store_open(options->database_path, false, &queue->store, err) ||
        !deaths_recover(queue, err)) {
        queue_close(queue);
        return false;
    }
    waiting_review(queue);
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

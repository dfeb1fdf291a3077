#include "daemon/sched/waiting.h"

#include "daemon/base/log.h"
#include "daemon/sched/changes.h"
#include "daemon/sched/deaths.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/events.h"

#include <stdio.h>
#include <string.h>

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

/* Both ran when the daemon died: one at a time shows which of them it was. */
static bool is_kept_apart(const struct queue *queue, const struct deaths_suspects *suspects,
                          const char *job_id, char *ret_reason, size_t capacity)
{
    const char *other = deaths_waits_for(queue, suspects, job_id);

    if (!other)
        return false;
    (void)snprintf(ret_reason, capacity,
                   "waits for job %s to get on: both ran when the daemon died, and are not run "
                   "together again",
                   other);
    return true;
}

static bool review_job(struct queue *queue, const struct placement_view *view,
                       const struct deaths_suspects *suspects, const struct job_record *job,
                       struct error *err)
{
    struct job_change none = JOB_CHANGE_NONE;
    struct error fault = {0};
    char reason[sizeof(job->state_reason)];

    if (!placement_is_possible(view, job, &fault))
        return changes_fail(queue, job->id, JOB_QUEUED, &none, &fault, err);
    if (!is_kept_apart(queue, suspects, job->id, reason, sizeof(reason)))
        placement_explain(view, job, reason, sizeof(reason));
    return strcmp(reason, job->state_reason) == 0 || keep_reason(queue, job, reason, err);
}

/* Waiting jobs say why, and those that can never run end: looked at again whenever something
 * changed. */
void waiting_review(struct queue *queue)
{
    const struct job_place first = JOB_PLACE_FIRST;
    struct deaths_suspects suspects;
    struct placement_view view;
    struct job_record *jobs = NULL;
    struct error err = {0};
    size_t count = 0;
    bool ok =
        deaths_find_suspects(queue, &suspects, &err) &&
        jobs_list_state(queue->store, JOB_QUEUED, &first, WAITING_LOOKED_AT, &jobs, &count, &err);

    if (ok && count > 0)
        placement_look(queue, &view);
    for (size_t i = 0; ok && i < count; i++)
        ok = review_job(queue, &view, &suspects, &jobs[i], &err);
    deaths_release(&suspects);
    (void)disk_report(queue->options->disk, &err);            /* looked at again in a while */
    if (!ok && strcmp(queue->last_trouble, err.message) != 0) /* said once, not at every look */
        log_write(LOG_LEVEL_WARN, "look at the queue: %s", err.message);
    (void)snprintf(queue->last_trouble, sizeof(queue->last_trouble), "%s", ok ? "" : err.message);
    jobs_free(jobs, count);
}

/* ---- who is next -------------------------------------------------------------------------------------- */

/* Paused and resumed in haste, a job may not have left its worker yet, which writes its checkpoint. */
static bool is_leaving(const struct slots *slots, const char *job_id)
{
    for (size_t i = 0; i < slots->count; i++) {
        if (strcmp(slots->items[i].job_id, job_id) == 0) /* only this thread writes it */
            return true;
    }
    return false;
}

/* One page of the line; what was chosen is moved out of it. */
static void choose_from(const struct queue *queue, const struct deaths_suspects *suspects,
                        struct job_record *jobs, size_t count, size_t device,
                        struct waiting_choice *choice)
{
    for (size_t i = 0; i < count && !choice->found; i++) {
        if (is_leaving(&queue->slots, jobs[i].id) ||
            deaths_waits_for(queue, suspects, jobs[i].id) ||
            !placement_takes(&choice->view, &jobs[i], device, &choice->grant))
            continue;
        choice->job = jobs[i];
        jobs[i] = (struct job_record){0}; /* its texts are the choice's now */
        choice->found = true;
    }
    choice->looked_at += count;
}

bool waiting_choose(struct queue *queue, size_t device, struct waiting_choice *ret_choice,
                    struct error *err)
{
    struct job_place last = JOB_PLACE_FIRST;
    struct deaths_suspects suspects;
    struct job_record *jobs = NULL;
    size_t count = 0;
    bool ok = true;

    ret_choice->found = false;
    ret_choice->looked_at = 0;
    if (!deaths_find_suspects(queue, &suspects, err))
        return false;
    do {
        ok =
            jobs_list_state(queue->store, JOB_QUEUED, &last, WAITING_LOOKED_AT, &jobs, &count, err);
        if (!ok)
            break;
        if (count > 0) {
            last = jobs[count - 1].place;
            if (ret_choice->looked_at == 0)
                placement_look(queue, &ret_choice->view);
            choose_from(queue, &suspects, jobs, count, device, ret_choice);
        }
        jobs_free(jobs, count);
    } while (count == WAITING_LOOKED_AT && !ret_choice->found);
    deaths_release(&suspects);
    return ok;
}

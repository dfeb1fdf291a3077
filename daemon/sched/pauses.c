#include "daemon/sched/pauses.h"

#include "daemon/sched/changes.h"
#include "daemon/sched/queue.h"
#include "daemon/sched/waiting.h"

static bool read_state(struct queue *queue, const char *job_id, enum job_state *ret_state,
                       struct error *err)
{
    struct job_record job = {0};

    if (!jobs_get(queue->store, job_id, &job, err))
        return false;
    *ret_state = job.state;
    job_record_release(&job);
    return true;
}

static bool refuse(const char *job_id, enum job_state state, const char *what, struct error *err)
{
    if (state == JOB_VALIDATING_FILES)
        return error_set(err, ERR_CONFLICT,
                         "the files of job '%.48s' are being read: it can be %s once it is queued",
                         job_id, what);
    return error_set(err, ERR_CONFLICT, "job '%.48s' has ended, it is %s: it cannot be %s", job_id,
                     job_state_name(state), what);
}

static bool change_state(struct queue *queue, const char *job_id, enum job_state from,
                         enum job_state to, const char *message, struct error *err)
{
    struct job_change change = JOB_CHANGE_NONE;
    struct notes notes;
    bool ok;

    change.state_reason = "";
    notes_init(&notes);
    notes_add(&notes, EVENT_INFO, "state", notes_status(job_state_name(to)), "%s", message);
    ok = changes_move(queue, job_id, from, to, &change, &notes, err);
    notes_release(&notes);
    return ok;
}

bool pauses_pause(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const char *job_id = arguments;
    enum job_state state = JOB_PAUSED;

    if (!read_state(queue, job_id, &state, err))
        return false;
    if (state == JOB_PAUSED)
        return true;
    if (state != JOB_QUEUED && state != JOB_RUNNING)
        return refuse(job_id, state, "paused", err);
    if (!change_state(queue, job_id, state, JOB_PAUSED,
                      "The job was paused; resumed, it goes on after its last whole step", err))
        return false;
    slots_pause(&queue->slots, job_id);
    waiting_review(queue);
    return true;
}

bool pauses_resume(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const char *job_id = arguments;
    enum job_state state = JOB_PAUSED;

    if (!read_state(queue, job_id, &state, err))
        return false;
    if (job_state_is_final(state))
        return refuse(job_id, state, "resumed", err);
    if (state != JOB_PAUSED)
        return true;
    if (!change_state(queue, job_id, JOB_PAUSED, JOB_QUEUED, "The job was resumed; it is queued",
                      err))
        return false;
    waiting_review(queue);
    return true;
}

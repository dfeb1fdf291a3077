#include "daemon/sched/changes.h"

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/events.h"
#include "daemon/sched/queue.h"

#include <stdio.h>
#include <string.h>

void changes_tell(struct queue *queue, const char *job_id)
{
    events_feed_publish(queue->options->feed, job_id);
    mailbox_tell_news(queue->mailbox);
}

bool changes_move(struct queue *queue, const char *job_id, enum job_state from, enum job_state to,
                  const struct job_change *change, const struct notes *notes, struct error *err)
{
    if (notes->failed)
        return error_set(err, ERR_NO_MEMORY, "no memory for the events of job '%s'", job_id);
    if (!jobs_move(queue->store, job_id, from, to, change, notes->drafts, notes->count, err))
        return false;
    log_write_for(LOG_LEVEL_INFO, "job", job_id, "%s -> %s", job_state_name(from),
                  job_state_name(to));
    changes_tell(queue, job_id);
    return true;
}

static struct json *failure_data(const char *code, const struct error *fault, const char *lines)
{
    struct json *data = notes_status(job_state_name(JOB_FAILED));
    struct json *object = json_new_object();

    json_add_string(object, "code", code);
    json_add_string(object, "message", fault->message);
    json_add_string(object, "param", fault->param[0] ? fault->param : NULL);
    if (lines)
        json_add(object, "lines", json_parse_or(lines, json_new_array));
    json_add(data, "error", object);
    return data;
}

/* Its word, "invalid_training_file", else the error's kind. */
static void name_failure(const struct error *fault, char *ret_code, size_t capacity)
{
    if (fault->word[0])
        (void)snprintf(ret_code, capacity, "%s", fault->word);
    else if (fault->code == ERR_INVALID && fault->param[0])
        (void)snprintf(ret_code, capacity, "invalid_%s", fault->param);
    else
        (void)snprintf(ret_code, capacity, "%s", error_code_name(fault->code));
}

struct error changes_show(const struct queue *queue, const char *job_id, const struct error *fault)
{
    struct error shown = *fault;

    error_hide_folder(&shown, queue->options->state_folder, "");
    error_hide_folder(&shown, queue->options->models_folder, "models/");
    if (strcmp(shown.message, fault->message) != 0)
        log_write_for(LOG_LEVEL_WARN, "job", job_id, "%s", fault->message);
    return shown;
}

bool changes_fail(struct queue *queue, const char *job_id, enum job_state from,
                  const struct job_change *given, const struct error *given_fault,
                  struct error *err)
{
    const struct error shown = changes_show(queue, job_id, given_fault), *fault = &shown;
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
    ok = changes_move(queue, job_id, from, JOB_FAILED, &change, &notes, err);
    notes_release(&notes);
    return ok;
}

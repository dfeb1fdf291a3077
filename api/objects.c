#include "api/objects.h"

#include "daemon/base/json.h"
#include "daemon/sched/scheduler.h"
#include "store/checkpoints.h"
#include "store/events.h"
#include "store/files.h"
#include "store/jobs.h"
#include "store/models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_text(struct json *object, const char *name, const char *text)
{
    json_add_string(object, name, text[0] ? text : NULL);
}

static void add_time(struct json *object, const char *name, int64_t unix_s)
{
    if (unix_s > 0)
        json_add_int(object, name, unix_s);
    else
        json_add_null(object, name);
}

static void add_number(struct json *object, const char *name, double number)
{
    if (isfinite(number))
        json_add_double(object, name, number);
}

struct json *objects_file(const struct file_record *file)
{
    struct json *object = json_new_object();

    json_add_string(object, "id", file->id);
    json_add_string(object, "object", "file");
    json_add_int(object, "bytes", file->size_bytes);
    json_add_int(object, "created_at", file->created_unix_s);
    add_time(object, "expires_at", file->expires_unix_s);
    json_add_string(object, "filename", file->filename);
    json_add_string(object, "purpose", file->purpose);
    json_add_string(object, "status", "processed");
    json_add_null(object, "status_details");
    json_add_string(object, "sha256", file->sha256);
    json_add_int(object, "line_count", file->line_count);
    json_add_int(object, "example_count", file->example_count);
    return object;
}

/* ---- names --------------------------------------------------------------------------------------- */

#define TAIL_CHARACTERS 8 /* of a job's id, at the end of its model's */

/* What people call a job and its model, and files are named after: the suffix, else the base and the end
 * of the id. */
static void name_it(const char *suffix, const char *base, const char *id, char *ret_name,
                    size_t capacity)
{
    const size_t length = strlen(id);
    const char *tail = id + (length > TAIL_CHARACTERS ? length - TAIL_CHARACTERS : 0);

    if (suffix[0])
        (void)snprintf(ret_name, capacity, "%s", suffix);
    else
        (void)snprintf(ret_name, capacity, "%s-%s", base, tail);
}

/* The suffix in "ft:<base>:<org>:<suffix>:...", "" none. */
static void find_suffix(const char *model_id, char *ret_suffix, size_t capacity)
{
    const char *at = model_id;

    ret_suffix[0] = '\0';
    for (int colons = 0; colons < 3; colons++) {
        at = strchr(at, ':');
        if (!at)
            return;
        at++;
    }
    (void)snprintf(ret_suffix, capacity, "%.*s", (int)strcspn(at, ":"), at);
}

struct json *objects_model(const struct model_record *model, int64_t depth)
{
    struct json *object = json_new_object();
    char suffix[STORE_NAME_SIZE], name[2 * STORE_NAME_SIZE], step[32] = "";

    find_suffix(model->id, suffix, sizeof(suffix));
    name_it(suffix, model->base_model, model->job_id, name, sizeof(name));
    if (model->step > 0) {
        (void)snprintf(step, sizeof(step), "-step-%lld", (long long)model->step);
        strncat(name, step, sizeof(name) - strlen(name) - 1);
    }
    json_add_string(object, "id", model->id);
    json_add_string(object, "object", "model");
    json_add_int(object, "created", model->created_unix_s);
    json_add_string(object, "owned_by", "user");
    json_add_string(object, "name", name);
    add_time(object, "depth", depth);
    json_add(object, "variants", json_new_array());
    json_add_string(object, "base_model", model->base_model);
    add_text(object, "parent_model", model->parent_model);
    json_add_string(object, "fine_tuning_job_id", model->job_id);
    json_add_int(object, "bytes", model->size_bytes);
    json_add_string(object, "sha256", model->sha256);
    add_text(object, "created_by", model->owner);
    json_add_string(object, "device", model->device);
    json_add_string(object, "numerics", model->numerics);
    if (model->step > 0)
        json_add_int(object, "step_number", model->step);
    json_add_double(object, "valid_loss", model->valid_loss); /* NAN: null */
    return object;
}

/* ---- jobs ---------------------------------------------------------------------------------------- */

/* n_epochs, batch_size and learning_rate_multiplier are always there: clients read them. */
static struct json *hyperparameters(const struct job_record *job)
{
    static const char *const required[] = {"n_epochs", "batch_size", "learning_rate_multiplier"};
    struct json *object = json_parse_or(job->hyperparameters_json, json_new_object);

    for (size_t i = 0; object && i < COUNT_OF(required); i++) {
        if (!json_member(object, required[i]))
            json_add_null(object, required[i]);
    }
    return object;
}

static struct json *method(const struct job_record *job)
{
    struct json *object = json_new_object(), *supervised = json_new_object();

    json_add(supervised, "hyperparameters", hyperparameters(job));
    json_add_string(object, "type", "supervised");
    json_add(object, "supervised", supervised);
    return object;
}

static struct json *job_error(const struct job_record *job)
{
    struct json *object;

    if (job->state != JOB_FAILED)
        return json_new_null();
    object = json_new_object();
    json_add_string(object, "code", job->error_code[0] ? job->error_code : "failed");
    json_add_string(object, "message", job->error_message);
    add_text(object, "param", job->error_param);
    if (job->error_lines_json && job->error_lines_json[0])
        json_add(object, "lines", json_parse_or(job->error_lines_json, json_new_array));
    return object;
}

/* The list in one field, whichever shape the create had. */
static void add_files(struct json *object, const struct json *inputs, const char *name,
                      const char *first)
{
    const struct json *list = inputs ? json_member(inputs, name) : NULL;
    struct json *ids = list ? json_copy(list) : json_new_array();

    if (!list && first[0])
        json_add_string(ids, NULL, first);
    json_add(object, name, ids);
}

/* What Needle's platform has and OpenAI's API has not. */
static void add_platform_fields(struct json *object, const struct job_record *job)
{
    struct json *inputs = json_parse_or(job->inputs_json, json_new_null);
    char name[2 * STORE_NAME_SIZE];

    name_it(job->suffix, job->base_model, job->id, name, sizeof(name));
    json_add_string(object, "name", name);
    if (!inputs)
        json_add(object, "training_files", NULL); /* no memory: there is no answer */
    add_files(object, inputs, "training_files", job->training_file);
    add_files(object, inputs, "validation_files", job->validation_file);
    add_files(object, inputs, "test_files", "");
    add_time(object, "max_depth", job->max_depth);
    json_add(object, "evaluations", json_new_array()); /* calls are not scored yet */
    json_free(inputs);
}

/* What neither hosted API has. */
static void add_own_fields(struct json *object, const struct job_record *job)
{
    json_add_string(object, "base_model", job->base_model);
    add_text(object, "parent_model", job->parent_model);
    add_text(object, "created_by", job->owner);
    json_add_string(object, "device", job->device_wanted);
    add_text(object, "device_used", job->device_used);
    json_add_string(object, "numerics", job->numerics);
    json_add_int(object, "total_steps", job->total_steps);
    json_add_int(object, "completed_steps", job->completed_steps);
    json_add_double(object, "train_loss", job->last_train_loss); /* NAN: null */
    add_time(object, "started_at", job->started_unix_s);
    add_text(object, "status_reason", job->state_reason);
    json_add_int(object, "attempts", job->attempt_count);
    json_add(object, "plan", json_parse_or(job->plan_json, json_new_null));
    json_add(object, "warnings", json_parse_or(job->warnings_json, json_new_array));
}

/* What the job would go on from now: null before the first one, and when it has ended. */
static void add_resume_checkpoint(struct json *object, const struct job_outlook *outlook)
{
    struct json *kept = outlook->kept_unix_s > 0 ? json_new_object() : json_new_null();

    if (outlook->kept_unix_s > 0) {
        json_add_int(kept, "step", outlook->kept_step);
        json_add_int(kept, "created_at", outlook->kept_unix_s);
        json_add_int(kept, "bytes", outlook->kept_bytes);
    }
    json_add(object, "resume_checkpoint", kept);
}

/* queue_position is null for a job that does not wait. */
static void add_place(struct json *object, const struct job_record *job,
                      const struct job_outlook *outlook)
{
    json_add_int(object, "priority", job->place.priority);
    add_time(object, "queue_position", outlook->queue_position);
    add_time(object, "estimated_start", outlook->start_unix_s);
    add_text(object, "sweep_id", job->sweep_id);
}

struct json *objects_job(const struct job_record *job, const struct job_outlook *outlook)
{
    struct json *object = json_new_object();

    json_add_string(object, "id", job->id);
    json_add_string(object, "object", "fine_tuning.job");
    json_add_int(object, "created_at", job->created_unix_s);
    add_time(object, "finished_at", job->finished_unix_s);
    json_add_string(object, "model", job->parent_model[0] ? job->parent_model : job->base_model);
    add_text(object, "fine_tuned_model", job->fine_tuned_model);
    json_add_string(object, "organization_id", "org-local");
    json_add_string(object, "status", job_state_name(job->state));
    json_add(object, "hyperparameters", hyperparameters(job));
    json_add(object, "method", method(job));
    json_add_string(object, "training_file", job->training_file);
    add_text(object, "validation_file", job->validation_file);
    add_files(object, NULL, "result_files", job->result_file);
    if (job_state_is_final(job->state))
        json_add_int(object, "trained_tokens", job->trained_tokens);
    else
        json_add_null(object, "trained_tokens");
    json_add(object, "error", job_error(job));
    json_add_int(object, "seed", job->seed);
    add_time(object, "estimated_finish", outlook->finish_unix_s);
    json_add(object, "integrations", json_new_array());
    json_add(object, "metadata", json_parse_or(job->metadata_json, json_new_null));
    add_text(object, "user_provided_suffix", job->suffix);
    add_place(object, job, outlook);
    add_resume_checkpoint(object, outlook);
    add_platform_fields(object, job);
    add_own_fields(object, job);
    return object;
}

struct json *objects_event(const struct event_record *event)
{
    struct json *object = json_new_object();
    char id[40];

    (void)snprintf(id, sizeof(id), "ftevent-%lld", (long long)event->row); /* always fits */
    json_add_string(object, "id", id);
    json_add_string(object, "object", "fine_tuning.job.event");
    json_add_int(object, "created_at", event->created_unix_s);
    json_add_string(object, "level", event_level_name(event->level));
    json_add_string(object, "message", event->message ? event->message : "");
    json_add_string(object, "type", event->type);
    json_add(object, "data", json_parse_or(event->data_json, json_new_null));
    json_add_string(object, "fine_tuning_job_id", event->job_id);
    json_add_int(object, "number", event->number);
    return object;
}

struct json *objects_checkpoint(const struct checkpoint_record *checkpoint)
{
    struct json *object = json_new_object(), *metrics = json_new_object();

    json_add_int(metrics, "step", checkpoint->step);
    add_number(metrics, "train_loss", checkpoint->train_loss);
    add_number(metrics, "train_mean_token_accuracy", checkpoint->train_accuracy);
    add_number(metrics, "full_valid_loss", checkpoint->valid_loss);
    add_number(metrics, "full_valid_mean_token_accuracy", checkpoint->valid_accuracy);
    json_add_string(object, "id", checkpoint->id);
    json_add_string(object, "object", "fine_tuning.job.checkpoint");
    json_add_int(object, "created_at", checkpoint->created_unix_s);
    json_add_string(object, "fine_tuned_model_checkpoint", checkpoint->model_id);
    json_add_string(object, "fine_tuning_job_id", checkpoint->job_id);
    json_add_int(object, "step_number", checkpoint->step);
    json_add_bool(object, "available", checkpoint->available);
    json_add(object, "metrics", metrics);
    return object;
}

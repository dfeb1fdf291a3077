#include "daemon/sched/submission.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/devices.h"
#include "daemon/sched/queue.h"
#include "daemon/sched/request.h"
#include "store/checkpoints.h"
#include "store/files.h"
#include "store/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_ID_DIGITS 24
#define KEY_CHARACTERS 255
#define CHECKPOINT_PREFIX "ftckpt_"

/* ---- files -------------------------------------------------------------------------------------- */

static bool check_file(struct store *store, const char *id, const char *param, struct error *err)
{
    struct file_record file;
    struct error own = {0};

    if (!files_get(store, id, &file, &own)) {
        if (own.code == ERR_NOT_FOUND)
            return error_set_param(err, ERR_INVALID, param, "there is no file '%.64s'", id);
        if (err)
            *err = own;
        return false;
    }
    if (strcmp(file.purpose, "fine-tune") != 0)
        return error_set_param(err, ERR_INVALID, param,
                               "file '%.64s' has the purpose '%s', 'fine-tune' is needed", id,
                               file.purpose);
    return true;
}

static bool check_list(struct store *store, const struct request_files *files, const char *param,
                       struct error *err)
{
    for (size_t i = 0; i < files->count; i++) {
        if (!check_file(store, files->ids[i], param, err))
            return false;
    }
    return true;
}

static bool check_files(struct store *store, const struct request *request, struct error *err)
{
    const char *training = request->is_platform ? "training_files" : "training_file";

    if (!request->training_file)
        return error_set_param(err, ERR_INVALID, training, "field '%s' is missing%s", training,
                               request->is_platform ? " or has no file" : "");
    if (request->is_platform)
        return check_list(store, &request->training, training, err) &&
               check_list(store, &request->validation, "validation_files", err) &&
               check_list(store, &request->test, "test_files", err);
    return check_file(store, request->training_file, training, err) &&
           (!request->validation_file ||
            check_file(store, request->validation_file, "validation_file", err));
}

/* ---- the model ---------------------------------------------------------------------------------- */

/* A model made here, by its own id or its checkpoint's; *ret_found false: it is none of them. */
static bool find_parent(struct store *store, const char *name, struct model_record *ret_parent,
                        bool *ret_found, struct error *err)
{
    char id[STORE_NAME_SIZE];
    struct error own = {0};

    (void)snprintf(id, sizeof(id), "%s", name);
    if (strncmp(name, CHECKPOINT_PREFIX, strlen(CHECKPOINT_PREFIX)) == 0 &&
        !checkpoints_get_model(store, name, id, &own) && own.code != ERR_NOT_FOUND)
        goto fail;
    *ret_found = strcmp(id, name) == 0 ? strlen(name) < sizeof(id) : true;
    if (*ret_found && !models_get(store, id, ret_parent, &own)) {
        if (own.code != ERR_NOT_FOUND)
            goto fail;
        *ret_found = false;
    }
    return true;
fail:
    if (err)
        *err = own;
    return false;
}

/* Names that only models made here have: such a one that is not there is no base either. */
static bool is_of_ours(const char *name)
{
    return strncmp(name, "ft:", 3) == 0 ||
           strncmp(name, CHECKPOINT_PREFIX, strlen(CHECKPOINT_PREFIX)) == 0;
}

static bool settle_parent(const struct scheduler_options *options,
                          const struct model_record *parent, struct request *request,
                          struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    size_t rank = 0;
    double alpha = 0;

    if (artifact_path(path, sizeof(path), options->state_folder, parent->artifact, err) &&
        model_inspect_adapter(path, &rank, &alpha, err))
        return request_fit_adapter(request, rank, alpha, err);
    if (err)
        (void)snprintf(err->param, sizeof(err->param), "model");
    return false;
}

/* The base and the job's depth; with the earlier model whose adapter is the start, "" none. */
static bool check_model(const struct scheduler_options *options, struct store *store,
                        struct request *request, struct job_record *job, struct error *err)
{
    struct model_record parent = {0};
    struct model_info info;
    bool found = false;

    if (!request->model)
        return error_set_param(err, ERR_INVALID, "model", "field 'model' is missing");
    if (!find_parent(store, request->model, &parent, &found, err))
        return false;
    if (!found && is_of_ours(request->model))
        return error_set_param(err, ERR_NOT_FOUND, "model", "there is no model '%.200s'",
                               request->model);
    (void)snprintf(job->base_model, sizeof(job->base_model), "%s",
                   found ? parent.base_model : request->model);
    (void)snprintf(job->parent_model, sizeof(job->parent_model), "%s", found ? parent.id : "");
    if (!bases_inspect(options->models_folder, found ? parent.base_model : request->model, &info,
                       err) ||
        !request_fit_base(request, &info, err) ||
        (found && !settle_parent(options, &parent, request, err)))
        return false;
    job->max_depth = request->max_depth ? request->max_depth : (int64_t)info.layer_count;
    return true;
}

/* ---- the record --------------------------------------------------------------------------------- */

static bool print_texts(const struct request *request, struct job_record *job, struct error *err)
{
    struct json *hyper = request_hyper_json(&request->hyper);
    struct json *inputs = request_inputs_json(request);
    const bool ok =
        json_print_text(hyper, &job->hyperparameters_json, err) &&
        (!request->is_platform || json_print_text(inputs, &job->inputs_json, err)) &&
        (!request->metadata || json_print_text(request->metadata, &job->metadata_json, err));

    json_free(hyper);
    json_free(inputs);
    return ok;
}

static bool fill_record(const struct request *request, struct job_record *job, struct error *err)
{
    job->state = JOB_VALIDATING_FILES;
    job->seed = request->seed;
    job->place.priority = request->priority;
    job->created_unix_s = clock_unix_s();
    (void)snprintf(job->training_file, sizeof(job->training_file), "%s", request->training_file);
    (void)snprintf(job->validation_file, sizeof(job->validation_file), "%s",
                   request->validation_file ? request->validation_file : "");
    (void)snprintf(job->suffix, sizeof(job->suffix), "%s", request->suffix);
    (void)snprintf(job->device_wanted, sizeof(job->device_wanted), "%s", request->device);
    (void)snprintf(job->numerics, sizeof(job->numerics), "%s",
                   request_numerics_name(request->hyper.numerics));
    if (file_random_id(job->id, sizeof(job->id), "ftjob-", JOB_ID_DIGITS, err) &&
        print_texts(request, job, err))
        return true;
    job_record_release(job);
    return false;
}

bool submission_read(const struct scheduler_options *options, struct store *store,
                     const struct json *body, struct job_record *ret_job, struct error *err)
{
    struct error own = {0}; /* the checks look into it */
    struct request *read = calloc(1, sizeof(*read));
    bool ok;

    if (!read)
        return error_set(err, ERR_NO_MEMORY, "no memory for a job");
    ok = request_read(body, read, &own) && check_files(store, read, &own) &&
         check_model(options, store, read, ret_job, &own) &&
         devices_check_wanted(options->devices, read->device, &own) &&
         fill_record(read, ret_job, &own);
    free(read);
    if (!ok && err)
        *err = own;
    return ok;
}

/* ---- made once ---------------------------------------------------------------------------------- */

static bool take_key(const char *key, struct job_record *job, struct error *err)
{
    const size_t length = strlen(key);

    for (size_t i = 0; i < length; i++) {
        if (key[i] < ' ' || key[i] > '~')
            return error_set_param(
                err, ERR_INVALID, "Idempotency-Key",
                "the Idempotency-Key has a character that is not printable ASCII");
    }
    if (length < 1 || length > KEY_CHARACTERS)
        return error_set_param(err, ERR_INVALID, "Idempotency-Key",
                               "the Idempotency-Key has %zu characters, 1 to %d are needed", length,
                               KEY_CHARACTERS);
    (void)snprintf(job->idempotency_key, sizeof(job->idempotency_key), "%s/%s", job->owner, key);
    return true;
}

bool submission_begin(const struct json *body, const struct job_terms *terms,
                      struct submission *ret_submission, struct error *err)
{
    struct submission submission = {.jobs_max = terms->jobs_max, .repeat_since_unix_s = INT64_MAX};
    struct job_record *job = &submission.job;
    char *text = NULL;

    (void)snprintf(job->owner, sizeof(job->owner), "%s", terms->owner ? terms->owner : "");
    if ((terms->idempotency_key && !take_key(terms->idempotency_key, job, err)) ||
        !json_print_text(body, &text, err))
        return false;
    file_sha256_of(text, strlen(text), job->request_sha256);
    free(text);
    if (terms->asked_before)
        submission.repeat_since_unix_s = clock_unix_s() - SUBMISSION_REPEAT_S;
    *ret_submission = submission;
    return true;
}

bool submission_find_repeat(struct store *store, struct submission *submission, struct error *err)
{
    return jobs_find_repeat(store, &submission->job, submission->repeat_since_unix_s,
                            submission->repeated_id, err);
}

/* On the one thread that makes jobs, so that of two equal creates at once the second sees the first. */
bool submission_keep(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct submission *submission = arguments;

    if (!submission_find_repeat(queue->store, submission, err))
        return false;
    return submission->repeated_id[0] ||
           (jobs_check_room(queue->store, submission->job.owner, submission->jobs_max, 1, err) &&
            queue_submit(queue, &submission->job, err));
}

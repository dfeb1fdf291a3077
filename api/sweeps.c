#include "api/handlers.h"
#include "api/page.h"
#include "api/request.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/scheduler.h"
#include "store/checkpoints.h"
#include "store/sweeps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SWEEPS_DEFAULT 20
#define SWEEPS_MAX 100 /* each with up to LIMIT_SWEEP_JOBS jobs */

/* ---- comparing ---------------------------------------------------------------------------------------- */

/* The jobs of a sweep and what each has come to. */
struct comparison {
    struct job_record *jobs;
    struct checkpoint_record
        results[LIMIT_SWEEP_JOBS]; /* the newest of each; NAN where there is none */
    size_t count;
    const char *best_by; /* a field of the answer, or NULL */
    size_t best;
};

static bool read_result(struct store *store, const char *job_id,
                        struct checkpoint_record *ret_result, struct error *err)
{
    const struct store_page newest = {.after = "", .limit = 1};
    struct checkpoint_record *checkpoints = NULL;
    size_t count = 0;
    bool has_more;

    *ret_result = (struct checkpoint_record){.train_loss = (double)NAN,
                                             .train_accuracy = (double)NAN,
                                             .valid_loss = (double)NAN,
                                             .valid_accuracy = (double)NAN};
    if (!checkpoints_list(store, job_id, &newest, &checkpoints, &count, &has_more, err))
        return false;
    if (count > 0)
        *ret_result = checkpoints[0];
    free(checkpoints);
    return true;
}

/* Of the jobs that succeeded the one with the lowest validation loss after its last epoch; if none was
 * validated, with the lowest training loss of its last step; the first of equal ones. */
static void find_best(struct comparison *comparison)
{
    double lowest = (double)INFINITY;

    for (int validated = 1; validated >= 0 && !comparison->best_by; validated--) {
        for (size_t i = 0; i < comparison->count; i++) {
            const struct job_record *job = &comparison->jobs[i];
            const double loss =
                validated ? comparison->results[i].valid_loss : job->last_train_loss;

            if (job->state != JOB_SUCCEEDED || !(loss < lowest)) /* NAN is not below */
                continue;
            lowest = loss;
            comparison->best = i;
            comparison->best_by = validated ? "full_valid_loss" : "train_loss";
        }
    }
}

static bool compare(struct store *store, const char *sweep_id, struct comparison *comparison,
                    struct error *err)
{
    if (!jobs_list_sweep(store, sweep_id, &comparison->jobs, &comparison->count, err))
        return false;
    if (comparison->count > LIMIT_SWEEP_JOBS) /* it is more than was ever made */
        return error_set(err, ERR_CORRUPT, "sweep '%.48s' has %zu jobs", sweep_id,
                         comparison->count);
    for (size_t i = 0; i < comparison->count; i++) {
        if (!read_result(store, comparison->jobs[i].id, &comparison->results[i], err))
            return false;
    }
    find_best(comparison);
    return true;
}

/* ---- shown -------------------------------------------------------------------------------------------- */

/* What the job was given of the varied fields, as it took them. */
static struct json *values_of(const struct job_record *job, const struct json *varied)
{
    struct json *values = json_new_object(), *hyper;

    hyper = json_parse_or(job->hyperparameters_json, json_new_null);
    if (!hyper)
        json_add(values, "seed", NULL); /* no memory: there is no answer */
    for (const struct json *field = json_first(varied); field; field = json_next(field)) {
        if (strcmp(json_name(field), "seed") == 0)
            json_add_int(values, "seed", job->seed);
        else
            json_add(values, json_name(field), json_copy(json_member(hyper, json_name(field))));
    }
    json_free(hyper);
    return values;
}

static double seconds_of(const struct job_record *job)
{
    const int64_t end = job->finished_unix_s > 0 ? job->finished_unix_s : clock_unix_s();

    if (job->started_unix_s <= 0)
        return (double)NAN;
    return end > job->started_unix_s ? (double)(end - job->started_unix_s) : 0; /* set back: 0 */
}

static struct json *row_of(const struct comparison *comparison, size_t index,
                           const struct json *varied)
{
    const struct job_record *job = &comparison->jobs[index];
    const struct checkpoint_record *result = &comparison->results[index];
    struct json *row = json_new_object();

    json_add_string(row, "id", job->id);
    json_add_string(row, "status", job_state_name(job->state));
    json_add(row, "values", values_of(job, varied));
    json_add_bool(row, "best", comparison->best_by && comparison->best == index);
    json_add_int(row, "completed_steps", job->completed_steps);
    json_add_int(row, "total_steps", job->total_steps);
    json_add_double(row, "train_loss", job->last_train_loss); /* NAN: null */
    json_add_double(row, "train_mean_token_accuracy", result->train_accuracy);
    json_add_double(row, "full_valid_loss", result->valid_loss);
    json_add_double(row, "full_valid_mean_token_accuracy", result->valid_accuracy);
    json_add_double(row, "elapsed_s", seconds_of(job));
    json_add_string(row, "device_used", job->device_used[0] ? job->device_used : NULL);
    json_add_string(row, "fine_tuned_model",
                    job->fine_tuned_model[0] ? job->fine_tuned_model : NULL);
    json_add_string(row, "error", job->state == JOB_FAILED ? job->error_message : NULL);
    return row;
}

static struct json *counts_of(const size_t counts[JOB_STATE_COUNT])
{
    struct json *object = json_new_object();

    for (size_t i = 0; i < JOB_STATE_COUNT; i++)
        json_add_int(object, job_state_name((enum job_state)i), (int64_t)counts[i]);
    return object;
}

/* Of all jobs together, in a word that a job could have. */
static enum job_state state_of(const size_t counts[JOB_STATE_COUNT], size_t count)
{
    static const enum job_state ends[] = {JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELLED};
    size_t ended = 0;

    for (size_t i = 0; i < COUNT_OF(ends); i++)
        ended += counts[ends[i]];
    if (ended == count)
        return counts[JOB_FAILED]      ? JOB_FAILED
               : counts[JOB_CANCELLED] ? JOB_CANCELLED
                                       : JOB_SUCCEEDED;
    if (counts[JOB_RUNNING] || ended)
        return JOB_RUNNING;
    if (counts[JOB_QUEUED])
        return JOB_QUEUED;
    return counts[JOB_VALIDATING_FILES] ? JOB_VALIDATING_FILES : JOB_PAUSED;
}

static struct json *sweep_json(const struct sweep_record *sweep,
                               const struct comparison *comparison)
{
    struct json *object = json_new_object(), *rows = json_new_array();
    struct json *varied = json_parse_or(sweep->varied_json, json_new_null);
    size_t counts[JOB_STATE_COUNT] = {0};

    for (size_t i = 0; i < comparison->count; i++) {
        counts[comparison->jobs[i].state]++;
        json_add(rows, NULL, row_of(comparison, i, varied));
    }
    json_add_string(object, "id", sweep->id);
    json_add_string(object, "object", "fine_tuning.sweep");
    json_add_int(object, "created_at", sweep->created_unix_s);
    json_add_string(object, "status", job_state_name(state_of(counts, comparison->count)));
    json_add(object, "job_counts", counts_of(counts));
    json_add(object, "varied", varied);
    json_add_string(object, "best_job",
                    comparison->best_by ? comparison->jobs[comparison->best].id : NULL);
    json_add_string(object, "best_by", comparison->best_by);
    json_add(object, "jobs", rows);
    return object;
}

/* *ret_json is the caller's. */
static bool make_json(struct store *store, const struct sweep_record *sweep, struct json **ret_json,
                      struct error *err)
{
    struct comparison *comparison = calloc(1, sizeof(*comparison));
    bool ok;

    if (!comparison)
        return error_set(err, ERR_NO_MEMORY, "no memory for a sweep");
    ok = compare(store, sweep->id, comparison, err);
    if (ok)
        *ret_json = sweep_json(sweep, comparison);
    jobs_free(comparison->jobs, comparison->count);
    free(comparison);
    return ok;
}

/* ---- handlers ----------------------------------------------------------------------------------------- */

static bool answer_sweep(struct request *request, const char *id, struct error *err)
{
    struct sweep_record sweep = {0};
    struct json *json = NULL;
    bool ok;

    if (!sweeps_get(request->store, id, &sweep, err))
        return false;
    ok = make_json(request->store, &sweep, &json, err) &&
         response_set_json(&request->response, 200, json, err);
    sweep_record_release(&sweep);
    return ok;
}

bool sweeps_handle_create(struct request *request, struct error *err)
{
    struct job_terms terms = {.owner = request->owner,
                              .jobs_max = request->jobs_max,
                              .idempotency_key = request->idempotency_key,
                              .asked_before = request->asked_before,
                              .is_sweep = true};
    struct job_record job = {0};
    struct job_made made;
    struct json *body = NULL;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = scheduler_submit(request->services->scheduler, body, &terms, &made, err);
    json_free(body);
    if (!ok || !jobs_get(request->store, made.id, &job, err))
        return false;
    ok = answer_sweep(request, job.sweep_id, err);
    job_record_release(&job);
    request->response.replayed = ok && made.repeated;
    return ok;
}

bool sweeps_handle_list(struct request *request, struct error *err)
{
    struct sweep_record *sweeps = NULL;
    struct store_page page;
    struct json *data, *json = NULL;
    size_t count = 0;
    bool has_more = false, ok = true;

    if (!page_read(request, SWEEPS_DEFAULT, SWEEPS_MAX, &page, err) ||
        !sweeps_list(request->store, &page, &sweeps, &count, &has_more, err))
        return false;
    data = json_new_array();
    for (size_t i = 0; ok && i < count; i++) {
        ok = make_json(request->store, &sweeps[i], &json, err);
        if (ok)
            json_add(data, NULL, json);
    }
    sweeps_free(sweeps, count);
    if (!ok) {
        json_free(data);
        return false;
    }
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

bool sweeps_handle_get(struct request *request, struct error *err)
{
    return answer_sweep(request, request->params[0], err);
}

bool sweeps_handle_cancel(struct request *request, struct error *err)
{
    return scheduler_cancel_sweep(request->services->scheduler, request->params[0], err) &&
           answer_sweep(request, request->params[0], err);
}

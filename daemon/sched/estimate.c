#include "daemon/sched/estimate.h"

#include "daemon/base/json.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/placement.h"
#include "daemon/sched/report.h"
#include "daemon/sched/request.h"
#include "daemon/sched/validator.h"
#include "daemon/train/budget.h"
#include "daemon/train/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void estimate_release(struct estimate *estimate)
{
    job_record_release(&estimate->job);
    json_free(estimate->lines);
    *estimate = (struct estimate){0};
}

/* ---- what is in the files ----------------------------------------------------------------------- */

struct reading {
    struct jobfiles files;
    struct inputs inputs;
    struct validated found;
};

static bool plan(struct estimate *estimate, const struct asks_parts *parts, struct reading *reading,
                 struct error *err)
{
    const struct inputs *inputs = &reading->inputs;
    struct json *object;
    bool ok;

    if (!budget_bounds(&reading->files.job, inputs, &reading->found.memory, err))
        return false;
    estimate->train_count = inputs->train_count;
    estimate->held_count = inputs->held_count;
    estimate->target_count = inputs->train_target_count;
    estimate->n_epochs = reading->files.job.hyper.n_epochs;
    estimate->steps = (inputs->train_count - 1) / reading->files.job.hyper.batch_size + 1;
    for (size_t i = 0; i < inputs->train_count; i++)
        estimate->token_count += inputs->train[i]->id_count;
    object =
        validator_plan(parts->options, &estimate->job, &reading->files.job.hyper, &reading->found);
    ok = json_print_text(object, &estimate->job.plan_json, err);
    json_free(object);
    return ok;
}

bool estimate_read(const struct asks_parts *parts, void *arguments, struct error *err)
{
    struct estimate *estimate = arguments;
    struct reading *reading = calloc(1, sizeof(*reading));
    bool ok = false;

    if (!reading)
        return error_set(err, ERR_NO_MEMORY, "no memory for an estimate");
    if (!jobfiles_find(parts->options, parts->store, &estimate->job, &reading->files, err))
        goto out;
    reading->files.job.stop = parts->stop;
    ok = inputs_read(&reading->files.job, &reading->inputs,
                     &reading->found.reports[JOBFILES_TRAINING],
                     &reading->found.reports[JOBFILES_VALIDATION], err) &&
         (reading->files.test.count == 0 ||
          train_check_files(&reading->files.job, &reading->files.test,
                            &reading->found.reports[JOBFILES_TEST], err));
    if (!ok)
        estimate->lines = validator_explain(parts->store, &estimate->job, &reading->found, err);
    else
        ok = plan(estimate, parts, reading, err);
    inputs_release(&reading->inputs);
out:
    jobfiles_remove_resume(parts->options->state_folder, estimate->job.id); /* its empty folder */
    free(reading);
    return ok;
}

/* ---- where it would go -------------------------------------------------------------------------- */

/* A device that the job could have once it is free. */
static bool could_have(const struct placement_view *view, const struct job_record *job,
                       size_t device)
{
    const struct device *on = view->queue->slots.devices[device].device;
    struct job_record named = *job; /* its texts stay the estimate's */

    (void)snprintf(named.device_wanted, sizeof(named.device_wanted), "%s", on->id);
    return view->devices[device].use.in_service && devices_match(on, job->device_wanted) &&
           placement_is_possible(view, &named, NULL);
}

static void name_device(struct estimate *estimate, const struct placement_view *view, size_t device)
{
    (void)snprintf(estimate->device, sizeof(estimate->device), "%s",
                   view->queue->slots.devices[device].device->id);
}

bool estimate_place(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct estimate *estimate = arguments;
    struct placement_view *view = malloc(sizeof(*view));
    size_t count = queue->slots.device_count, best = count;
    struct placement_grant grant;
    struct error never = {0};

    if (!view)
        return error_set(err, ERR_NO_MEMORY, "no memory for an estimate");
    placement_look(queue, view);
    for (size_t i = 0; i < count && !estimate->device[0]; i++) {
        if (placement_takes(view, &estimate->job, i, &grant))
            name_device(estimate, view, i);
    }
    if (estimate->device[0])
        goto out;
    placement_explain(view, &estimate->job, estimate->reason, sizeof(estimate->reason));
    for (size_t i = 0; i < count; i++) {
        if (could_have(view, &estimate->job, i) &&
            (best == count || devices_is_gpu(queue->slots.devices[i].device->kind)))
            best = i;
    }
    if (best < count)
        name_device(estimate, view, best);
    else if (!placement_is_possible(view, &estimate->job, &never))
        (void)snprintf(estimate->reason, sizeof(estimate->reason), "%s", never.message);
out:
    free(view);
    return true;
}

/* ---- how long ----------------------------------------------------------------------------------- */

void estimate_rate_key(const char *device, const char *base_model,
                       const struct hyperparameters *hyper, struct rate_record *ret_rate)
{
    *ret_rate = (struct rate_record){0};
    (void)snprintf(ret_rate->device, sizeof(ret_rate->device), "%s", device);
    (void)snprintf(ret_rate->base_model, sizeof(ret_rate->base_model), "%s", base_model);
    (void)snprintf(ret_rate->setting, sizeof(ret_rate->setting), "%s %s rank %zu",
                   request_numerics_name(hyper->numerics),
                   backend_precision_names[hyper->precision], hyper->lora_rank);
}

static bool add_time(const struct estimate *estimate, struct store *store, struct json *object,
                     struct error *err)
{
    const struct job_record *job = &estimate->job;
    struct hyperparameters hyper;
    struct rate_record rate;
    char reason[256];
    bool found = false;

    if (!request_hyper_parse(job->hyperparameters_json, &hyper, err))
        return false;
    estimate_rate_key(estimate->device, job->base_model, &hyper, &rate);
    if (estimate->device[0] && !rates_get(store, &rate, &found, err))
        return false;
    json_add_double(object, "tokens_per_second", found ? rate.tokens_per_second : (double)NAN);
    json_add_double(object, "training_s",
                    found ? (double)(estimate->token_count * estimate->n_epochs) /
                                rate.tokens_per_second
                          : (double)NAN);
    if (found)
        json_add_int(object, "measured_at", rate.measured_unix_s);
    else
        json_add_null(object, "measured_at");
    (void)snprintf(reason, sizeof(reason),
                   estimate->device[0] ? "no job on '%.64s' with %.40s has ended on %s yet"
                                       : "no device would take it",
                   job->base_model, rate.setting, estimate->device);
    json_add_string(object, "time_reason", found ? NULL : reason);
    return true;
}

struct json *estimate_json(const struct estimate *estimate, struct store *store, struct error *err)
{
    const struct job_record *job = &estimate->job;
    struct json *object = json_new_object(), *hyper = NULL, *plan_object = NULL;
    const size_t epochs = estimate->n_epochs;

    json_add_string(object, "object", "fine_tuning.estimate");
    json_add_string(object, "model", job->base_model);
    json_add_string(object, "training_file", job->training_file);
    json_add_string(object, "validation_file",
                    job->validation_file[0] ? job->validation_file : NULL);
    json_add_int(object, "examples", (int64_t)estimate->train_count);
    json_add_int(object, "validation_examples", (int64_t)estimate->held_count);
    json_add_int(object, "steps_per_epoch", (int64_t)estimate->steps);
    json_add_int(object, "total_steps", (int64_t)(estimate->steps * epochs));
    json_add_int(object, "tokens", (int64_t)(estimate->token_count * epochs));
    json_add_int(object, "trained_tokens", (int64_t)(estimate->target_count * epochs));
    json_add_string(object, "device", estimate->device[0] ? estimate->device : NULL);
    json_add_string(object, "device_reason", estimate->reason[0] ? estimate->reason : NULL);
    if (!json_parse(job->hyperparameters_json, strlen(job->hyperparameters_json), &hyper, err) ||
        !json_parse(job->plan_json, strlen(job->plan_json), &plan_object, err) ||
        !add_time(estimate, store, object, err)) {
        json_free(hyper);
        json_free(plan_object);
        json_free(object);
        return NULL;
    }
    json_add(object, "hyperparameters", hyper);
    json_add(object, "plan", plan_object);
    return object;
}

#include "daemon/sched/run.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/changes.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/estimate.h"
#include "daemon/sched/events.h"
#include "daemon/sched/inventory.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/measured.h"
#include "daemon/sched/place.h"
#include "daemon/sched/plan.h"
#include "daemon/sched/results.h"
#include "daemon/sched/warnings.h"
#include "store/checkpoints.h"
#include "store/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECKPOINT_ID_DIGITS 24
#define TRY_AGAIN_MS 1000  /* between tries to keep an outcome */
#define TRIES_MAX 20       /* of what else is kept, */
#define PAUSE_NS 50000000  /* with as much between */
#define STEP_TEXT_BYTES 32 /* of a number in a name */

struct run {
    const struct run_parts *parts;
    struct slot *slot;
    struct job_record *job;
    struct jobfiles files;
    double rate_tokens, rate_s; /* of all steps since this start */
    struct json *warnings;      /* array: what the validator found and what the trainer adds */
    char model_name[STORE_NAME_SIZE];
    /* Told before this start: after a kill the same steps are made again, and not told twice. */
    int64_t told_steps;
    struct error disk_fault; /* what the disk refused; ERR_NONE: nothing */
    struct place place;
    bool has_last;
    struct checkpoint_record last; /* of the last epoch: its file is the final adapter */
};

static const struct device *run_device(const struct run *run)
{
    return slots_device(&run->parts->queue->slots, run->parts->slot);
}

/* ---- small things ----------------------------------------------------------------------------------- */

static void log_failure(const struct run *run, const char *doing, const struct error *err)
{
    if (err->code != ERR_CONFLICT) /* else the job was cancelled: nothing is to be kept */
        log_write_for(LOG_LEVEL_ERROR, "job", run->job->id, "%s: %s", doing, err->message);
}

/* The run ends here, and its job goes on from the last checkpoint when the disk takes writes, or files can be
 * opened again. */
static void stop_for_disk(struct run *run, const struct error *why)
{
    (void)disk_report(run->parts->queue->options->disk, why);
    if (run->disk_fault.code == ERR_NONE)
        run->disk_fault = *why;
    atomic_store_explicit(&run->slot->stop, true, memory_order_release);
}

/* Want of memory or a locked database may pass: true after a pause, a few times. The disk has its own watch. */
static bool try_again(const struct error *err, int *tries)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};

    if (error_is_disk(err) || (err->code != ERR_NO_MEMORY && err->code != ERR_UNAVAILABLE))
        return false;
    (void)nanosleep(&pause, NULL); /* cut short, it is tried the sooner */
    return ++*tries < TRIES_MAX;
}

/* False when the store did not take it: the job was cancelled meanwhile, or the disk is full. */
static bool update(struct run *run, const struct job_change *change, const struct notes *notes,
                   const char *doing)
{
    struct error err;
    int tries = 0;
    bool ok;

    recorder_drain(run->parts->recorder); /* events stay in order */
    do {
        err = (struct error){0};
        ok = jobs_update(run->parts->store, run->job->id, change, notes ? notes->drafts : NULL,
                         notes ? notes->count : 0, &err);
    } while (!ok && try_again(&err, &tries));
    if (!ok) {
        log_failure(run, doing, &err);
        if (error_is_passing(&err))
            stop_for_disk(run, &err);
        return false;
    }
    if (!atomic_load(&run->parts->queue->abandoned))
        events_feed_publish(run->parts->queue->options->feed, run->job->id);
    return true;
}

/* What it names of this machine's folders is by place and id. */
static void add_warning(struct run *run, const char *rule, const char *text)
{
    struct job_change change = JOB_CHANGE_NONE;
    struct error err = {0}, shown;
    struct notes notes;
    char *warnings = NULL;

    (void)error_set(&err, ERR_INTERNAL, "%s", text); /* only its text is wanted */
    shown = changes_show(run->parts->queue, run->job->id, &err);
    if (!warnings_add(run->warnings, rule, shown.message))
        return;
    if (!json_print_text(run->warnings, &warnings, &err))
        log_failure(run, "keep a warning", &err);
    change.warnings_json = warnings;
    notes_init(&notes);
    notes_add(&notes, EVENT_WARN, "message", NULL, "%s", shown.message);
    (void)update(run, &change, &notes, "keep a warning"); /* logged; the job goes on */
    notes_release(&notes);
    free(warnings);
}

/* ---- hooks ------------------------------------------------------------------------------------------ */

static bool keep_for_resume(void *context)
{
    const struct run *run = context;

    if (run->disk_fault.code != ERR_NONE)
        return false; /* what room there is belongs to others; the last one stays */
    /* The acquire pairs with the release that set stop after cancelled. */
    return atomic_load_explicit(&run->slot->stop, memory_order_acquire) &&
           !atomic_load_explicit(&run->slot->cancelled, memory_order_acquire);
}

static void on_plan(void *context, const struct train_plan *plan)
{
    struct run *run = context;
    struct job_change change = JOB_CHANGE_NONE;
    struct error err;
    struct notes notes;
    char *text = NULL;
    int tries = 0;
    bool ok;

    place_note(&run->place, (int64_t)plan->first_step);
    do {
        struct json *object = plan_json(run->job, plan);

        err = (struct error){0};
        ok = json_print_text(object, &text, &err);
        json_free(object);
    } while (!ok && try_again(&err, &tries));
    if (!ok)
        log_failure(run, "keep the plan", &err);
    change.plan_json = text;
    change.total_steps = (int64_t)plan->total_steps;
    notes_init(&notes);
    if (plan->first_step > 0)
        notes_add(&notes, EVENT_INFO, "message", NULL, "Training goes on after step %zu of %zu",
                  plan->first_step, plan->total_steps);
    else
        notes_add(&notes, EVENT_INFO, "message", NULL,
                  "Training %zu examples in %zu steps, validating with %zu", plan->example_count,
                  plan->total_steps, plan->validation_count);
    plan_note_memory(run->job, plan, &notes);
    (void)update(run, &change, &notes, "keep the plan"); /* logged */
    notes_release(&notes);
    free(text);
    if (plan->validation_note)
        add_warning(run, "validation", plan->validation_note);
    if (plan->warmup_note)
        add_warning(run, "warmup", plan->warmup_note);
    for (size_t i = 0; i < plan->skipped_group_count; i++) {
        char note[256];

        (void)snprintf(note, sizeof(note), "%s is all zero in the base: the adapter leaves it out",
                       plan->skipped_groups[i]);
        add_warning(run, "skipped_group", note);
    }
}

/* What the times of this job and of those behind it are reckoned from. */
static void note_pace(struct run *run, const struct train_step *step)
{
    struct slot_step made = {.number = (int64_t)step->step,
                             .total = (int64_t)step->total_steps,
                             .tokens = (int64_t)step->tokens,
                             .at_ns = clock_monotonic_ns()};

    if (step->tokens_per_second > 0) {
        made.seconds = (double)step->tokens / step->tokens_per_second;
        run->rate_tokens += (double)step->tokens;
        run->rate_s += made.seconds;
    }
    slots_note_step(&run->parts->queue->slots, run->parts->slot, &made);
}

static void on_step(void *context, const struct train_step *step)
{
    struct run *run = context;
    struct recorder_progress progress = {.completed_steps = (int64_t)step->step,
                                         .trained_tokens = (int64_t)step->trained_tokens,
                                         .train_loss = step->train_loss};
    const double time_s = (double)clock_unix_ms() / 1000;
    const struct error no_memory = {.code = ERR_NO_MEMORY};
    struct error fault = {0};
    struct json *data;
    int tries = 0;
    bool told;

    if (!disk_check_service(run->parts->queue->options->disk, &fault) &&
        !error_is_open_files(&fault)) /* which another job lacked */
        stop_for_disk(run, &fault);
    place_note(&run->place, (int64_t)step->step);
    note_pace(run, step);
    if (slots_settle(&run->parts->queue->slots, run->parts->slot))
        mailbox_tell_news(run->parts->queue->mailbox); /* another job may fit beside this one */
    if ((int64_t)step->step <= run->told_steps)
        return;
    do {
        data = measured_step_json(step);
        inventory_add_memory(run->parts->queue->inventory, run->slot->device, data);
        json_add_measured(data, "time", time_s);
        told = data && recorder_add(run->parts->recorder, EVENT_INFO, "metrics", data, &progress,
                                    "Step %zu/%zu: training loss=%.4f", step->step,
                                    step->total_steps, step->train_loss);
    } while (!told && try_again(&no_memory, &tries));
}

/* Whether the record of an epoch's checkpoint, made before the job was resumed, says what its file, written
 * anew, holds now. Another device makes other bytes. */
static bool is_told(const struct run *run, const struct train_epoch *epoch, const char *model_id)
{
    struct model_record known;

    return models_get(run->parts->store, model_id, &known, NULL) &&
           strcmp(known.sha256, epoch->checkpoint_sha256) == 0;
}

static bool fill_checkpoint(const struct run *run, const struct train_epoch *epoch,
                            struct checkpoint_record *ret_record, struct error *err)
{
    char step[STEP_TEXT_BYTES];

    *ret_record = (struct checkpoint_record){
        .created_unix_s = clock_unix_s(),
        .step = (int64_t)epoch->step,
        .train_loss = epoch->train_loss,
        .train_accuracy = epoch->train_mean_token_accuracy,
        .valid_loss = epoch->has_validation ? epoch->full_valid_loss : NAN,
        .valid_accuracy = epoch->has_validation ? epoch->full_valid_mean_token_accuracy : NAN,
    };
    (void)snprintf(step, sizeof(step), "%zu", epoch->step);
    (void)snprintf(ret_record->job_id, sizeof(ret_record->job_id), "%s", run->job->id);
    (void)snprintf(ret_record->model_id, sizeof(ret_record->model_id), "%.200s:ckpt-step-%s",
                   run->model_name, step);
    return file_random_id(ret_record->id, sizeof(ret_record->id), "ftckpt_", CHECKPOINT_ID_DIGITS,
                          err);
}

static void fill_model(const struct run *run, const char *id, struct model_record *ret_model)
{
    *ret_model = (struct model_record){.created_unix_s = clock_unix_s(), .valid_loss = NAN};
    (void)snprintf(ret_model->id, sizeof(ret_model->id), "%s", id);
    (void)snprintf(ret_model->base_model, sizeof(ret_model->base_model), "%s",
                   run->job->base_model);
    (void)snprintf(ret_model->job_id, sizeof(ret_model->job_id), "%s", run->job->id);
    (void)snprintf(ret_model->device, sizeof(ret_model->device), "%s", run_device(run)->id);
    (void)snprintf(ret_model->numerics, sizeof(ret_model->numerics), "%s", run->job->numerics);
    (void)snprintf(ret_model->owner, sizeof(ret_model->owner), "%s", run->job->owner);
    (void)snprintf(ret_model->parent_model, sizeof(ret_model->parent_model), "%s",
                   run->job->parent_model);
}

/* The checkpoint, its model and their events appear together. */
static void keep_checkpoint(struct run *run, const struct train_epoch *epoch,
                            const struct checkpoint_record *checkpoint, const struct notes *notes)
{
    const char *slash = strrchr(epoch->checkpoint_path, '/');
    struct job_change change = JOB_CHANGE_NONE;
    struct model_record model;

    fill_model(run, checkpoint->model_id, &model);
    (void)snprintf(model.artifact, sizeof(model.artifact), "checkpoints/%s/%.128s", run->job->id,
                   slash ? slash + 1 : epoch->checkpoint_path);
    (void)snprintf(model.sha256, sizeof(model.sha256), "%s", epoch->checkpoint_sha256);
    model.size_bytes = (int64_t)epoch->checkpoint_size_bytes;
    model.step = checkpoint->step;
    model.valid_loss = checkpoint->valid_loss;
    change.models = &model;
    change.model_count = 1;
    change.checkpoint = checkpoint;
    if (!update(run, &change, notes, "keep a checkpoint"))
        jobfiles_remove(epoch->checkpoint_path); /* nobody would find it */
}

static void note_epoch(const struct train_epoch *epoch, const char *model_id, struct notes *notes)
{
    struct json *data;

    if (epoch->has_validation)
        notes_add(notes, EVENT_INFO, "validation", measured_epoch_json(epoch),
                  "Epoch %zu, step %zu: full validation loss=%.4f", epoch->epoch, epoch->step,
                  epoch->full_valid_loss);
    if (!epoch->checkpoint_path)
        return;
    data = measured_epoch_json(epoch);
    json_add_string(data, "fine_tuned_model_checkpoint", model_id);
    notes_add(notes, EVENT_INFO, "checkpoint", data, "Checkpoint created at step %zu", epoch->step);
}

static void on_epoch(void *context, const struct train_epoch *epoch)
{
    const struct error no_memory = {.code = ERR_NO_MEMORY};
    struct run *run = context;
    struct job_change none = JOB_CHANGE_NONE;
    struct checkpoint_record checkpoint;
    struct error err = {0};
    struct notes notes;
    int tries = 0;

    if (!fill_checkpoint(run, epoch, &checkpoint, &err)) {
        log_failure(run, "name a checkpoint", &err);
        return;
    }
    if (!epoch->checkpoint_path) { /* its file is the final adapter */
        run->last = checkpoint;
        run->has_last = true;
    } else if (is_told(run, epoch, checkpoint.model_id)) {
        return;
    }
    notes_init(&notes);
    do {
        notes_release(&notes);
        notes_init(&notes);
        note_epoch(epoch, checkpoint.model_id, &notes);
    } while (notes.failed && try_again(&no_memory, &tries));
    if (epoch->checkpoint_path)
        keep_checkpoint(run, epoch, &checkpoint, &notes);
    else if (notes.count)
        (void)update(run, &none, &notes, "tell a validation"); /* logged */
    notes_release(&notes);
}

static void before_checkpoint(void *context)
{
    const struct run *run = context;

    recorder_drain(run->parts->recorder);
}

static void on_checkpoint(void *context, size_t step, const char *path, uint64_t size_bytes,
                          const char *sha256)
{
    struct run *run = context;
    struct error err = {0};
    bool cleared;

    (void)path; /* found by their names, and whole by the digests beside them */
    (void)sha256;
    if (!place_keep(&run->place, (int64_t)step, size_bytes, &cleared, &err))
        log_failure(run, "record a resume checkpoint", &err);
    else if (cleared)
        mailbox_tell_news(run->parts->queue->mailbox); /* others may run beside it */
}

static void on_warning(void *context, const char *text)
{
    add_warning(context, "training", text);
}

/* ---- before and after ----------------------------------------------------------------------------------- */

static bool prepare(struct run *run, struct error *err)
{
    const struct run_parts *parts = run->parts;
    struct job_record *job = run->job;

    /* The same device makes the same steps again; on another one they are news. */
    if (strcmp(job->device_used, run_device(run)->id) == 0)
        run->told_steps = job->completed_steps;
    (void)snprintf(job->device_used, sizeof(job->device_used), "%s", run_device(run)->id);
    jobfiles_model_name(job, run->model_name, sizeof(run->model_name));
    run->warnings = warnings_read(job->warnings_json);
    if (!jobfiles_find(parts->queue->options, parts->store, job, &run->files, err))
        return false;
    run->files.job.digests = parts->queue->digests;
    if (parts->memory_limit_bytes > 0) /* what the others on the device leave */
        run->files.job.memory_limit_bytes = (size_t)parts->memory_limit_bytes;
    return place_begin(&run->place, parts->store, job->id, &run->files.job, err);
}

/* The final model, and the last epoch's checkpoint that shares its file. */
static size_t fill_models(const struct run *run, const struct train_result *result,
                          struct model_record ret_models[2])
{
    fill_model(run, run->model_name, &ret_models[0]);
    (void)snprintf(ret_models[0].artifact, sizeof(ret_models[0].artifact), "%s.safetensors",
                   run->job->id);
    (void)snprintf(ret_models[0].sha256, sizeof(ret_models[0].sha256), "%s",
                   result->adapter_sha256);
    ret_models[0].size_bytes = (int64_t)result->adapter_size_bytes;
    ret_models[0].valid_loss = result->final_valid_loss;
    if (!run->has_last)
        return 1;
    ret_models[1] = ret_models[0];
    ret_models[1].step = run->last.step;
    (void)snprintf(ret_models[1].id, sizeof(ret_models[1].id), "%s", run->last.model_id);
    return 2;
}

static enum outcome_kind judge_failure(struct run *run, struct error *fault)
{
    enum backend_status status = backend_sync(run->parts->backend);

    if (atomic_load_explicit(&run->slot->cancelled, memory_order_acquire))
        return OUTCOME_CANCELLED;
    if (status == BACKEND_NO_MEMORY) {
        error_set(fault, ERR_NO_MEMORY, "%s", backend_fault(run->parts->backend));
        return OUTCOME_FAILED;
    }
    if (disk_is_to_blame(run->parts->queue->options->disk, fault)) {
        stop_for_disk(run, fault);
        return OUTCOME_DISK_FAULT;
    }
    return fault->code == ERR_DEVICE ? OUTCOME_DEVICE_FAULT : OUTCOME_FAILED;
}

/* Until the outcome is kept; a full disk is waited for. False: the daemon stops. */
static bool hand_in(const struct run_parts *parts, struct queue_outcome *outcome)
{
    struct mailbox *mailbox = parts->queue->mailbox;
    uint64_t seen = 0;

    recorder_drain(parts->recorder);
    for (;;) {
        struct error err = {0};

        if (mailbox_call(mailbox, queue_end, outcome, &err))
            return true;
        log_write_for(LOG_LEVEL_ERROR, "job", outcome->job_id, "keep the job's end: %s",
                      err.message);
        if (disk_make_room(parts->queue->options->disk, &err))
            continue; /* there is room for it now */
        if (err.code == ERR_CANCELLED || !mailbox_wait_news(mailbox, &seen, TRY_AGAIN_MS))
            return false;
    }
}

static enum outcome_kind train(struct run *run, struct train_result *ret_result,
                               struct error *fault)
{
    const struct train_hooks hooks = {.context = run,
                                      .stop = &run->slot->stop,
                                      .keep_for_resume = keep_for_resume,
                                      .on_plan = on_plan,
                                      .on_step = on_step,
                                      .on_epoch = on_epoch,
                                      .before_checkpoint = before_checkpoint,
                                      .on_checkpoint = on_checkpoint,
                                      .on_warning = on_warning};

    if (!prepare(run, fault) ||
        !train_run(run->parts->backend, &run->files.job, &hooks, ret_result, fault))
        return judge_failure(run, fault);
    switch (ret_result->end) {
    case TRAIN_DONE:
        return OUTCOME_SUCCEEDED;
    case TRAIN_STOPPED:
        return OUTCOME_STOPPED;
    case TRAIN_CANCELLED:
        break;
    }
    if (run->disk_fault.code != ERR_NONE &&
        !atomic_load_explicit(&run->slot->cancelled, memory_order_acquire)) {
        *fault = run->disk_fault;
        return OUTCOME_DISK_FAULT;
    }
    return OUTCOME_CANCELLED;
}

/* What estimates of later jobs go by. */
static void keep_rate(const struct run *run)
{
    struct rate_record rate;
    struct error err = {0};

    if (run->rate_s <= 0)
        return;
    estimate_rate_key(run->job->device_used, run->job->base_model, &run->files.job.hyper, &rate);
    rate.tokens_per_second = run->rate_tokens / run->rate_s;
    rate.measured_unix_s = clock_unix_s();
    if (!rates_set(run->parts->store, &rate, &err))
        log_failure(run, "keep the rate", &err);
}

/* The job has succeeded without, which is told; a disk that does not take them is waited for. */
static bool write_results(struct run *run, struct file_record *results, struct error *fault)
{
    struct error err;
    char text[sizeof(err.message) + 64];
    int tries = 0;

    recorder_drain(run->parts->recorder); /* the last steps too */
    do {
        err = (struct error){0};
        if (results_write(run->parts->queue->options->state_folder, run->parts->store, run->job,
                          results, &err))
            return true;
    } while (try_again(&err, &tries));
    if (disk_is_to_blame(run->parts->queue->options->disk, &err)) {
        stop_for_disk(run, &err);
        *fault = err;
        return false;
    }
    (void)snprintf(text, sizeof(text), "the job has no result file: %s", err.message);
    log_failure(run, "write the result file", &err);
    add_warning(run, "result_file", text);
    return false;
}

/* Nothing of the job is run again: its own end was kept, or a cancel's. */
static bool has_ended(const struct run *run, const struct queue_outcome *outcome)
{
    if (outcome->kind == OUTCOME_STOPPED || outcome->kind == OUTCOME_DEVICE_FAULT ||
        outcome->kind == OUTCOME_DISK_FAULT)
        return false;
    return outcome->kept || atomic_load_explicit(&run->slot->cancelled, memory_order_acquire);
}

/* The last steps are made again, and what came of them, when the disk takes it. */
static void give_back(const struct run *run, struct queue_outcome *outcome)
{
    outcome->kind = OUTCOME_DISK_FAULT;
    outcome->fault = &run->disk_fault;
    outcome->model_count = 0;
    jobfiles_remove(run->files.adapter);
}

static void release(struct run *run)
{
    json_free(run->warnings);
    free(run);
}

bool run_job(const struct run_parts *parts, struct job_record *job)
{
    struct run *run = calloc(1, sizeof(*run));
    struct train_result result = {.final_valid_loss = NAN};
    struct error fault = {0};
    struct model_record models[2];
    struct file_record results = {0};
    struct queue_outcome outcome = {.slot = parts->slot, .job_id = job->id, .fault = &fault};
    bool kept;

    if (!run) { /* only the outcome is left to say */
        error_set(&fault, ERR_NO_MEMORY, "no memory for a run");
        outcome.kind = OUTCOME_FAILED;
        return hand_in(parts, &outcome);
    }
    run->parts = parts;
    run->slot = &parts->queue->slots.items[parts->slot];
    run->job = job;
    run->place.descriptor = -1;
    recorder_begin(parts->recorder, job->id, &run->slot->stop);
    outcome.kind = train(run, &result, &fault);
    outcome.steps = (int64_t)result.steps;
    outcome.trained_tokens = (int64_t)result.trained_tokens;
    if (outcome.kind == OUTCOME_SUCCEEDED) {
        outcome.model_count = fill_models(run, &result, models);
        outcome.models = models;
        outcome.checkpoint = run->has_last ? &run->last : NULL;
        keep_rate(run);
        outcome.result_file = write_results(run, &results, &fault) ? &results : NULL;
        if (run->disk_fault.code != ERR_NONE)
            give_back(run, &outcome);
    }
    place_end(&run->place);
    kept = hand_in(parts, &outcome);
    if (kept && has_ended(run, &outcome))
        jobfiles_remove_resume(parts->queue->options->state_folder, job->id);
    if (kept && outcome.kind == OUTCOME_SUCCEEDED && !outcome.kept) {
        jobfiles_remove(run->files.adapter); /* cancelled or paused at the last moment */
        results_remove(parts->queue->options->state_folder, &results);
    }
    release(run);
    return kept;
}

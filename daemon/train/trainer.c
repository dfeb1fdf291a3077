#include "daemon/train/trainer.h"

#include "daemon/train/budget.h"
#include "daemon/train/loop.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct hyperparameters hyperparameters_default(void)
{
    return (struct hyperparameters){
        .n_epochs = 3,
        .batch_size = 16,
        .learning_rate = 1e-4,
        .lora_rank = 16,
        .lora_alpha = 32,
        .max_len = 1024,
        .val_split = 0.1,
        .numerics = NUMERICS_W4A8,
        .precision = BACKEND_FLOAT32,
        .overlong = OVERLONG_REFUSE,
        .data_rules = DATA_RULES_STRICT,
        .seed = 0,
    };
}

bool train_validate(const struct train_job *job, struct dataset_report *ret_training,
                    struct dataset_report *ret_validation, struct train_memory *ret_memory,
                    struct error *err)
{
    struct inputs inputs;
    bool ok;

    if (!inputs_read(job, &inputs, ret_training, ret_validation, err))
        return false;
    ok = budget_bounds(job, &inputs, ret_memory, err);
    inputs_release(&inputs);
    return ok;
}

bool train_check_files(const struct train_job *job, const struct train_files *files,
                       struct dataset_report *ret_report, struct error *err)
{
    return inputs_check_files(job, files, ret_report, err);
}

/* ---- setting up ------------------------------------------------------------------------------ */

struct run {
    struct inputs inputs;
    char identity[INPUTS_IDENTITY_SIZE];
    struct budget budget;
    struct loop loop;
};

static bool read_inputs(struct run *run, struct error *err)
{
    const struct train_job *job = run->loop.job;
    const struct train_hooks *hooks = run->loop.hooks;
    struct dataset_report *reports = calloc(2, sizeof(*reports));

    if (!reports)
        return error_set(err, ERR_NO_MEMORY, "no memory for the report on the data");
    const bool ok = inputs_read(job, &run->inputs, &reports[0], &reports[1], err);
    if (hooks->on_dataset && (ok || reports[0].line_count > 0))
        hooks->on_dataset(hooks->context, &reports[0], job->validation_path ? &reports[1] : NULL);
    free(reports);
    return ok;
}

static void warn(void *context, const char *text)
{
    loop_warn(context, text);
}

/* What an earlier part of the run left, or the start of a new one. */
static bool find_start(struct run *run, struct error *err)
{
    struct loop *loop = &run->loop;
    bool found;

    if (!checkpoint_read_newest(loop->job->checkpoint_folder, run->identity, warn, loop,
                                &loop->done, &found, err))
        return false;
    if (!found)
        loop->done = (struct checkpoint){
            .shuffle = run->inputs.shuffle, .train_loss = NAN, .valid_loss = NAN};
    loop->kept_step = loop->done.step;
    loop->kept_epochs = loop->done.epochs_told;
    return true;
}

/* What is imported to such a device is copied. */
static bool has_own_memory(struct backend *be)
{
    static const char probe;
    const void *imported = backend_import(be, &probe, sizeof(probe));

    backend_release_import(be, imported);
    return imported != &probe;
}

static bool plan_memory(struct run *run, struct error *err)
{
    struct loop *loop = &run->loop;
    const size_t earlier = (size_t)loop->done.batch_tokens;
    const struct budget_device device = {.free_bytes = backend_free_bytes(loop->backend),
                                         .is_card = has_own_memory(loop->backend)};

    if (!budget_choose(loop->job, &run->inputs, &device, earlier, &run->budget, err))
        return false;
    if (earlier > 0 && run->budget.sizes.max_tokens != earlier)
        loop_warn(loop, "less memory is free than before the stop: batches are cut differently, "
                        "and the last digits of the result may differ from an unbroken run's");
    loop->done.batch_tokens = run->budget.sizes.max_tokens;
    return true;
}

/* The values on the device: the start values model_open gave them, or the checkpoint's. */
static bool place_values(struct loop *loop, struct error *err)
{
    struct checkpoint *done = &loop->done;
    const size_t size = loop->values.count * sizeof(float);

    if (!done->values)
        return checkpoint_alloc(done, loop->values.count, err);
    if (done->value_count != loop->values.count)
        return error_set(err, ERR_CORRUPT,
                         "the resume checkpoint of step %zu has %zu values, the adapter %zu",
                         (size_t)done->step, done->value_count, loop->values.count);
    backend_upload(loop->backend, loop->values.values, done->values, size);
    backend_upload(loop->backend, loop->values.moment1, done->moment1, size);
    backend_upload(loop->backend, loop->values.moment2, done->moment2, size);
    model_refresh(loop->model);
    if (backend_sync(loop->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(loop->backend));
    return true;
}

/* Hashing and loading a large base take a while, so a stop is looked for between them. */
static bool go_on(const struct loop *loop, struct error *err)
{
    return !loop_stop_seen(loop) || error_set(err, ERR_CANCELLED, "stopped before the first step");
}

/* What the weights and sums are is float32 in any case. */
static void set_precision(struct loop *loop)
{
    const enum backend_precision wanted = loop->job->hyper.precision;
    char text[256];

    loop->precision = backend_set_precision(loop->backend, wanted);
    if (loop->precision == wanted)
        return;
    (void)snprintf(text, sizeof(text),
                   "precision is '%s', which %.64s does not have: it computes in float32",
                   backend_precision_names[wanted], loop->job->device_label);
    loop_warn(loop, text);
}

static bool set_up(struct run *run, struct error *err)
{
    struct loop *loop = &run->loop;
    const struct hyperparameters *hyper = &loop->job->hyper;

    if (!read_inputs(run, err) || !go_on(loop, err) ||
        !inputs_identity(&run->inputs, loop->job, run->identity, err) || !go_on(loop, err) ||
        !find_start(run, err) || !plan_memory(run, err) || !go_on(loop, err) ||
        !model_open(loop->backend, loop->job->base_folder, &run->budget.spec, loop->hooks->stop,
                    &loop->model, err) ||
        !packing_new(&run->budget.sizes, &loop->packing, err))
        return false;
    loop->inputs = &run->inputs;
    loop->identity = run->identity;
    loop->values = model_values(loop->model);
    loop->steps_per_epoch = (run->inputs.train_count - 1) / hyper->batch_size + 1;
    loop->schedule = schedule_make(loop->steps_per_epoch * hyper->n_epochs, hyper->learning_rate);
    return place_values(loop, err) && loop_init(loop, err);
}

static void tear_down(struct run *run)
{
    loop_release(&run->loop);
    packing_free(run->loop.packing);
    model_close(run->loop.model);
    inputs_release(&run->inputs);
}

static void tell_plan(const struct run *run)
{
    const struct loop *loop = &run->loop;
    struct train_plan plan = {
        .example_count = run->inputs.train_count,
        .validation_count = run->inputs.held_count,
        .total_steps = loop->schedule.total_steps,
        .steps_per_epoch = loop->steps_per_epoch,
        .warmup_steps = loop->schedule.warmup_steps,
        .first_step = (size_t)loop->done.step,
        .trained_tokens_per_epoch = run->inputs.train_target_count,
        .memory = run->budget.memory,
        .total_bytes = run->budget.total_bytes,
        .batch_tokens = run->budget.sizes.max_tokens,
        .layer_count = run->budget.layer_count,
        .recomputed_layers = run->budget.recomputed_layers,
        .validation_note = run->inputs.validation_note,
    };

    plan.skipped_group_count = model_skipped_groups(loop->model, plan.skipped_groups);
    if (plan.warmup_steps == 0)
        plan.warmup_note = "no warm-up: the only step is made at the full learning rate";
    if (loop->hooks->on_plan)
        loop->hooks->on_plan(loop->hooks->context, &plan);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool finish(struct loop *loop, struct train_result *result, struct error *err)
{
    result->end = TRAIN_DONE;
    return loop_write_adapter(loop, loop->job->adapter_path, &result->adapter_size_bytes,
                              result->adapter_sha256, err);
}

static bool stop(struct loop *loop, struct train_result *result, struct error *err)
{
    const struct train_hooks *hooks = loop->hooks;

    if (!hooks->keep_for_resume || !hooks->keep_for_resume(hooks->context)) {
        result->end = TRAIN_CANCELLED;
        return true;
    }
    result->end = TRAIN_STOPPED;
    return loop_keep(loop, err);
}

bool train_run(struct backend *be, const struct train_job *job, const struct train_hooks *hooks,
               struct train_result *ret_result, struct error *err)
{
    struct run *run = calloc(1, sizeof(*run));
    struct train_result result = {0};
    enum loop_end end = LOOP_STOPPED;
    struct error why = {0};
    bool ok = false;

    if (!run)
        return error_set(err, ERR_NO_MEMORY, "no memory for a run");
    run->loop.job = job;
    run->loop.hooks = hooks;
    run->loop.backend = be;
    set_precision(&run->loop);
    if (set_up(run, &why)) {
        tell_plan(run);
        ok = loop_run(&run->loop, &end, &why);
    } else if (why.code == ERR_CANCELLED) {
        ok = true;
        end = LOOP_STOPPED;
    }
    if (ok)
        ok = end == LOOP_FINISHED ? finish(&run->loop, &result, &why)
                                  : stop(&run->loop, &result, &why);
    if (!ok) {
        if (err)
            *err = why;
        goto out;
    }
    result.steps = (size_t)run->loop.done.step;
    result.trained_tokens = (size_t)run->loop.done.trained_tokens;
    result.final_loss = run->loop.done.train_loss;
    result.final_valid_loss = run->loop.done.valid_loss;
    *ret_result = result;
out:
    tear_down(run);
    free(run);
    (void)backend_set_precision(be, BACKEND_FLOAT32); /* which every device has */
    return ok;
}

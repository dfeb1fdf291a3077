#include "daemon/train/loop.h"

#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/jsontext.h"
#include "daemon/model/safetensors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKPOINT_INTERVAL_NS ((int64_t)30 * 1000000000)
#define METADATA_SIZE_MAX 4096

bool loop_init(struct loop *loop, struct error *err)
{
    const struct inputs *inputs = loop->inputs;
    const size_t batch = loop->job->hyper.batch_size;
    const size_t most =
        inputs->train_count > inputs->held_count ? inputs->train_count : inputs->held_count;

    loop->order = calloc(inputs->train_count, sizeof(*loop->order));
    loop->lines = calloc(batch < most ? batch : most, sizeof(const struct example *));
    if (!loop->order || !loop->lines)
        return error_set(err, ERR_NO_MEMORY, "no memory for the order of %zu examples",
                         inputs->train_count);
    loop->kept_ns = clock_monotonic_ns();
    return optimizer_init(&loop->optimizer, loop->backend, err);
}

void loop_release(struct loop *loop)
{
    optimizer_release(&loop->optimizer);
    checkpoint_release(&loop->done);
    free(loop->order);
    free(loop->lines);
    loop->order = NULL;
    loop->lines = NULL;
}

void loop_warn(const struct loop *loop, const char *text)
{
    if (loop->hooks->on_warning)
        loop->hooks->on_warning(loop->hooks->context, text);
}

bool loop_stop_seen(const struct loop *loop)
{
    /* Only the flag itself is told: nothing else is read on the strength of it. */
    return loop->hooks->stop && atomic_load_explicit(loop->hooks->stop, memory_order_relaxed);
}

/* ---- batches --------------------------------------------------------------------------------- */

struct batch_sums {
    double loss_mean, hits;
    size_t token_count, target_count;
};

/* Runs loop->lines[0..count). The divisor is the whole batch's, so micro-batches add up exactly. */
static bool run_batch(struct loop *loop, enum network_mode mode, size_t count,
                      struct batch_sums *ret_sums, struct error *err)
{
    struct packing_totals totals;
    struct batch batch;
    double loss = 0, hits = 0;

    packing_begin(loop->packing, loop->lines, count, &totals);
    const float divisor = totals.target_count > 0 ? (float)totals.target_count : 1.0f;
    while (packing_next(loop->packing, &batch)) {
        struct batch_result result;

        if (!model_run(loop->model, mode, &batch, 1.0f / divisor, loop->hooks->stop, &result, err))
            return false;
        loss += result.loss_sum;
        hits += result.hit_sum;
    }
    *ret_sums = (struct batch_sums){
        .loss_mean = loss / (double)divisor,
        .hits = hits,
        .token_count = totals.token_count,
        .target_count = totals.target_count,
    };
    return true;
}

static double accuracy(double hits, size_t target_count)
{
    return target_count > 0 ? hits / (double)target_count : 0;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static size_t take_lines(struct loop *loop)
{
    const struct inputs *inputs = loop->inputs;
    const size_t batch = loop->job->hyper.batch_size;
    const size_t first = (size_t)loop->done.step % loop->steps_per_epoch * batch;
    const size_t left = inputs->train_count - first;
    const size_t count = left < batch ? left : batch;

    if (!loop->order_drawn) {
        loop->ahead = loop->done.shuffle;
        shuffle_permutation(&loop->ahead, inputs->train_count, loop->order);
        loop->order_drawn = true;
    }
    for (size_t i = 0; i < count; i++)
        loop->lines[i] = inputs->train[loop->order[first + i]];
    return count;
}

static void tell_step(const struct loop *loop, const struct batch_sums *sums, float rate,
                      float norm, int64_t elapsed_ns)
{
    const size_t step = (size_t)loop->done.step;
    const struct train_step told = {
        .step = step,
        .total_steps = loop->schedule.total_steps,
        .epoch = (step - 1) / loop->steps_per_epoch + 1,
        .train_loss = sums->loss_mean,
        .train_mean_token_accuracy = loop->done.train_accuracy,
        .learning_rate = (double)rate,
        .grad_norm = (double)norm,
        .tokens = sums->token_count,
        .trained_tokens = (size_t)loop->done.trained_tokens,
        .tokens_per_second =
            (double)sums->token_count * 1e9 / (double)(elapsed_ns > 0 ? elapsed_ns : 1),
    };

    if (loop->hooks->on_step)
        loop->hooks->on_step(loop->hooks->context, &told);
}

static bool make_step(struct loop *loop, struct error *err)
{
    const int64_t started_ns = clock_monotonic_ns();
    const size_t count = take_lines(loop);
    const size_t step = (size_t)loop->done.step + 1;
    const float rate = schedule_learning_rate(&loop->schedule, step - 1);
    struct batch_sums sums;
    float norm;

    backend_zero(loop->backend, loop->values.gradients, loop->values.count * sizeof(float));
    if (!run_batch(loop, NETWORK_TRAIN, count, &sums, err))
        return false;
    if (!isfinite(sums.loss_mean))
        return error_set(err, ERR_INVALID,
                         "step %zu: the loss is not a finite number (%g); the adapter stays as it "
                         "was after step %zu",
                         step, sums.loss_mean, step - 1);
    if (!optimizer_norm(&loop->optimizer, &loop->values, &norm, err))
        return false;
    if (!isfinite(norm))
        return error_set(err, ERR_INVALID,
                         "step %zu: the gradient's norm is not a finite number (%g); the adapter "
                         "stays as it was after step %zu",
                         step, (double)norm, step - 1);

    optimizer_step(&loop->optimizer, &loop->values, step, rate, norm);
    model_refresh(loop->model);
    if (backend_sync(loop->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(loop->backend));
    loop->done.step = step;
    loop->done.trained_tokens += sums.target_count;
    loop->done.train_loss = sums.loss_mean;
    loop->done.train_accuracy = accuracy(sums.hits, sums.target_count);
    if (step % loop->steps_per_epoch == 0) {
        loop->done.shuffle = loop->ahead;
        loop->order_drawn = false;
    }
    tell_step(loop, &sums, rate, norm, clock_monotonic_ns() - started_ns);
    return true;
}

/* ---- an epoch's end -------------------------------------------------------------------------- */

/* As the reference: each batch's own mean counts the same, also a short last one's. */
static bool validate(struct loop *loop, double *ret_loss, double *ret_accuracy, struct error *err)
{
    const struct inputs *inputs = loop->inputs;
    const size_t batch = loop->job->hyper.batch_size;
    double loss = 0, hits = 0;
    size_t batches = 0, targets = 0;

    for (size_t first = 0; first < inputs->held_count; batches++) {
        const size_t left = inputs->held_count - first;
        const size_t count = left < batch ? left : batch;
        struct batch_sums sums;

        memcpy(loop->lines, inputs->held + first, count * sizeof(const struct example *));
        if (!run_batch(loop, NETWORK_EVALUATE, count, &sums, err))
            return false;
        loss += sums.loss_mean;
        hits += sums.hits;
        targets += sums.target_count;
        first += count;
    }
    *ret_loss = loss / (double)batches;
    *ret_accuracy = accuracy(hits, targets);
    return true;
}

bool loop_write_adapter(const struct loop *loop, const char *path, uint64_t *ret_size_bytes,
                        char ret_sha256[SHA256_HEX_SIZE], struct error *err)
{
    const char *numerics = loop->job->hyper.numerics == NUMERICS_W4A8 ? "\"w4a8\"" : "\"float32\"";
    char precision[16];
    struct buf device;

    (void)snprintf(precision, sizeof(precision), "\"%s\"",
                   backend_precision_names[loop->precision]);
    buf_init(&device, METADATA_SIZE_MAX);
    jsontext_write_string(loop->job->device_label, strlen(loop->job->device_label), &device);
    if (device.failed) {
        buf_release(&device);
        return error_set(err, ERR_NO_MEMORY, "no memory for the name of the device");
    }
    const struct metadata_out extra[] = {
        {"device", device.data},
        {"needled", "\"" NEEDLED_VERSION "\""},
        {"numerics", numerics},
        {"precision", precision},
    };
    const bool ok = model_write_adapter(loop->model, path, loop->job->base_name, extra,
                                        COUNT_OF(extra), ret_size_bytes, ret_sha256, err);
    buf_release(&device);
    return ok;
}

static bool end_epoch(struct loop *loop, struct error *err)
{
    const size_t epoch = (size_t)loop->done.epochs_told + 1;
    struct train_epoch told = {
        .epoch = epoch,
        .step = (size_t)loop->done.step,
        .has_validation = loop->inputs->held_count > 0,
        .full_valid_loss = NAN,
        .full_valid_mean_token_accuracy = NAN,
        .train_loss = loop->done.train_loss,
        .train_mean_token_accuracy = loop->done.train_accuracy,
    };
    char path[LIMIT_PATH_BYTES], name[64], sha256[SHA256_HEX_SIZE];

    if (told.has_validation &&
        !validate(loop, &told.full_valid_loss, &told.full_valid_mean_token_accuracy, err))
        return false;
    if (epoch < loop->job->hyper.n_epochs) {
        (void)snprintf(name, sizeof(name), "epoch-%zu.safetensors", told.step);
        if (!file_join(path, sizeof(path), loop->job->checkpoint_folder, name, err) ||
            !loop_write_adapter(loop, path, &told.checkpoint_size_bytes, sha256, err))
            return false;
        told.checkpoint_path = path;
        told.checkpoint_sha256 = sha256;
    }
    loop->done.epochs_told = epoch;
    loop->done.valid_loss = told.full_valid_loss;
    if (loop->hooks->on_epoch)
        loop->hooks->on_epoch(loop->hooks->context, &told);
    return true;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

bool loop_keep(struct loop *loop, struct error *err)
{
    struct checkpoint *done = &loop->done;
    const size_t size = done->value_count * sizeof(float);
    struct checkpoint_file file;

    if (done->step == loop->kept_step && done->epochs_told == loop->kept_epochs)
        return true;
    backend_download(loop->backend, done->values, loop->values.values, size);
    backend_download(loop->backend, done->moment1, loop->values.moment1, size);
    backend_download(loop->backend, done->moment2, loop->values.moment2, size);
    if (backend_sync(loop->backend) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(loop->backend));
    if (loop->hooks->before_checkpoint)
        loop->hooks->before_checkpoint(loop->hooks->context);
    if (!checkpoint_write(loop->job->checkpoint_folder, loop->identity, done, &file, err))
        return false;
    loop->kept_step = done->step;
    loop->kept_epochs = done->epochs_told;
    loop->has_kept = true;
    loop->kept_ns = clock_monotonic_ns();
    if (loop->hooks->on_checkpoint)
        loop->hooks->on_checkpoint(loop->hooks->context, (size_t)done->step, file.path,
                                   file.size_bytes, file.sha256);
    return true;
}

static bool keep_is_due(const struct loop *loop)
{
    const struct train_job *job = loop->job;
    const int64_t interval_ns =
        job->checkpoint_interval_ns > 0 ? job->checkpoint_interval_ns : CHECKPOINT_INTERVAL_NS;

    if (job->checkpoint_soon && !loop->has_kept)
        return true;
    if (job->checkpoint_interval_steps > 0 &&
        loop->done.step - loop->kept_step >= job->checkpoint_interval_steps)
        return true;
    return clock_monotonic_ns() - loop->kept_ns >= interval_ns;
}

/* One that the disk does not take ends the run, which goes on from the last one when there is room. What
 * else keeps it from being written is told: it is tried again when the next one is due. */
static bool keep_when_due(struct loop *loop, struct error *err)
{
    struct error why = {0};
    char text[sizeof(why.message) + 64];

    /* A turn whose news could not be kept is made again: nothing may say that it is done. */
    if (loop_stop_seen(loop) || !keep_is_due(loop) || loop_keep(loop, &why))
        return true;
    if (why.code == ERR_DEVICE || error_is_disk(&why)) {
        if (err)
            *err = why;
        return false;
    }
    (void)snprintf(text, sizeof(text), "no resume checkpoint: %s", why.message);
    loop_warn(loop, text);
    loop->kept_ns = clock_monotonic_ns();
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool epoch_is_due(const struct loop *loop)
{
    return loop->done.step == (loop->done.epochs_told + 1) * loop->steps_per_epoch;
}

bool loop_run(struct loop *loop, enum loop_end *ret_end, struct error *err)
{
    const size_t n_epochs = loop->job->hyper.n_epochs;

    while (loop->done.epochs_told < n_epochs) {
        struct error why = {0};

        assert(loop->done.step < loop->schedule.total_steps || epoch_is_due(loop));
        if (loop_stop_seen(loop)) {
            *ret_end = LOOP_STOPPED;
            return true;
        }
        if (!(epoch_is_due(loop) ? end_epoch(loop, &why) : make_step(loop, &why))) {
            if (why.code == ERR_CANCELLED)
                continue; /* the flag is up */
            if (err)
                *err = why;
            return false;
        }
        if (loop->done.epochs_told < n_epochs && !keep_when_due(loop, err))
            return false;
    }
    *ret_end = LOOP_FINISHED;
    return true;
}

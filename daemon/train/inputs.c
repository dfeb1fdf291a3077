#include "daemon/train/inputs.h"

#include "daemon/base/file.h"
#include "daemon/base/size.h"
#include "daemon/model/tokenizer.h"
#include "daemon/train/packing.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- hyper-parameters ------------------------------------------------------------------------ */

static bool check_count(const char *name, size_t value, struct error *err)
{
    return value > 0 ||
           error_set_param(err, ERR_INVALID, name, "'%s' is 0, at least 1 is needed", name);
}

static bool check_positive(const char *name, double value, struct error *err)
{
    if (isfinite(value) && value > 0)
        return true;
    return error_set_param(err, ERR_INVALID, name, "'%s' is %g, a number above 0 is needed", name,
                           value);
}

static bool check_hyper(const struct hyperparameters *hyper, struct error *err)
{
    if (!check_count("n_epochs", hyper->n_epochs, err) ||
        !check_count("batch_size", hyper->batch_size, err) ||
        !check_positive("learning_rate", hyper->learning_rate, err) ||
        !check_count("lora_rank", hyper->lora_rank, err) ||
        !check_positive("lora_alpha", hyper->lora_alpha, err) ||
        !check_count("max_len", hyper->max_len, err))
        return false;
    if (!(hyper->val_split >= 0 && hyper->val_split < 1))
        return error_set_param(err, ERR_INVALID, "val_split",
                               "'val_split' is %g, at least 0 and below 1 is needed",
                               hyper->val_split);
    return true;
}

static bool check_length(const struct hyperparameters *hyper, const struct model_info *info,
                         struct error *err)
{
    if (hyper->max_len <= info->max_seq_len)
        return true;
    return error_set_param(err, ERR_INVALID, "max_len",
                           "'max_len' is %zu, the base reads at most %zu tokens", hyper->max_len,
                           info->max_seq_len);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool with_param(struct error *err, const char *param)
{
    if (err && err->param[0] == '\0')
        (void)snprintf(err->param, sizeof(err->param), "%s", param);
    return false;
}

static bool open_base(const struct train_job *job, struct inputs *inputs,
                      struct tokenizer **ret_tokenizer, struct error *err)
{
    if (!file_join(inputs->base_path, sizeof(inputs->base_path), job->base_folder,
                   "base.safetensors", err) ||
        !file_join(inputs->tokenizer_path, sizeof(inputs->tokenizer_path), job->base_folder,
                   "tokenizer.model", err) ||
        !model_inspect(job->base_folder, &inputs->info, err))
        return with_param(err, "model");
    if (!check_length(&job->hyper, &inputs->info, err))
        return false;
    return model_open_tokenizer(job->base_folder, ret_tokenizer, err) || with_param(err, "model");
}

static bool read_list(const struct train_job *job, const struct inputs *inputs,
                      const struct tokenizer *tokenizer, const struct train_files *files,
                      struct dataset **ret_dataset, struct dataset_report *ret_report,
                      struct error *err)
{
    const struct dataset_options options = {
        .rules = job->hyper.data_rules,
        .overlong = job->hyper.overlong,
        .max_len = job->hyper.max_len,
        .vocab_size = inputs->info.vocab_size,
        .label_limit = inputs->info.out_vocab,
        .stop = job->stop,
        .sha256s = files->sha256s,
    };

    if (!dataset_read_files(files->paths, files->count, tokenizer, &options, ret_dataset, err))
        return false;
    *ret_report = (*ret_dataset)->report;
    return dataset_report_accept(ret_report, false, job->hyper.data_rules, err);
}

/* The first file and those that come after it. */
static bool read_both(const struct train_job *job, const struct inputs *inputs,
                      const struct tokenizer *tokenizer, bool validation,
                      struct dataset **ret_dataset, struct dataset_report *ret_report,
                      struct error *err)
{
    const struct train_files *more = validation ? &job->more_validation : &job->more_training;
    const char *paths[LIMIT_JOB_FILES], *sha256s[LIMIT_JOB_FILES];
    const struct train_files all = {paths, more->count + 1, sha256s};

    assert(all.count <= COUNT_OF(paths));
    paths[0] = validation ? job->validation_path : job->training_path;
    sha256s[0] = validation ? job->validation_sha256 : job->training_sha256;
    for (size_t i = 0; i < more->count; i++) {
        paths[i + 1] = more->paths[i];
        sha256s[i + 1] = more->sha256s ? more->sha256s[i] : NULL;
    }
    return read_list(job, inputs, tokenizer, &all, ret_dataset, ret_report, err);
}

/* Both files are read before either is judged, so that both reports are whole. */
static bool read_files(const struct train_job *job, struct inputs *inputs,
                       const struct tokenizer *tokenizer, struct dataset_report *ret_training,
                       struct dataset_report *ret_validation, struct error *err)
{
    struct error later = {0};
    const bool training_ok =
        read_both(job, inputs, tokenizer, false, &inputs->training, ret_training, err);

    if (!training_ok)
        (void)with_param(err, "training_file");
    if (!job->validation_path)
        return training_ok;
    if (read_both(job, inputs, tokenizer, true, &inputs->validation, ret_validation, &later))
        return training_ok;
    (void)with_param(&later, "validation_file");
    if (training_ok && err)
        *err = later;
    return false;
}

/* ---- split ----------------------------------------------------------------------------------- */

static void note_validation(const struct train_job *job, struct inputs *inputs, size_t count)
{
    if (inputs->held_count > 0)
        return;
    if (job->hyper.val_split <= 0)
        inputs->validation_note = "no validation: val_split is 0 and there is no validation file";
    else if (count == 1)
        inputs->validation_note = "no validation: the only example is trained on";
    else
        inputs->validation_note = "no validation: val_split of so few examples is less than one";
}

/* The first examples of one permutation are held out; without any the permutation is not drawn. */
static bool split_off(const struct train_job *job, struct inputs *inputs, struct error *err)
{
    const size_t count = inputs->training->example_count;
    size_t held = (size_t)((double)count * job->hyper.val_split);
    uint32_t *order = calloc(count, sizeof(*order));

    if (!order)
        return error_set(err, ERR_NO_MEMORY, "no memory to split %zu examples", count);
    if (held > count - 1)
        held = count - 1;
    if (held > 0)
        shuffle_permutation(&inputs->shuffle, count, order);
    else
        for (size_t i = 0; i < count; i++)
            order[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        const struct example *example = &inputs->training->examples[order[i]];
        if (i < held)
            inputs->held[i] = example;
        else
            inputs->train[i - held] = example;
    }
    inputs->held_count = held;
    inputs->train_count = count - held;
    free(order);
    return true;
}

static void take_both(struct inputs *inputs)
{
    inputs->train_count = inputs->training->example_count;
    inputs->held_count = inputs->validation->example_count;
    for (size_t i = 0; i < inputs->train_count; i++)
        inputs->train[i] = &inputs->training->examples[i];
    for (size_t i = 0; i < inputs->held_count; i++)
        inputs->held[i] = &inputs->validation->examples[i];
}

static void measure(struct inputs *inputs)
{
    for (size_t i = 0; i < inputs->train_count; i++) {
        const size_t rows = packing_line_rows(inputs->train[i]);

        inputs->train_target_count += packing_line_targets(inputs->train[i]);
        if (rows > inputs->longest_rows)
            inputs->longest_rows = rows;
    }
    for (size_t i = 0; i < inputs->held_count; i++) {
        const size_t rows = packing_line_rows(inputs->held[i]);

        if (rows > inputs->longest_rows)
            inputs->longest_rows = rows;
    }
}

static bool split(const struct train_job *job, struct inputs *inputs, struct error *err)
{
    const size_t held_max =
        inputs->validation ? inputs->validation->example_count : inputs->training->example_count;

    inputs->train = calloc(inputs->training->example_count, sizeof(const struct example *));
    inputs->held = calloc(held_max, sizeof(const struct example *));
    if (!inputs->train || !inputs->held)
        return error_set(err, ERR_NO_MEMORY, "no memory for a list of %zu examples",
                         inputs->training->example_count);
    shuffle_init(&inputs->shuffle, job->hyper.seed);
    if (inputs->validation)
        take_both(inputs);
    else if (!split_off(job, inputs, err))
        return false;
    note_validation(job, inputs, inputs->training->example_count);
    measure(inputs);
    if (inputs->train_target_count == 0)
        return error_set_param(err, ERR_INVALID, "training_file",
                               "no target token is left to train: the %zu examples that keep one "
                               "are all held out for validation",
                               inputs->training->example_count - inputs->train_count);

    const size_t steps = (inputs->train_count - 1) / job->hyper.batch_size + 1;
    size_t total;
    if (!size_mul(steps, job->hyper.n_epochs, &total) || total > INT32_MAX)
        return error_set_param(err, ERR_INVALID, "n_epochs",
                               "'n_epochs' is %zu: at %zu steps each, more than %d steps in all",
                               job->hyper.n_epochs, steps, INT32_MAX);
    return true;
}

bool inputs_read(const struct train_job *job, struct inputs *ret_inputs,
                 struct dataset_report *ret_training, struct dataset_report *ret_validation,
                 struct error *err)
{
    struct inputs inputs = {0};
    struct tokenizer *tokenizer = NULL;
    bool ok = false;

    *ret_training = (struct dataset_report){0};
    *ret_validation = (struct dataset_report){0};
    if (!check_hyper(&job->hyper, err) || !open_base(job, &inputs, &tokenizer, err) ||
        !read_files(job, &inputs, tokenizer, ret_training, ret_validation, err) ||
        !split(job, &inputs, err))
        goto out;
    *ret_inputs = inputs;
    ok = true;
out:
    if (!ok)
        inputs_release(&inputs);
    tokenizer_close(tokenizer);
    return ok;
}

bool inputs_check_files(const struct train_job *job, const struct train_files *files,
                        struct dataset_report *ret_report, struct error *err)
{
    struct inputs inputs = {0};
    struct dataset *dataset = NULL;
    struct tokenizer *tokenizer = NULL;
    bool ok;

    *ret_report = (struct dataset_report){0};
    ok = open_base(job, &inputs, &tokenizer, err) &&
         (read_list(job, &inputs, tokenizer, files, &dataset, ret_report, err) ||
          with_param(err, "test_file"));
    dataset_free(dataset);
    tokenizer_close(tokenizer);
    return ok;
}

void inputs_release(struct inputs *inputs)
{
    free(inputs->train);
    free(inputs->held);
    dataset_free(inputs->training);
    dataset_free(inputs->validation);
    *inputs = (struct inputs){0};
}

bool inputs_identity(const struct inputs *inputs, const struct train_job *job,
                     char ret_identity[INPUTS_IDENTITY_SIZE], struct error *err)
{
    const struct hyperparameters *hyper = &job->hyper;
    char base[SHA256_HEX_SIZE], tokenizer[SHA256_HEX_SIZE], adapter[SHA256_HEX_SIZE];
    char precision[32] = "", start[8 + SHA256_HEX_SIZE] = "";

    if (!digests_of_file(job->digests, inputs->base_path, base, err) ||
        !digests_of_file(job->digests, inputs->tokenizer_path, tokenizer, err) ||
        (job->start_adapter_path && !file_sha256(job->start_adapter_path, adapter, err)))
        return with_param(err, "model");
    if (job->start_adapter_sha256 && job->start_adapter_sha256[0] &&
        strcmp(job->start_adapter_sha256, adapter) != 0)
        return error_set_param(
            err, ERR_CORRUPT, "model",
            "'%s', the adapter to go on from, is not what was trained: its SHA-256 "
            "is %.12s..., its record's %.12s...",
            job->start_adapter_path, adapter, job->start_adapter_sha256);
    if (job->start_adapter_path)
        (void)snprintf(start, sizeof(start), " start %s", adapter);
    /* float32 goes unsaid: checkpoints from before there was a choice stay good. */
    if (hyper->precision != BACKEND_FLOAT32)
        (void)snprintf(precision, sizeof(precision), " precision %s",
                       backend_precision_names[hyper->precision]);
    (void)snprintf(ret_identity, INPUTS_IDENTITY_SIZE,
                   "training %s validation %s base %s tokenizer %s n_epochs %zu batch_size %zu "
                   "learning_rate %.17g lora_rank %zu lora_alpha %.17g max_len %zu val_split %.17g "
                   "numerics %d overlong %d data_rules %d seed %" PRIu64 "%s%s",
                   inputs->training->sha256,
                   inputs->validation ? inputs->validation->sha256 : "none", base, tokenizer,
                   hyper->n_epochs, hyper->batch_size, hyper->learning_rate, hyper->lora_rank,
                   hyper->lora_alpha, hyper->max_len, hyper->val_split, (int)hyper->numerics,
                   (int)hyper->overlong, (int)hyper->data_rules, hyper->seed, precision, start);
    return true;
}

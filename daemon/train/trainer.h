/*
 * trainer: one fine-tuning run, from files to an adapter.
 *
 * Purpose    Reads the data, draws split and orders, trains, validates at each epoch, checkpoints,
 *            and writes the adapter. Needs a job, a folder and a hooks struct: never HTTP, never
 *            SQLite.
 * Ownership  The job and hooks are borrowed for the call. Files it writes belong to the caller.
 * Threads    Runs on the worker's thread; hooks are called on it.
 * Failure    False with err: data and limits ERR_INVALID with param = the job field, a non-finite
 *            loss or gradient ERR_INVALID naming the step, device faults ERR_DEVICE.
 */
#ifndef NEEDLED_TRAINER_H
#define NEEDLED_TRAINER_H

#include "daemon/base/digests.h"
#include "daemon/model/model.h"
#include "daemon/train/dataset.h"

#include <stdatomic.h>

struct hyperparameters { /* resolved: no "auto" left */
    size_t n_epochs, batch_size;
    double learning_rate;
    size_t lora_rank;
    double lora_alpha;
    size_t max_len;
    double val_split; /* 0 <= x < 1; not used with a validation file */
    enum numerics numerics;
    enum backend_precision precision; /* of products, where the device has it; else a warning */
    enum overlong overlong;
    enum data_rules data_rules;
    uint64_t seed;
};
/* The reference's defaults: 3, 16, 1e-4, 16, 32, 1024, 0.1, W4A8, float32, refuse, strict, 0. */
struct hyperparameters hyperparameters_default(void);

struct train_files { /* read as one, in this order */
    const char *const *paths;
    size_t count;               /* LIMIT_JOB_FILES at most */
    const char *const *sha256s; /* as dataset.h; NULL: none is known */
};

struct train_job {
    const char *base_folder;                           /* base.safetensors, tokenizer.model */
    const char *base_name;                             /* recorded in the adapter */
    const char *training_path;                         /* JSONL */
    const char *validation_path;                       /* NULL: split off the training file */
    struct train_files more_training, more_validation; /* whose lines come after theirs */
    /* Of those files and of the adapter, as their records have them; NULL or "": not known. Other bytes are
     * refused with ERR_CORRUPT. */
    const char *training_sha256, *validation_sha256, *start_adapter_sha256;
    const char
        *start_adapter_path; /* of the same base and rank: training goes on from it; or NULL */
    const char
        *checkpoint_folder;   /* exists; resume-*.safetensors and epoch-*.safetensors go here */
    const char *adapter_path; /* written at the end */
    const char *device_label; /* "cpu:0", recorded in the adapter */
    struct digests *digests;  /* remembers the base's; NULL: it is hashed each time */
    const atomic_bool *stop;  /* set: reading the data ends with ERR_CANCELLED; or NULL */
    struct hyperparameters hyper;
    size_t memory_limit_bytes;        /* refuse a plan above it; 0: what the device has free */
    size_t batch_token_limit;         /* tokens of one micro-batch; 0: the plan decides */
    int64_t checkpoint_interval_ns;   /* time between resume checkpoints; 0: the default of 30 s */
    size_t checkpoint_interval_steps; /* 0: by time alone */
    bool checkpoint_soon;             /* the first of a run after its first step */
};

struct train_plan { /* what will happen; told before the first step */
    size_t example_count, validation_count;
    size_t total_steps, steps_per_epoch, warmup_steps;
    size_t first_step; /* > 0 when resumed */
    size_t trained_tokens_per_epoch;
    struct model_plan memory;
    size_t total_bytes;  /* of memory, with a little for scratch, batches and the program */
    size_t batch_tokens; /* rows of a micro-batch */
    size_t layer_count, recomputed_layers; /* of these, in each backward pass */
    const char *skipped_groups[PROJECTION_COUNT];
    size_t skipped_group_count;
    const char *validation_note; /* NULL, or why there is no validation */
    const char *warmup_note;     /* NULL, or that warm-up was clamped */
};

struct train_step {
    size_t step, total_steps; /* step from 1 */
    size_t epoch;             /* from 1 */
    double train_loss, train_mean_token_accuracy, learning_rate, grad_norm;
    size_t tokens;         /* real tokens of the batch */
    size_t trained_tokens; /* targets so far, all epochs */
    double tokens_per_second;
};

struct train_epoch {
    size_t epoch, step;
    bool has_validation;
    double
        full_valid_loss; /* unweighted mean over batches of each batch's mean, as the reference */
    double full_valid_mean_token_accuracy;
    double train_loss, train_mean_token_accuracy; /* of the last step */
    const char *checkpoint_path; /* an adapter file, NULL after the last epoch's (adapter_path) */
    uint64_t checkpoint_size_bytes;
    const char *checkpoint_sha256;
};

struct train_hooks {
    void *context;
    const atomic_bool *stop; /* looked at between layers: drop the unfinished step */
    /* After stop was seen: true = checkpoint the last whole step for a later resume (service stop,
     * pause), false = cancelled for good. */
    bool (*keep_for_resume)(void *context);
    void (*on_dataset)(void *context, const struct dataset_report *training,
                       const struct dataset_report *validation); /* validation may be NULL */
    void (*on_plan)(void *context, const struct train_plan *plan);
    void (*on_step)(void *context, const struct train_step *step);
    void (*on_epoch)(void *context, const struct train_epoch *epoch);
    /* A resume checkpoint is due: what was told so far must be safe first, since a run that goes on
     * from it tells none of it again. */
    void (*before_checkpoint)(void *context);
    void (*on_checkpoint)(void *context, size_t step, const char *path, uint64_t size_bytes,
                          const char *sha256); /* a resume checkpoint was written */
    void (*on_warning)(void *context, const char *text);
};

enum train_end { TRAIN_DONE, TRAIN_STOPPED /* checkpointed */, TRAIN_CANCELLED };

struct train_result {
    enum train_end end;
    size_t steps, trained_tokens;
    uint64_t adapter_size_bytes;
    char adapter_sha256[65];
    double final_loss, final_valid_loss; /* valid: NAN without validation */
};

/* Goes on from the newest whole resume checkpoint in checkpoint_folder that belongs to this job:
 * the same data, base and hyper-parameters by digest. Starts anew when there is none; where data or
 * base have changed under it, it fails as checkpoint_read_newest. */
MUST_CHECK bool train_run(struct backend *be, const struct train_job *job,
                          const struct train_hooks *hooks, struct train_result *ret_result,
                          struct error *err);

struct train_memory {    /* between which a run's total_bytes are, whatever memory a device has */
    size_t least_bytes;  /* with the longest line alone, and all but one layer computed again */
    size_t wanted_bytes; /* by the plan's own choice */
    size_t base_bytes;   /* on top of each on a card, which copies the base's file */
    size_t card_wanted_bytes; /* in all on a card, which takes larger batches at once */
};

/* What the state validating_files checks, without a device: files, rules, lengths, something left
 * to train, max_len within the base. Fills the reports also when it refuses (ret_training is
 * complete; ret_validation only with a validation file). err->param: "training_file",
 * "validation_file", "model" or a hyper-parameter. */
MUST_CHECK bool train_validate(const struct train_job *job, struct dataset_report *ret_training,
                               struct dataset_report *ret_validation,
                               struct train_memory *ret_memory, struct error *err);
/* The same of files that are neither: the rules and lengths alone. param: "test_file". */
MUST_CHECK bool train_check_files(const struct train_job *job, const struct train_files *files,
                                  struct dataset_report *ret_report, struct error *err);

#endif

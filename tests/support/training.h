/*
 * training: a fine-tuning job in a folder of its own, with everything its hooks were told.
 *
 * Purpose    The tests of the trainer say what differs from the defaults and look at what came out.
 * Ownership  training_init / training_release (caller's storage); the folder goes with it.
 * Threads    The test's.
 * Failure    training_run fails the test when the job fails; training_try hands the error over.
 */
#ifndef NEEDLED_TEST_TRAINING_H
#define NEEDLED_TEST_TRAINING_H

#include "daemon/train/trainer.h"
#include "tests/support/test.h"

#define TRAINING_STEPS_MAX 4096
#define TRAINING_EPOCHS_MAX 256

struct training {
    char *scratch;
    char adapter_path[256], checkpoint_folder[256];
    char data_path[256]; /* for a data set the test writes itself */
    struct train_job job;
    struct train_hooks hooks;
    atomic_bool stop;
    bool keep; /* what keep_for_resume answers */

    struct train_plan plan; /* the last one told */
    size_t plan_count;
    struct train_step steps[TRAINING_STEPS_MAX]; /* as they came, over all runs */
    size_t step_count;
    struct train_epoch epochs[TRAINING_EPOCHS_MAX]; /* their texts are not kept */
    size_t epoch_count, epoch_file_count;
    size_t checkpoint_count, warning_count, dataset_count, keep_asked;
    struct dataset_report report; /* of the training file, as told */
    char last_warning[1024];
    struct train_result result;

    /* Called at the end of the hook of that name, NULL: not. */
    void *context;
    void (*after_step)(struct training *training, const struct train_step *step);
    void (*after_epoch)(struct training *training, const struct train_epoch *epoch);
    void (*after_checkpoint)(struct training *training, size_t step, const char *path);
};

/* Base and data; hyper-parameters are the defaults. */
void training_init(struct training *training, const char *base_folder, const char *training_path);
void training_release(struct training *training);

void training_run(struct training *training, struct backend *be);
bool training_try(struct training *training, struct backend *be, struct error *err);

struct backend *training_backend(enum backend_kind kind);
/* The cpu backend at a level of SIMD; NULL where the processor lacks it. */
struct backend *training_backend_at(const char *simd_level);
/* All tensors under the prefix, in order of their names, side by side; the caller frees it. */
float *training_tensors(const char *path, const char *prefix, size_t *ret_count);
bool training_same_bytes(const char *path_a, const char *path_b);

#endif

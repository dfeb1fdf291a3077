/*
 * checkpoint: what a run needs to go on after a stop, in one file.
 *
 * Purpose    resume-<step>-<epochs>.safetensors: adapter, both moments, and the run's state; beside
 *            it a .sha256 of its bytes. The last CHECKPOINT_KEPT are kept. Reading takes the newest
 *            that is whole and belongs to this very job; what is damaged is named and passed over.
 * Ownership  The folder is the caller's. A checkpoint's arrays: checkpoint_alloc, or reading one,
 *            and checkpoint_release.
 * Threads    One folder, one thread.
 * Failure    Writing: as safetensors_write; older checkpoints stay. Reading fails only when the
 *            folder cannot be read, or when what the job reads has changed under it.
 */
#ifndef NEEDLED_TRAIN_CHECKPOINT_H
#define NEEDLED_TRAIN_CHECKPOINT_H

#include "daemon/base/error.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/train/shuffle.h"

#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_KEPT 3

struct checkpoint {
    uint64_t step;           /* whole steps done */
    uint64_t epochs_told;    /* epochs that were validated and told */
    uint64_t trained_tokens; /* in these steps */
    struct shuffle shuffle;  /* draws the order of the epoch the next step belongs to */
    uint64_t batch_tokens;   /* of a micro-batch: the order of sums depends on it */
    double train_loss, train_accuracy, valid_loss; /* the last ones; NAN: none yet */
    size_t value_count;
    float *values, *moment1, *moment2; /* host, [value_count]; one allocation */
};

MUST_CHECK bool checkpoint_alloc(struct checkpoint *checkpoint, size_t value_count,
                                 struct error *err);
void checkpoint_release(struct checkpoint *checkpoint); /* zeroed is fine */

struct checkpoint_file { /* one that was written */
    char path[LIMIT_PATH_BYTES];
    uint64_t size_bytes;
    char sha256[SHA256_HEX_SIZE];
};

/* identity: a text equal for equal jobs alone: names and their values, a space between them. Those of
 * training, validation, base, tokenizer and start are digests of what the job reads. Removes what is older
 * than the last CHECKPOINT_KEPT afterwards. */
MUST_CHECK bool checkpoint_write(const char *folder, const char *identity,
                                 const struct checkpoint *checkpoint,
                                 struct checkpoint_file *ret_file, struct error *err);

typedef void checkpoint_warn_fn(void *context, const char *text);

#define CHECKPOINT_INPUT_CHANGED "input_changed" /* the word of a failure */

/* Fills *checkpoint when *ret_found; arrays it had are given back. Checkpoints that are damaged or
 * of another job are told to `warn` and removed. One in which nothing but such digests differs is this job's,
 * and what the job reads is another now: ERR_CONFLICT with the word above says what, under its param. */
MUST_CHECK bool checkpoint_read_newest(const char *folder, const char *identity,
                                       checkpoint_warn_fn *warn, void *context,
                                       struct checkpoint *checkpoint, bool *ret_found,
                                       struct error *err);

#endif

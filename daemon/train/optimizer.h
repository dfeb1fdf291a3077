/*
 * optimizer: one step of the adapter, as the reference's optimiser makes it.
 *
 * Purpose    The norm over all gradients, clipping at 1, and AdamW (b1 0.9, b2 0.999, eps 1e-8,
 *            weight decay 1e-4), all on the device.
 * Ownership  optimizer_init / optimizer_release (caller's storage); the values are borrowed.
 * Threads    The worker's.
 * Failure    Device faults are kept by the backend and reported by optimizer_norm.
 */
#ifndef NEEDLED_OPTIMIZER_H
#define NEEDLED_OPTIMIZER_H

#include "daemon/model/model.h"

struct optimizer {
    struct backend *backend;
    float *sum; /* device, [1] */
};

MUST_CHECK bool optimizer_init(struct optimizer *optimizer, struct backend *be, struct error *err);
void optimizer_release(struct optimizer *optimizer); /* zeroed is fine */

/* Norm of the gradients before clipping, in float32; not finite when one of them is not. */
MUST_CHECK bool optimizer_norm(struct optimizer *optimizer, const struct model_values *values,
                               float *ret_norm, struct error *err);
/* step counts from 1. */
void optimizer_step(struct optimizer *optimizer, const struct model_values *values, size_t step,
                    float learning_rate, float norm);

#endif

/*
 * trial: a tiny job, to see whether a device trains as another one does.
 *
 * Purpose    Eight lines and a base of random weights, with everything a network can have (two layers, a
 *            window, an engram, taps, lanes, lines that share their start), through the model and
 *            the loop of any job, for four steps. Losses of two devices are compared.
 * Ownership  The base is a folder of the caller's.
 * Threads    The one that owns the backend.
 * Failure    A device's fault is ERR_DEVICE, *stop ERR_CANCELLED; the file system's.
 */
#ifndef NEEDLED_TRIAL_H
#define NEEDLED_TRIAL_H

#include "daemon/model/weights.h"

#include <stdatomic.h>

#define TRIAL_STEPS 4

/* Largest difference of a step's losses over the reference's. In float32 only the order of sums
 * differs: 1e-7 of each, grown by four steps that build on each other. With rounded weights and
 * activations such a difference moves a value on an edge to the next step of its grid now and then. */
#define TRIAL_TOLERANCE_FLOAT32 2e-5
#define TRIAL_TOLERANCE_W4A8 2e-3
/* Float32 but for the factors of products, each off by 2^-11 or 2^-8 of itself at most: independent of
 * each other, and summed in float32, they leave a loss closer than one of them. */
#define TRIAL_TOLERANCE_TF32 0x1p-11
#define TRIAL_TOLERANCE_BF16 0x1p-8

/* Writes the base into the folder, which exists. */
MUST_CHECK bool trial_write_base(const char *folder, struct error *err);
/* Nothing but the base needs to be in the folder. stop may be NULL. */
MUST_CHECK bool trial_run(struct backend *be, const char *folder, enum numerics numerics,
                          const atomic_bool *stop, double ret_losses[TRIAL_STEPS],
                          struct error *err);
/* The largest difference of two runs' losses over `reference`; infinite when one is not a number. */
double trial_difference(const double losses[TRIAL_STEPS], const double reference[TRIAL_STEPS]);

#endif

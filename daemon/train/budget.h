/*
 * budget: how many tokens a micro-batch has and what its layers keep, decided by memory.
 *
 * Purpose    Adds up what the job needs on the device before anything is taken: activations are
 *            kept when they fit and computed again in backward when they do not; fewer tokens at
 *            once come last, since they cost the sharing of equal beginnings.
 * Ownership  Plain values.
 * Threads    The worker's.
 * Failure    ERR_NO_MEMORY with the bytes needed and available.
 */
#ifndef NEEDLED_BUDGET_H
#define NEEDLED_BUDGET_H

#include "daemon/train/inputs.h"
#include "daemon/train/packing.h"

#define BUDGET_TOKENS_MAX 4096 /* more at once is not faster, and takes memory */

struct budget {
    struct packing_sizes sizes;
    struct model_spec spec; /* with its limits */
    struct model_plan memory;
};

/* batch_tokens: as an earlier part of the run had them; 0: to be chosen. */
MUST_CHECK bool budget_choose(const struct train_job *job, const struct inputs *inputs,
                              uint64_t device_free_bytes, size_t batch_tokens,
                              struct budget *ret_budget, struct error *err);

#endif

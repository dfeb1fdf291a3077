/*
 * budget: how many tokens a micro-batch has and what its layers keep, decided by memory.
 *
 * Purpose    Adds up what the job needs before anything is taken. A whole batch at once shares all
 *            of its equal beginnings, so rows are bounded by a fixed share of memory; a batch that
 *            must be cut and shares little is cut smaller, which is as fast. A card is only fast
 *            with many rows: there a batch goes in as few pieces as its memory allows. Where the
 *            device has less, there are fewer rows, down to those of the longest line; then some
 *            layers, at last all but one, are computed again in backward.
 * Ownership  Plain values.
 * Threads    The worker's.
 * Failure    ERR_NO_MEMORY with the bytes needed and available.
 */
#ifndef NEEDLED_BUDGET_H
#define NEEDLED_BUDGET_H

#include "daemon/train/inputs.h"
#include "daemon/train/packing.h"

#define BUDGET_TOKENS_MAX 4096   /* rows of a micro-batch */
#define BUDGET_TOKENS_PIECE 1024 /* of one that is only a part of its batch: more is not faster */
#define BUDGET_ACTIVATIONS_AIM ((size_t)720 << 20) /* bytes of a plan's own choice */
#define BUDGET_OTHER_BYTES ((size_t)48 << 20) /* scratch of ops, batches, the data, the program */

/* Of a card: kernels count rows times their width in 31 bits. Scratch: a tile of the Monarch layer or
 * of logits, which do not grow with the rows, and one array of queries, which does: the activations
 * hold more than forty of those at twenty layers. */
#define BUDGET_CARD_TOKENS_MAX ((size_t)1 << 17)
#define BUDGET_CARD_OTHER_BYTES ((size_t)320 << 20)
#define BUDGET_CARD_OTHER_SHARE 32 /* of the activations, on top */

struct budget {
    struct packing_sizes sizes;
    struct model_spec spec; /* with its limits */
    struct model_plan memory;
    size_t total_bytes; /* of memory, and the device's OTHER_BYTES */
    size_t layer_count, recomputed_layers;
};

struct budget_device {
    uint64_t free_bytes; /* 0: it cannot say */
    bool is_card;        /* has memory of its own: the base's file is copied, rows are cheap */
};

/* batch_tokens: as an earlier part of the run had them; 0: to be chosen. */
MUST_CHECK bool budget_choose(const struct train_job *job, const struct inputs *inputs,
                              const struct budget_device *device, size_t batch_tokens,
                              struct budget *ret_budget, struct error *err);
/* Between which total_bytes are, whatever memory there is. */
MUST_CHECK bool budget_bounds(const struct train_job *job, const struct inputs *inputs,
                              struct train_memory *ret_memory, struct error *err);
/* What a plan may take of so many free bytes: a little is left to others. */
uint64_t budget_usable_bytes(uint64_t free_bytes);

#endif

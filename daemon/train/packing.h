/*
 * packing: the lines of a batch as micro-batches of real tokens.
 *
 * Purpose    Lines that begin with the same tokens share them: a micro-batch is a forest in
 *            preorder (kernels/ops.h), each line a path of it. A token has a row only if something
 *            is predicted from it or a later one of its line, so a line's last token has none of
 *            its own and a line without targets has no rows at all. Equal targets are one with a
 *            weight.
 * Ownership  packing_new / packing_free; a batch it hands out is good until the next call.
 * Threads    One object, one thread.
 * Failure    packing_new fails without memory; nothing is allocated afterwards.
 */
#ifndef NEEDLED_PACKING_H
#define NEEDLED_PACKING_H

#include "daemon/model/network.h"
#include "daemon/train/dataset.h"

struct packing_sizes {
    size_t max_lines;  /* of a batch */
    size_t max_tokens; /* rows of a micro-batch; at least those of the longest line */
    size_t longest;    /* rows of the longest line */
};

struct packing_totals { /* of a batch, each line counted for itself */
    size_t token_count, target_count;
};

size_t packing_line_rows(const struct example *line);
size_t packing_line_targets(const struct example *line);
/* Targets of a micro-batch never pass this. */
size_t packing_max_targets(const struct packing_sizes *sizes);
/* Rows of the batch as one forest. Puts the lines into the order of packing. */
size_t packing_count_rows(const struct example **lines, size_t line_count);

struct packing;

MUST_CHECK bool packing_new(const struct packing_sizes *sizes, struct packing **ret_packing,
                            struct error *err);
void packing_free(struct packing *packing); /* NULL is fine */

/* Takes a batch; the lines are borrowed until the last packing_next. */
void packing_begin(struct packing *packing, const struct example *const *lines, size_t line_count,
                   struct packing_totals *ret_totals);
/* The next micro-batch, with as many lines as its tokens allow; false when there is none left. */
bool packing_next(struct packing *packing, struct batch *ret_batch);

#endif

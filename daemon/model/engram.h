/*
 * engram: a memory of short token sequences, read by hash.
 *
 * Purpose    Each token looks its last n-grams up in hashed tables; the rows, side by side, become
 *            the key and value an engram site injects into its layer. Tokens alone decide them.
 * Ownership  None; results go into the activations.
 * Threads    The worker's.
 * Failure    None of its own.
 */
#ifndef NEEDLED_ENGRAM_H
#define NEEDLED_ENGRAM_H

#include "daemon/model/activations.h"
#include "daemon/model/gradients.h"

size_t engram_table_count(const struct geometry *geometry);

/* The slot of each table for each token, [token_count, tables]; -1 where the n-gram starts before
 * the line does. Tokens are followed along their ancestors. */
void engram_indices(const struct geometry *geometry, const struct batch *batch,
                    int32_t *ret_indices);

/* The same n-grams come again and again, so each different row of slots is worked on once. Puts the
 * different rows of indices [count, tables] into ret_distinct, in order of first appearance, and for
 * each token the number of its own into ret_row; returns how many there are. seen is scratch of
 * engram_seen_count(count). */
size_t engram_distinct(const int32_t *indices, size_t count, size_t tables, uint32_t *seen,
                       int32_t *ret_distinct, uint32_t *ret_row);
size_t engram_seen_count(size_t count);

/* engram_key and engram_value of one site, from distinct_count rows of activations->engram_distinct
 * spread by engram_row. */
void engram_forward(const struct weights *weights, struct activations *activations, size_t site,
                    const struct tree *tree, size_t distinct_count);
/* Gradients of the site's weights from backward.dkey and dvalue; gathers again what it needs. */
void engram_backward(const struct weights *weights, struct activations *activations, size_t site,
                     const struct tree *tree, const struct engram_gradients *gradients);

#endif

/*
 * shuffle: the order of the examples, as NumPy draws it.
 *
 * Purpose    numpy.random.default_rng(seed) and its permutation(count): SeedSequence, PCG64
 * (XSL-RR) and a Fisher-Yates shuffle by masked rejection. Same seed, same split and orders as the
 *            reference. The state is plain numbers, so a checkpoint can keep it.
 * Ownership  A plain value and the caller's array.
 * Threads    Any; one value, one thread.
 * Failure    None.
 */
#ifndef NEEDLED_SHUFFLE_H
#define NEEDLED_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

#define SHUFFLE_WORDS 6

struct shuffle {
    uint64_t state_high, state_low, increment_high, increment_low;
    uint64_t half; /* the unused upper half of the last draw */
    uint64_t has_half;
};

void shuffle_init(struct shuffle *shuffle, uint64_t seed);
/* Writes 0..count-1 in the next random order; count < 2^32. */
void shuffle_permutation(struct shuffle *shuffle, size_t count, uint32_t *ret_order);

/* The state as words and back, for a file. */
void shuffle_save(const struct shuffle *shuffle, uint64_t ret_words[SHUFFLE_WORDS]);
void shuffle_restore(struct shuffle *shuffle, const uint64_t words[SHUFFLE_WORDS]);

#endif

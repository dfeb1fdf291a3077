/*
 * op_permutation: NumPy's RandomState(seed).permutation(count), for weights that are permuted.
 *
 * Purpose    The Monarch layer's permutations are not in its file, but made from seeds.
 * Ownership  Caller's array.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_TEST_OP_PERMUTATION_H
#define NEEDLED_TEST_OP_PERMUTATION_H

#include <stddef.h>
#include <stdint.h>

/* numbers = first + a permutation of 0 .. count - 1. */
void numpy_permutation(int32_t *numbers, size_t count, int32_t first, uint32_t seed);

#endif

/*
 * random: the generators whose numbers the model's files and start values depend on.
 *
 * Purpose    MT19937 as NumPy's RandomState (permutations of the Monarch MLP) and Threefry-2x32 as
 *            JAX (start of the LoRA matrices). Epoch orders: daemon/train/shuffle.h.
 * Ownership  Values and caller's arrays.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_RANDOM_H
#define NEEDLED_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* numpy.random.RandomState(seed).permutation(count) */
void random_mt_permutation(uint32_t seed, size_t count, int32_t *ret_order);

struct threefry_key {
    uint32_t a, b;
};
struct threefry_key threefry_key_from_seed(uint64_t seed); /* jax.random.PRNGKey, 32-bit mode */
/* (key, sub) = jax.random.split(key): *key moves on, the sub key is returned. */
struct threefry_key threefry_split(struct threefry_key *key);
/* jax.random.normal(key, [count], float32), element `first` onwards. */
void threefry_normal(struct threefry_key key, uint64_t first, size_t count, float *ret_values);

#endif

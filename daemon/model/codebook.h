/*
 * codebook: the code values of the weight and key/value quantiser.
 *
 * Purpose    Lloyd-Max values of a standard normal for 2, 3 and 4 bits, divided by sqrt(group).
 * Ownership  Caller's array.
 * Threads    Any.
 * Failure    None; other bit counts are a bug.
 */
#ifndef NEEDLED_CODEBOOK_H
#define NEEDLED_CODEBOOK_H

#include <stddef.h>

#define CODEBOOK_MAX 16
#define WEIGHT_BITS 4
#define WEIGHT_GROUP 128
#define KV_GROUP 64

/* Writes 2^bits values, ascending, float32 exactly as the reference rounds them. */
size_t codebook_values(int bits, size_t group, float ret_values[CODEBOOK_MAX]);

#endif

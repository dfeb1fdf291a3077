/*
 * level: the ops of the cpu backend once for each level of SIMD.
 *
 * Purpose    The files of kernels/cpu/ops are compiled several times, each time for other
 *            instructions, and each time end in one table. Here the best that this processor has
 *            is chosen, or the one that was asked for.
 * Ownership  Tables are constant.
 * Threads    Any.
 * Failure    level_find returns NULL: no such level, or the processor lacks it; reason written.
 */
#ifndef NEEDLED_LEVEL_H
#define NEEDLED_LEVEL_H

#include "kernels/table.h"

struct level {
    const char *name; /* "plain", "avx2", "avx512" */
    const struct backend_table *table;
    bool (*is_supported)(void); /* by this processor */
};

/* Best first, the last one runs everywhere. */
extern const struct level levels[];
extern const size_t level_count;

/* name NULL: the best that is supported. */
const struct level *level_find(const char *name, char *ret_reason, size_t reason_size);

#endif

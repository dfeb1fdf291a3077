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
#if defined(__x86_64__)
enum { LEVEL_COUNT = 3 };
#else
enum { LEVEL_COUNT = 1 };
#endif
extern const struct level levels[LEVEL_COUNT];
extern const size_t level_count;

/* Among these levels; name NULL: the best that is supported. The reason says what there is. */
const struct level *level_find(const struct level *among, size_t count, const char *name,
                               char *ret_reason, size_t reason_size);

#endif

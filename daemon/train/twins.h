/*
 * twins: which lines say the same.
 *
 * Purpose    Remembers the 64-bit hash of each line's texts with its number, and tells at a later line
 *            which earlier one was the same. Two different lines fall together once in 10^7 files of a
 *            million lines.
 * Ownership  twins_init / twins_release (caller's storage).
 * Threads    One thread at a time.
 * Failure    Past TWINS_MAX lines, or without memory, no more are remembered: `full` says so.
 */
#ifndef NEEDLED_TWINS_H
#define NEEDLED_TWINS_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define TWINS_MAX ((size_t)1 << 20) /* lines: 32 MiB of table at most */

struct twin {
    uint64_t hash;
    uint64_t line; /* from 1; 0: free */
};

struct twins {
    struct twin *table;
    size_t capacity, count; /* a power of two; lines in it */
    bool full;
};

void twins_init(struct twins *twins);
void twins_release(struct twins *twins); /* zeroed is fine */

uint64_t twins_hash(const char *prompt, size_t prompt_size, const char *target, size_t target_size);
/* The line with this hash, or 0. */
size_t twins_find(const struct twins *twins, uint64_t hash);
/* The same, and remembers the line if it is the first one. */
size_t twins_add(struct twins *twins, uint64_t hash, size_t line);

#endif

/*
 * arena: memory that lives and dies together.
 *
 * Purpose    One arena per request, job or line: allocate, never free singly, clear at the end.
 * Ownership  arena_init / arena_release (caller's storage); allocations die at clear or release.
 * Threads    One thread at a time.
 * Failure    arena_alloc returns NULL past the stated maximum or without memory.
 */
#ifndef NEEDLED_ARENA_H
#define NEEDLED_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *first;
    struct arena_block *current;
    size_t size_bytes; /* handed out since the last clear */
    size_t max_bytes;
    bool
        starved; /* since the last clear the system had no memory, which is not the content's fault */
};

void arena_init(struct arena *arena, size_t max_bytes);
void arena_release(struct arena *arena);                   /* gives the blocks back; NULL is fine */
void arena_clear(struct arena *arena);                     /* keeps the first block for reuse */
void *arena_alloc(struct arena *arena, size_t size_bytes); /* 16-byte aligned, zeroed, or NULL */
char *arena_copy(struct arena *arena, const char *text,
                 size_t size_bytes); /* adds a NUL; or NULL */

#endif

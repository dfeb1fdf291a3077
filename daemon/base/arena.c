#include "daemon/base/arena.h"

#include "daemon/base/size.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16
#define BLOCK_MIN_BYTES ((size_t)16 << 10)
#define BLOCK_MAX_BYTES ((size_t)4 << 20) /* doubling stops here; larger requests get their own */

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t capacity;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

void arena_init(struct arena *arena, size_t max_bytes)
{
    *arena = (struct arena){.max_bytes = max_bytes};
}

static void free_from(struct arena_block *block)
{
    while (block) {
        struct arena_block *next = block->next;

        free(block);
        block = next;
    }
}

void arena_release(struct arena *arena)
{
    if (!arena)
        return;
    free_from(arena->first);
    *arena = (struct arena){.max_bytes = arena->max_bytes};
}

void arena_clear(struct arena *arena)
{
    if (arena->first) {
        free_from(arena->first->next);
        arena->first->next = NULL;
        arena->first->used = 0;
    }
    arena->current = arena->first;
    arena->size_bytes = 0;
    arena->starved = false;
}

static struct arena_block *add_block(struct arena *arena, size_t size_bytes)
{
    size_t capacity = BLOCK_MIN_BYTES, total;
    struct arena_block *block;

    if (arena->current)
        capacity = arena->current->capacity;
    if (capacity < BLOCK_MAX_BYTES && arena->current)
        capacity *= 2;
    if (capacity > BLOCK_MAX_BYTES)
        capacity = BLOCK_MAX_BYTES;
    if (capacity < size_bytes)
        capacity = size_bytes;
    if (!size_add(capacity, sizeof(*block), &total))
        return NULL;
    block = malloc(total);
    if (!block) {
        arena->starved = true;
        return NULL;
    }
    block->next = NULL;
    block->used = 0;
    block->capacity = capacity;
    if (arena->current)
        arena->current->next = block;
    else
        arena->first = block;
    arena->current = block;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size_bytes)
{
    struct arena_block *block = arena->current;
    size_t rounded, total;
    void *memory;

    if (!size_add(size_bytes ? size_bytes : 1, ALIGNMENT - 1, &rounded))
        return NULL;
    rounded -= rounded % ALIGNMENT;
    if (!size_add(arena->size_bytes, rounded, &total) || total > arena->max_bytes)
        return NULL;
    if (!block || block->capacity - block->used < rounded)
        block = add_block(arena, rounded);
    if (!block)
        return NULL;
    memory = block->bytes + block->used;
    block->used += rounded;
    arena->size_bytes = total;
    memset(memory, 0, rounded);
    assert((uintptr_t)memory % ALIGNMENT == 0);
    return memory;
}

char *arena_copy(struct arena *arena, const char *text, size_t size_bytes)
{
    size_t total;
    char *copy;

    if (!size_add(size_bytes, 1, &total))
        return NULL;
    copy = arena_alloc(arena, total);
    if (copy && size_bytes)
        memcpy(copy, text, size_bytes);
    return copy;
}

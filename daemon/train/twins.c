#include "daemon/train/twins.h"

#include <stdlib.h>

#define CAPACITY_MIN ((size_t)1024)

void twins_init(struct twins *twins)
{
    *twins = (struct twins){0};
}

void twins_release(struct twins *twins)
{
    free(twins->table);
    *twins = (struct twins){0};
}

/* FNV-1a, and a last mixing so that the low bits are as good as the others. */
uint64_t twins_hash(const char *prompt, size_t prompt_size, const char *target, size_t target_size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < prompt_size; i++)
        hash = (hash ^ (unsigned char)prompt[i]) * UINT64_C(0x100000001b3);
    hash = (hash ^ 0x100) * UINT64_C(0x100000001b3); /* no byte: where the one ends */
    for (size_t i = 0; i < target_size; i++)
        hash = (hash ^ (unsigned char)target[i]) * UINT64_C(0x100000001b3);
    hash ^= hash >> 33;
    return hash * UINT64_C(0xff51afd7ed558ccd);
}

/* The place of a hash, or the free one where it would go. */
static struct twin *place_of(const struct twin *table, size_t capacity, uint64_t hash)
{
    size_t at = (size_t)(hash >> 20) & (capacity - 1);

    while (table[at].line && table[at].hash != hash)
        at = (at + 1) & (capacity - 1);
    return (struct twin *)(uintptr_t)&table[at];
}

size_t twins_find(const struct twins *twins, uint64_t hash)
{
    return twins->table ? (size_t)place_of(twins->table, twins->capacity, hash)->line : 0;
}

static bool grow(struct twins *twins)
{
    size_t capacity = twins->capacity ? 2 * twins->capacity : CAPACITY_MIN;
    struct twin *table;

    if (capacity > 2 * TWINS_MAX)
        return false;
    table = calloc(capacity, sizeof(*table));
    if (!table)
        return false;
    for (size_t i = 0; i < twins->capacity; i++) {
        if (twins->table[i].line)
            *place_of(table, capacity, twins->table[i].hash) = twins->table[i];
    }
    free(twins->table);
    twins->table = table;
    twins->capacity = capacity;
    return true;
}

size_t twins_add(struct twins *twins, uint64_t hash, size_t line)
{
    struct twin *place;

    if (2 * twins->count >= twins->capacity && !twins->full && !grow(twins))
        twins->full = true;
    if (!twins->table)
        return 0;
    place = place_of(twins->table, twins->capacity, hash);
    if (place->line)
        return (size_t)place->line;
    if (twins->full)
        return 0;
    *place = (struct twin){hash, line};
    twins->count++;
    return 0;
}

/*
 * draw: small random numbers that are the same everywhere.
 *
 * Purpose    PCG32 (O'Neill 2014) and what the lines need of it.
 * Ownership  A plain value.
 * Threads    One value, one thread.
 * Failure    None.
 */
#ifndef NEEDLED_LINES_DRAW_H
#define NEEDLED_LINES_DRAW_H

#include <stddef.h>
#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint32_t draw(struct random *random)
{
    uint64_t old = random->state;
    uint32_t mixed = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);

    random->state = old * 6364136223846793005u + 1442695040888963407u;
    return mixed >> turn | mixed << (-turn & 31);
}

static inline size_t draw_below(struct random *random, size_t count)
{
    return draw(random) % count;
}

/* Seeds next to each other part ways first. */
static inline struct random draw_start(uint64_t seed)
{
    struct random random = {.state = seed * 2 + 1442695040888963407u};

    for (int i = 0; i < 4; i++)
        (void)draw(&random);
    return random;
}

static inline void draw_order(struct random *random, size_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = draw_below(random, i), kept = items[i - 1];

        items[i - 1] = items[other];
        items[other] = kept;
    }
}

#endif

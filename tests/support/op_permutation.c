#include "tests/support/op_permutation.h"

/* MT19937, Matsumoto and Nishimura 1998. */
struct twister {
    uint32_t state[624];
    size_t next;
};

static uint32_t twister_draw(struct twister *t)
{
    if (t->next == 624) {
        for (size_t i = 0; i < 624; i++) {
            const uint32_t y =
                (t->state[i] & 0x80000000u) | (t->state[(i + 1) % 624] & 0x7fffffffu);

            t->state[i] = t->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        t->next = 0;
    }
    uint32_t y = t->state[t->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

void numpy_permutation(int32_t *numbers, size_t count, int32_t first, uint32_t seed)
{
    struct twister t = {.next = 624};

    t.state[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        t.state[i] = 1812433253u * (t.state[i - 1] ^ t.state[i - 1] >> 30) + i;
    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (int32_t)i;
    for (size_t i = count - 1; i > 0; i--) {
        uint32_t mask = (uint32_t)i, k;

        for (uint32_t shift = 1; shift < 32; shift *= 2)
            mask |= mask >> shift;
        do {
            k = twister_draw(&t) & mask;
        } while (k > i);
        const int32_t swapped = numbers[i];
        numbers[i] = numbers[k];
        numbers[k] = swapped;
    }
}

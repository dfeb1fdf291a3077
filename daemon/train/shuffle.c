#include "daemon/train/shuffle.h"

#include <assert.h>
#include <string.h>

#define POOL_WORDS 4
#define SEED_WORDS 4 /* 64-bit words: state and sequence, 128 bits each */

__extension__ typedef unsigned __int128 wide; /* the one type C has no name for */

static uint32_t hash_word(uint32_t value, uint32_t *constant)
{
    value ^= *constant;
    *constant *= 0x931e8875u;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t mix_words(uint32_t x, uint32_t y)
{
    const uint32_t mixed = x * 0xca01f9ddu - y * 0x4973f715u;

    return mixed ^ mixed >> 16;
}

/* SeedSequence(seed).generate_state(4, uint64). A seed of 64 bits never fills the pool. */
static void spread_seed(uint64_t seed, uint64_t ret_words[SEED_WORDS])
{
    const uint32_t entropy[POOL_WORDS] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t pool[POOL_WORDS], constant = 0x43b0d7e5u;

    for (size_t i = 0; i < POOL_WORDS; i++)
        pool[i] = hash_word(entropy[i], &constant);
    for (size_t source = 0; source < POOL_WORDS; source++)
        for (size_t target = 0; target < POOL_WORDS; target++)
            if (source != target)
                pool[target] = mix_words(pool[target], hash_word(pool[source], &constant));

    uint32_t out = 0x8b51f9ddu, halves[2 * SEED_WORDS];
    for (size_t i = 0; i < 2 * SEED_WORDS; i++) {
        uint32_t value = pool[i % POOL_WORDS] ^ out;

        out *= 0x58f38dedu;
        value *= out;
        halves[i] = value ^ value >> 16;
    }
    for (size_t i = 0; i < SEED_WORDS; i++)
        ret_words[i] = halves[2 * i] | (uint64_t)halves[2 * i + 1] << 32;
}

static wide join(uint64_t high, uint64_t low)
{
    return (wide)high << 64 | low;
}

static void step(struct shuffle *shuffle, wide added)
{
    const wide multiplier = join(0x2360ed051fc65da4u, 0x4385df649fccf645u);
    const wide increment = join(shuffle->increment_high, shuffle->increment_low);
    const wide state =
        (join(shuffle->state_high, shuffle->state_low) + added) * multiplier + increment;

    shuffle->state_high = (uint64_t)(state >> 64);
    shuffle->state_low = (uint64_t)state;
}

void shuffle_init(struct shuffle *shuffle, uint64_t seed)
{
    uint64_t words[SEED_WORDS];

    spread_seed(seed, words);
    const wide increment = join(words[2], words[3]) << 1 | 1;
    *shuffle = (struct shuffle){
        .increment_high = (uint64_t)(increment >> 64),
        .increment_low = (uint64_t)increment,
    };
    step(shuffle, 0);
    step(shuffle, join(words[0], words[1]));
}

static uint64_t next64(struct shuffle *shuffle)
{
    step(shuffle, 0);
    const uint64_t folded = shuffle->state_high ^ shuffle->state_low;
    const unsigned turn = (unsigned)(shuffle->state_high >> 58);

    return folded >> turn | folded << (-turn & 63);
}

static uint32_t next32(struct shuffle *shuffle)
{
    if (shuffle->has_half) {
        shuffle->has_half = 0;
        return (uint32_t)shuffle->half;
    }
    const uint64_t draw = next64(shuffle);
    shuffle->half = draw >> 32;
    shuffle->has_half = 1;
    return (uint32_t)draw;
}

/* Uniform in 0..max: the bits max needs, drawn again while past it. */
static uint32_t next_bounded(struct shuffle *shuffle, uint32_t max)
{
    uint32_t mask = max;

    for (unsigned shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    for (;;) {
        const uint32_t draw = next32(shuffle) & mask;
        if (draw <= max)
            return draw;
    }
}

void shuffle_permutation(struct shuffle *shuffle, size_t count, uint32_t *ret_order)
{
    assert(count <= UINT32_MAX);
    for (size_t i = 0; i < count; i++)
        ret_order[i] = (uint32_t)i;
    for (size_t i = count; i-- > 1;) {
        const uint32_t other = next_bounded(shuffle, (uint32_t)i);
        const uint32_t kept = ret_order[i];

        ret_order[i] = ret_order[other];
        ret_order[other] = kept;
    }
}

void shuffle_save(const struct shuffle *shuffle, uint64_t ret_words[SHUFFLE_WORDS])
{
    static_assert(sizeof(*shuffle) == SHUFFLE_WORDS * sizeof(uint64_t), "nothing but words");
    memcpy(ret_words, shuffle, sizeof(*shuffle));
}

void shuffle_restore(struct shuffle *shuffle, const uint64_t words[SHUFFLE_WORDS])
{
    memcpy(shuffle, words, sizeof(*shuffle));
}

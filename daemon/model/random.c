#include "daemon/model/random.h"

#include <math.h>
#include <string.h>

/* ---- MT19937, Matsumoto and Nishimura 1998, seeded with init_genrand --------------------------
 */

#define MT_COUNT 624
#define MT_SHIFT 397

struct twister {
    uint32_t state[MT_COUNT];
    size_t next;
};

static void twister_seed(struct twister *mt, uint32_t seed)
{
    mt->state[0] = seed;
    for (uint32_t i = 1; i < MT_COUNT; i++)
        mt->state[i] = 1812433253U * (mt->state[i - 1] ^ mt->state[i - 1] >> 30) + i;
    mt->next = MT_COUNT;
}

static void twister_renew(struct twister *mt)
{
    for (size_t i = 0; i < MT_COUNT; i++) {
        uint32_t joined =
            (mt->state[i] & 0x80000000U) | (mt->state[(i + 1) % MT_COUNT] & 0x7FFFFFFFU);

        mt->state[i] =
            mt->state[(i + MT_SHIFT) % MT_COUNT] ^ joined >> 1 ^ (joined & 1 ? 0x9908B0DFU : 0);
    }
    mt->next = 0;
}

static uint32_t twister_draw(struct twister *mt)
{
    uint32_t value;

    if (mt->next == MT_COUNT)
        twister_renew(mt);
    value = mt->state[mt->next++];
    value ^= value >> 11;
    value ^= value << 7 & 0x9D2C5680U;
    value ^= value << 15 & 0xEFC60000U;
    return value ^ value >> 18;
}

/* A whole number in [0, last]: draws under the smallest mask of ones until one is not too large. */
static uint32_t twister_interval(struct twister *mt, uint32_t last)
{
    uint32_t mask = last, value;

    for (int shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    do {
        value = twister_draw(mt) & mask;
    } while (value > last);
    return value;
}

void random_mt_permutation(uint32_t seed, size_t count, int32_t *ret_order)
{
    struct twister mt;

    twister_seed(&mt, seed);
    for (size_t i = 0; i < count; i++)
        ret_order[i] = (int32_t)i;
    for (size_t i = count; i-- > 1;) {
        uint32_t j = twister_interval(&mt, (uint32_t)i);
        int32_t kept = ret_order[i];

        ret_order[i] = ret_order[j];
        ret_order[j] = kept;
    }
}

/* ---- Threefry-2x32, 20 rounds, Salmon et al. 2011 ---------------------------------------------
 */

static uint32_t rotate_left(uint32_t value, int count)
{
    return value << count | value >> (32 - count);
}

static struct threefry_key threefry(struct threefry_key key, uint32_t x0, uint32_t x1)
{
    static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t schedule[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAU};

    x0 += schedule[0];
    x1 += schedule[1];
    for (uint32_t group = 0; group < 5; group++) {
        for (size_t round = 0; round < 4; round++) {
            x0 += x1;
            x1 = rotate_left(x1, rotations[group % 2][round]) ^ x0;
        }
        x0 += schedule[(group + 1) % 3];
        x1 += schedule[(group + 2) % 3] + group + 1;
    }
    return (struct threefry_key){x0, x1};
}

struct threefry_key threefry_key_from_seed(uint64_t seed)
{
    /* Without 64-bit mode the high word of a seed is lost before the key is made. */
    return (struct threefry_key){0, (uint32_t)seed};
}

struct threefry_key threefry_split(struct threefry_key *key)
{
    struct threefry_key sub = threefry(*key, 0, 1);

    *key = threefry(*key, 0, 0);
    return sub;
}

/* Inverse error function in float32, Giles 2010, summed with fused steps as XLA compiles it. */
static float inverse_erf(float x)
{
    static const float centre[] = {2.81022636e-08F,  3.43273939e-07F, -3.5233877e-06F,
                                   -4.39150654e-06F, 0.00021858087F,  -0.00125372503F,
                                   -0.00417768164F,  0.246640727F,    1.50140941F};
    static const float tail[] = {-0.000200214257F, 0.000100950558F, 0.00134934322F,
                                 -0.00367342844F,  0.00573950773F,  -0.0076224613F,
                                 0.00943887047F,   1.00167406F,     2.83297682F};
    float w = -log1pf(-x * x), sum;
    const float *factors = w < 5.0F ? centre : tail;

    w = w < 5.0F ? w - 2.5F : sqrtf(w) - 3.0F;
    sum = factors[0];
    for (size_t i = 1; i < sizeof(centre) / sizeof(centre[0]); i++)
        sum = fmaf(sum, w, factors[i]);
    return sum * x;
}

void threefry_normal(struct threefry_key key, uint64_t first, size_t count, float *ret_values)
{
    const float low = nextafterf(-1.0F, 0.0F);

    for (size_t i = 0; i < count; i++) {
        uint64_t position = first + i;
        struct threefry_key word =
            threefry(key, (uint32_t)(position >> 32), (uint32_t)(position & 0xFFFFFFFFU));
        uint32_t bits = (word.a ^ word.b) >> 9 | 0x3F800000U; /* a float in [1, 2) */
        float uniform;

        memcpy(&uniform, &bits, sizeof(uniform));
        uniform = (uniform - 1.0F) * (1.0F - low) + low;
        ret_values[i] = 0x1.6a09e6p+0F * inverse_erf(uniform < low ? low : uniform); /* sqrt(2) */
    }
}

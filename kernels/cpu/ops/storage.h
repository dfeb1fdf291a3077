/*
 * storage: frozen arrays read as they lie in their file.
 *
 * Purpose    Elements of a struct table to float32, at any address, in loops that become SIMD.
 * Ownership  None.
 * Threads    Any.
 * Failure    None. What is not finite stays so.
 */
#ifndef NEEDLED_STORAGE_H
#define NEEDLED_STORAGE_H

#include "kernels/cpu/ops/vector.h"
#include "kernels/ops.h"

#define STORAGE_CHUNK 64 /* elements converted at once: a loop of constant length */

static inline size_t storage_element_bytes(const struct table *table)
{
    return table->storage == STORAGE_F32 ? 4 : 2;
}

/* Asks for elements [first, first + count) to be brought near: they are read soon. */
static inline void storage_prefetch(const struct table *table, size_t first, size_t count)
{
    const size_t size_bytes = storage_element_bytes(table);
    const char *bytes = (const char *)table->values + first * size_bytes;

    for (size_t i = 0; i < count * size_bytes; i += 64)
        __builtin_prefetch(bytes + i);
}

/* Both ways of a float16 are worked out and one is chosen, without a branch: the exponent moved up
 * by 112 (by 224 for what is not finite), or, where it is 0, a fraction that the processor
 * normalises. */
static inline float storage_widen(uint16_t half)
{
    const uint32_t moved = (uint32_t)(half & 0x7fffu) << 13, exponent = moved & 0x0f800000u;
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t normal = moved + 0x38000000u + (exponent == 0x0f800000u ? 0x38000000u : 0);
    const uint32_t tiny = vector_bits(vector_from_bits(moved + 0x38800000u) - 0x1p-14f);

    return vector_from_bits((exponent ? normal : tiny) | sign);
}

static inline void storage_widen_chunk(float *restrict y, const uint16_t *restrict half,
                                       enum storage storage)
{
    if (storage == STORAGE_F16)
        for (size_t i = 0; i < STORAGE_CHUNK; i++)
            y[i] = storage_widen(half[i]);
    else
        for (size_t i = 0; i < STORAGE_CHUNK; i++)
            y[i] = vector_from_bits((uint32_t)half[i] << 16);
}

/* y = elements [first, first + count) as float32; not rounded. */
static inline void storage_read(float *y, const struct table *table, size_t first, size_t count)
{
    uint16_t half[STORAGE_CHUNK] = {0};
    float last[STORAGE_CHUNK];
    size_t i = 0;

    if (table->storage == STORAGE_F32) {
        memcpy(y, (const char *)table->values + first * sizeof *y, count * sizeof *y);
        return;
    }

    const char *bytes = (const char *)table->values + first * sizeof half[0];
    for (; i + STORAGE_CHUNK <= count; i += STORAGE_CHUNK) {
        memcpy(half, bytes + i * sizeof half[0], sizeof half);
        storage_widen_chunk(&y[i], half, table->storage);
    }
    if (i == count)
        return;
    memcpy(half, bytes + i * sizeof half[0], (count - i) * sizeof half[0]);
    storage_widen_chunk(last, half, table->storage);
    memcpy(&y[i], last, (count - i) * sizeof *y);
}

#endif

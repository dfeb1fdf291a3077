/*
 * cuda_fp16: takes the toolkit's header's place: float16 as storage, with its conversion.
 *
 * Purpose    What gpu.h needs to read float16 arrays.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_STANDIN_CUDA_FP16_H
#define NEEDLED_STANDIN_CUDA_FP16_H

#include <stdint.h>
#include <string.h>

struct __half {
    uint16_t bits;
};

static inline struct __half __ushort_as_half(unsigned short bits)
{
    return {bits};
}

static inline float __half2float(struct __half half)
{
    const uint32_t sign = (uint32_t)(half.bits & 0x8000) << 16;
    const uint32_t exponent = half.bits >> 10 & 31, fraction = half.bits & 0x3ff;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float value;

    if (exponent == 0) { /* subnormal or zero: exact as a product */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif

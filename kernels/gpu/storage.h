/*
 * storage: elements of frozen arrays as their files hold them, as float32.
 *
 * Purpose    float32, float16 and bfloat16 at any address, exactly (struct table of ops.h).
 * Ownership  None.
 * Threads    Each for itself.
 * Failure    None. What is not finite stays so.
 */
#ifndef NEEDLED_GPU_STORAGE_H
#define NEEDLED_GPU_STORAGE_H

#include "kernels/gpu/gpu.h"

#define GPU_STORAGE_F32 0 /* enum storage, for OpenCL, which does not read ops.h */
#define GPU_STORAGE_F16 1
#define GPU_STORAGE_BF16 2

DEVICE float float_of_bits(unsigned int bits)
{
    union {
        unsigned int bits;
        float value;
    } both;

    both.bits = bits;
    return both.value;
}

DEVICE unsigned int bits_of_float(float value)
{
    union {
        unsigned int bits;
        float value;
    } both;

    both.value = value;
    return both.bits;
}

/* The exponent moves up by 112 (by 224 for what is not finite), or, where it is 0, a subtraction
 * makes the fraction a normal number. */
DEVICE float widen_half(unsigned int half_bits)
{
    const unsigned int moved = (half_bits & 0x7fffu) << 13, exponent = moved & 0x0f800000u;
    const float size =
        exponent == 0
            ? float_of_bits(moved + 0x38800000u) - float_of_bits(0x38800000u)
            : float_of_bits(moved + 0x38000000u + (exponent == 0x0f800000u ? 0x38000000u : 0u));

    return half_bits & 0x8000u ? -size : size;
}

/* value: not negative. To float16, half to even, and back; infinite past 65504; NaN stays NaN. */
DEVICE float through_half(float value)
{
    if (!(value < 65520.0f))
        return value * float_of_bits(0x7f800000u);
    if (value < float_of_bits(0x38800000u)) /* 2^-14: below it steps of 2^-24, those of 0.75 */
        return (value + 0.75f) - 0.75f;

    const unsigned int bits = bits_of_float(value);

    return float_of_bits((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

/* aligned: the address is a multiple of the element's size. */
DEVICE float load_stored(GLOBAL const gpu_u8 *values, int storage, int aligned, gpu_size index)
{
    unsigned int bits;

    if (storage == GPU_STORAGE_F32) {
        if (aligned)
            return ((GLOBAL const float *)values)[index];
        values += 4 * index;
        bits = (unsigned int)values[0] | (unsigned int)values[1] << 8 |
               (unsigned int)values[2] << 16 | (unsigned int)values[3] << 24;
        return float_of_bits(bits);
    }
    if (aligned) {
        bits = ((GLOBAL const gpu_u16 *)values)[index];
    } else {
        values += 2 * index;
        bits = (unsigned int)values[0] | (unsigned int)values[1] << 8;
    }
    return storage == GPU_STORAGE_F16 ? widen_half(bits) : float_of_bits(bits << 16);
}

#endif

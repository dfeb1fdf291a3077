/*
 * size: sums and products of counts that came from outside.
 *
 * Purpose    Every size derived from a file or request is computed here, so overflow is seen.
 * Ownership  None.
 * Threads    Any.
 * Failure    Return false on overflow and leave *ret_size untouched.
 */
#ifndef NEEDLED_SIZE_H
#define NEEDLED_SIZE_H

#include "daemon/base/error.h"

#include <stddef.h>

MUST_CHECK static inline bool size_add(size_t a, size_t b, size_t *ret_size)
{
    size_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *ret_size = sum;
    return true;
}

MUST_CHECK static inline bool size_mul(size_t a, size_t b, size_t *ret_size)
{
    size_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *ret_size = product;
    return true;
}

#endif

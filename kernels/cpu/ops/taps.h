/*
 * taps: a causal convolution along ancestors, for the ops that have one inside.
 *
 * Purpose    Single rows forward; the formula is in kernels/ref/taps.c.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_TAPS_H
#define NEEDLED_TAPS_H

#include "kernels/ops.h"

/* One row: y [C] of token n. */
void taps_row(float *y, const float *x, const float *taps, const struct tree *tree, size_t n,
              size_t C, size_t tap_count, size_t dilation);

#endif

/*
 * quant: rounding of single rows, for the ops that round on their way out.
 *
 * Purpose    The 8-bit grid of a row and the code grid of a row, as in kernels/ref/quant.c.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_QUANT_H
#define NEEDLED_QUANT_H

#include "kernels/ops.h"

/* y may be x. Bit for bit what the oracle gives. */
void quant_round_a8(float *y, const float *x, size_t C);

/* The same where the largest |x| is known already. */
void quant_round_a8_within(float *y, const float *x, float largest, size_t C);

/* Every row of x [rows,C]. */
void quant_round_a8_rows(float *y, const float *x, size_t rows, size_t C);

/* Every row of x [rows,C] to code values, groups along the row. y may be x. */
void quant_round_code_rows(float *y, const float *x, size_t rows, size_t C,
                           const struct codebook *codebook);

/* Every column of y [rows,cols], whose rows stand `stride` apart, to code values in place, groups
 * along the column. */
void quant_round_code_columns(float *y, size_t rows, size_t cols, size_t stride,
                              const struct codebook *codebook);

#endif

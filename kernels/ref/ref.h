/*
 * ref: the oracle, one plain function an op.
 *
 * Purpose    ref_<op> has the op's own parameters and no backend: ref.c puts them into a table, the
 *            cpu backend falls back on them, tests call what the table calls.
 * Ownership  None; nothing is allocated. Rows that are needed twice stand on the stack in f64.
 * Threads    Any; one call runs on its caller's thread.
 * Failure    None.
 *
 * Sums over a row, a product or a softmax are f64. Gradients of weights that need a whole row of
 * other values first (monarch, hyper) add one f32 term a token.
 */
#ifndef NEEDLED_REF_H
#define NEEDLED_REF_H

#include "kernels/backend.h"

#define REF_WIDTH_MAX 4096 /* longest vector kept on the stack, in elements; asserted */
#define REF_LANES_MAX 8
#define REF_RANK_MAX 64
#define REF_EPSILON 1e-6 /* under every root of a mean square */

#define REF_DECLARE(name, parameters, arguments) REF_DECLARE_(name, OP_STRIP parameters)
#define REF_DECLARE_(name, ...) void ref_##name(__VA_ARGS__);
OPS(REF_DECLARE)
#undef REF_DECLARE

/* y = x on a grid: one 8-bit scale for all C values; y may be x. */
void ref_round_a8_row(float *y, const float *x, size_t C);
/* y = x + (code(x) - x) for one row; index [groups, group] and norm [groups] may be NULL. x and y
 * advance by `stride` elements. y may be x. */
void ref_round_code_row(float *y, uint8_t *index, float *norm, const float *x, size_t C,
                        size_t stride, const struct codebook *codebook);
/* Element `index` of the table as float32, not rounded. */
float ref_table_value(const struct table *table, size_t index);
/* The nearest float16 value, half to even; inf past 65504. */
float ref_float16(float value);

/* The ancestor `steps` above n (0: n itself), or -1. */
int32_t ref_ancestor(const struct tree *tree, size_t n, size_t steps);

double ref_sigmoid(double x);
/* 1 / sqrt(mean x^2 + eps) */
double ref_inverse_rms(const float *x, size_t C);

#endif

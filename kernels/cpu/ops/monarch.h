/*
 * monarch: tiles of tokens on their way through the Monarch layer.
 *
 * Purpose    What forward and backward share: the layout of a tile and the walk through it.
 * Ownership  A tile points into the scratch of one team part.
 * Threads    Any; one tile belongs to one thread.
 * Failure    None.
 *
 * A tile of T tokens is kept as [a,T,b]: channel i b + j of token t at (i T + t) b + j. So the
 * product with an [a,a] factor is one product [a,a] [a, T b], that with a [b,b] factor one product
 * [a T, b] [b,b].
 */
#ifndef NEEDLED_MONARCH_H
#define NEEDLED_MONARCH_H

#include "kernels/cpu/cpu.h"

struct monarch_tile {
    const struct monarch *w;
    size_t T, b_shift;             /* b = 1 << b_shift */
    float *in1, *z1, *e, *c, *in2; /* names as in the formula, [a,T,b] each */
    float *z2, *in3, *z3;
    float *dk, *dz, *left; /* work */
    float *m, *dm;         /* [T,rank] */
};

/* Tokens of a tile and floats of its scratch, by the width alone. */
size_t monarch_tile_tokens(const struct monarch *weights);
size_t monarch_tile_floats(const struct monarch *weights);
struct monarch_tile monarch_tile(const struct monarch *weights, float *scratch);

/* Everything from x [T,D] to z3. */
void monarch_tile_forward(struct monarch_tile *tile, const float *x, size_t T);

/* out = K(in; wa, wb), or the transpose of K when `back`. Uses left. */
void monarch_kron(const struct monarch_tile *tile, float *out, const float *in, const float *wa,
                  const float *wb, bool back);

/* Where channel q of token 0 stands. */
static inline size_t monarch_place(const struct monarch_tile *tile, size_t q)
{
    size_t b = (size_t)1 << tile->b_shift;
    return ((q >> tile->b_shift) * tile->T << tile->b_shift) + (q & (b - 1));
}

#endif

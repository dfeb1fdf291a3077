/*
 * hyper: what reading the lanes shares between its two directions.
 *
 * Purpose    Sizes of a call, the rounded and normalised lanes of a token, logits side by side.
 * Ownership  Caller's arrays.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_HYPER_H
#define NEEDLED_HYPER_H

#include "kernels/cpu/ops/vector.h"
#include "kernels/ops.h"

#define HYPER_TILE LANES /* tokens of a tile: what the Sinkhorn rounds take side by side */

struct hyper_sizes {
    size_t n, D, width, M; /* width = n D, M = 2 n + n n */
};

static inline struct hyper_sizes hyper_sizes(const struct hyper *weights)
{
    const size_t n = weights->lanes, D = weights->D;

    return (struct hyper_sizes){.n = n, .D = D, .width = n * D, .M = 2 * n + n * n};
}

/* Which of the three scales coefficient m has. */
static inline size_t hyper_part_of(size_t m, size_t n)
{
    return m < n ? 0 : m < 2 * n ? 1 : 2;
}

struct hyper_measure {
    double squares; /* sum S^2; not finite if any of S is not */
    float largest;  /* max |S|; without meaning if squares is not finite */
};

struct hyper_measure hyper_measure(const float *S, size_t width);

/* nx = round(S r), to the oracle's bits. */
void hyper_normalise(float *nx, const float *S, float r, const struct hyper_measure *measure,
                     enum rounding rounding, size_t width);

/* logits [M,LANES] = scale raw + bias from raw [count,M]; unused lanes repeat the last token. */
void hyper_logits(float *logits, const float *raw, size_t count, const struct hyper *weights);

#endif

/*
 * embed: rows of a table by token.
 *
 *   x[n,d]              = scale table[tokens[n],d]
 *   dtable[tokens[n],d] += scale dx[n,d]
 *
 * Shapes    x dx [N,D]; table dtable [vocabulary,D]; tokens [N].
 * Writes    x is set; dtable accumulates, n ascending.
 * Numerics  f32.
 * Source    Plain.
 */
#include "kernels/ref/ref.h"

void ref_embed_forward(float *x, const float *table, const uint32_t *tokens, float scale, size_t N,
                       size_t D)
{
    for (size_t n = 0; n < N; n++)
        for (size_t d = 0; d < D; d++)
            x[n * D + d] = scale * table[(size_t)tokens[n] * D + d];
}

void ref_embed_backward(float *dtable, const float *dx, const uint32_t *tokens, float scale,
                        size_t N, size_t D)
{
    if (!dtable)
        return;
    for (size_t n = 0; n < N; n++)
        for (size_t d = 0; d < D; d++)
            dtable[(size_t)tokens[n] * D + d] += scale * dx[n * D + d];
}

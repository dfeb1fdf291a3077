/*
 * embed: x[n,d] = scale table[tokens[n],d]; its gradient is in scatter.cu.
 *
 * Shapes    x [N,D]; table [vocabulary,D]; tokens [N].
 * Writes    x is set.
 * Numerics  f32.
 * Source    As kernels/ref/embed.c.
 */
#include "kernels/gpu/rows.h"

KERNEL gpu_embed_forward(GLOBAL float *RESTRICT x, GLOBAL const float *RESTRICT table,
                         GLOBAL const int *RESTRICT tokens, float scale, int D)
{
    const gpu_size source = (gpu_size)tokens[GROUP] * (gpu_size)D;
    const gpu_size target = (gpu_size)GROUP * (gpu_size)D;

    for (int d = THREAD; d < D; d += GROUP_SIZE)
        x[target + d] = scale * table[source + d];
}

/*
 * cross_entropy: what stands between the matrix products of the loss; the formula is in
 * kernels/ref/cross_entropy.c.
 *
 *   for a block of targets: their rows of x, gathered; logits a tile of the vocabulary at a time,
 *   each looked at (the largest, its first column, sum exp(logit - largest), the label's), the loss;
 *   then gradients of the logits, tile by tile, and from them those of the rows and of the table
 *
 * Shapes    rows [targets,D]; logits [targets,width], the columns first ... of all [targets,vocab];
 *           largest total wanted best loss hit row label weight [targets]; row ascending.
 * Writes    rows, loss, hit, and with first 0 largest, total, wanted, best are set; logits in place;
 *           dx accumulates.
 * Numerics  f32; a tile's sum is 256 sums of every 256th column, added up as group_sum does; tiles
 *           ascending; the rows of one token in ascending order.
 * Source    As kernels/ref/cross_entropy.c.
 */
#include "kernels/gpu/attention.h"

KERNEL gpu_entropy_gather(GLOBAL float *RESTRICT rows, GLOBAL const float *RESTRICT x,
                          GLOBAL const int *RESTRICT row, int D)
{
    const gpu_size target = (gpu_size)GROUP * (gpu_size)D;
    const gpu_size source = (gpu_size)row[GROUP] * (gpu_size)D;

    for (int d = THREAD; d < D; d += GROUP_SIZE)
        rows[target + d] = x[source + d];
}

KERNEL gpu_entropy_look(GLOBAL float *RESTRICT largest, GLOBAL float *RESTRICT total,
                        GLOBAL float *RESTRICT wanted, GLOBAL int *RESTRICT best,
                        GLOBAL const float *RESTRICT logits, GLOBAL const int *RESTRICT label,
                        int first, int width)
{
    SHARED float scratch[GROUP_SCRATCH];
    GLOBAL const float *tile = logits + (gpu_size)GROUP * (gpu_size)width;
    const int column = label[GROUP] - first;
    float most = -INFINITY, sum = 0;
    int at = width;

    for (int w = THREAD; w < width; w += GROUP_SIZE) {
        if (tile[w] > most) {
            most = tile[w];
            at = w;
        }
    }
    const float tile_most = group_max(most, scratch);
    /* the first column: the least of the threads' firsts; a tile's columns are exact in float */
    const float tile_at = -group_max(most == tile_most ? -(float)at : -(float)width, scratch);
    const float before = first > 0 ? largest[GROUP] : -INFINITY;
    const float now = fmaxf(before, tile_most);

    for (int w = THREAD; w < width; w += GROUP_SIZE)
        sum += expf(tile[w] - now);
    sum = group_sum(sum, scratch); /* after it no thread reads largest any more */
    if (THREAD == 0) {
        total[GROUP] = (first > 0 ? total[GROUP] * expf(before - now) : 0.0f) + sum;
        if (first == 0 || tile_most > before)
            best[GROUP] = first + (int)tile_at;
        largest[GROUP] = now;
        if (column >= 0 && column < width)
            wanted[GROUP] = tile[column];
    }
}

KERNEL gpu_entropy_loss(GLOBAL float *RESTRICT loss, GLOBAL float *RESTRICT hit,
                        GLOBAL const float *RESTRICT largest, GLOBAL const float *RESTRICT total,
                        GLOBAL const float *RESTRICT wanted, GLOBAL const int *RESTRICT best,
                        GLOBAL const int *RESTRICT label, int targets)
{
    const int m = GROUP * GROUP_SIZE + THREAD;

    if (m >= targets)
        return; /* no barrier below */
    loss[m] = largest[m] - wanted[m] + logf(total[m]);
    hit[m] = best[m] == label[m] ? 1.0f : 0.0f;
}

KERNEL gpu_entropy_gradient(GLOBAL float *RESTRICT logits, GLOBAL const float *RESTRICT largest,
                            GLOBAL const float *RESTRICT total, GLOBAL const int *RESTRICT label,
                            GLOBAL const float *RESTRICT weight, float gradient_scale, int first,
                            int width)
{
    const int w = GROUP * GROUP_SIZE + THREAD;
    const gpu_size at = (gpu_size)GROUP_Y * (gpu_size)width + (gpu_size)w;

    if (w >= width)
        return; /* no barrier below */
    const float share = expf(logits[at] - largest[GROUP_Y]) / total[GROUP_Y];
    const float wanted = first + w == label[GROUP_Y] ? 1.0f : 0.0f;

    logits[at] = gradient_scale * weight[GROUP_Y] * (share - wanted);
}

KERNEL gpu_entropy_scatter(GLOBAL float *RESTRICT dx, GLOBAL const float *RESTRICT rows,
                           GLOBAL const int *RESTRICT row, int targets, int D)
{
    const int token = row[GROUP];

    if (GROUP > 0 && row[GROUP - 1] == token)
        return; /* the group of the first of them adds them all */
    for (int d = THREAD; d < D; d += GROUP_SIZE) {
        const gpu_size at = (gpu_size)token * (gpu_size)D + (gpu_size)d;
        float sum = 0;

        for (int m = GROUP; m < targets && row[m] == token; m++)
            sum += rows[(gpu_size)m * (gpu_size)D + (gpu_size)d];
        dx[at] += sum;
    }
}

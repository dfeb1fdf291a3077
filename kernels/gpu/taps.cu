/*
 * taps: a causal convolution of each channel along a token's ancestors.
 *
 *   y[n,c]     = sum_j taps[j,c] x[a(n,j),c]            a(n,j): the ancestor j dilation above n;
 *   dx[m,c]    = sum_{n: a(n,j) = m} taps[j,c] dy[n,c]            a term without one is 0
 *   dtaps[j,c] = sum_n dy[n,c] x[a(n,j),c]: partials over blocks of rows, then gpu_add_columns
 *
 * A token's descendants are a range, in which whatever is too deep is skipped a subtree at a time:
 * dx is gathered, not scattered.
 *
 * Shapes    x y dx dy [N,C], N tokens of the tree; taps [tap_count,C]; partials [B,tap_count,C].
 * Writes    y, dx, partials are set. Neither y may be x nor dx be dy.
 * Numerics  f32; dx adds its terms n ascending.
 * Source    As kernels/ref/taps.c.
 */
#include "kernels/gpu/rows.h"
#include "kernels/gpu/tree.h"

KERNEL gpu_taps_forward(GLOBAL float *RESTRICT y, GLOBAL const float *RESTRICT x,
                        GLOBAL const float *RESTRICT taps, GLOBAL const int *RESTRICT parent,
                        GLOBAL const int *RESTRICT run, int C, int tap_count, int dilation)
{
    const int n = GROUP, c = GROUP_Y * GROUP_SIZE + THREAD;
    int m = n;
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int j = 0; j < tap_count && m >= 0; j++) {
        sum += taps[(gpu_size)j * (gpu_size)C + (gpu_size)c] *
               x[(gpu_size)m * (gpu_size)C + (gpu_size)c];
        m = tree_ancestor(parent, run, m, dilation);
    }
    y[(gpu_size)n * (gpu_size)C + (gpu_size)c] = sum;
}

KERNEL gpu_taps_backward(GLOBAL float *RESTRICT dx, GLOBAL const float *RESTRICT dy,
                         GLOBAL const float *RESTRICT taps, GLOBAL const int *RESTRICT depth,
                         GLOBAL const int *RESTRICT end, int C, int tap_count, int dilation)
{
    const int m = GROUP, c = GROUP_Y * GROUP_SIZE + THREAD;
    const int past = end[m], own_depth = depth[m];
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int n = m; n < past;) {
        const int below = depth[n] - own_depth, j = below / dilation;

        if (j * dilation == below && j < tap_count)
            sum += taps[(gpu_size)j * (gpu_size)C + (gpu_size)c] *
                   dy[(gpu_size)n * (gpu_size)C + (gpu_size)c];
        n = j < tap_count - 1 ? n + 1 : end[n]; /* the last tap's descendants are too deep */
    }
    dx[(gpu_size)m * (gpu_size)C + (gpu_size)c] = sum;
}

KERNEL gpu_taps_partials(GLOBAL float *RESTRICT partials, GLOBAL const float *RESTRICT dy,
                         GLOBAL const float *RESTRICT x, GLOBAL const int *RESTRICT parent,
                         GLOBAL const int *RESTRICT run, int N, int C, int tap_count, int dilation)
{
    const int j = GROUP % tap_count, c = GROUP / tap_count * GROUP_SIZE + THREAD;
    const int begin = GROUP_Y * GPU_PARTIAL_ROWS;
    const int past = begin + GPU_PARTIAL_ROWS < N ? begin + GPU_PARTIAL_ROWS : N;
    float sum = 0;

    if (c >= C)
        return; /* no barrier below */
    for (int n = begin; n < past; n++) {
        const int m = tree_ancestor(parent, run, n, j * dilation);

        if (m >= 0)
            sum += dy[(gpu_size)n * (gpu_size)C + (gpu_size)c] *
                   x[(gpu_size)m * (gpu_size)C + (gpu_size)c];
    }
    partials[((gpu_size)GROUP_Y * (gpu_size)tap_count + (gpu_size)j) * (gpu_size)C + (gpu_size)c] =
        sum;
}

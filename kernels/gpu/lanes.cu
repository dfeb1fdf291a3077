/*
 * lanes: a stream copied into n lanes at the start, averaged at the end.
 *
 *   spread:  S[n,i,d] = x[n,d] / divisor       forward 1; backward of the mean: lanes
 *   sum:     x[n,d]   = sum_i S[n,i,d] / divisor       backward of the spread 1; mean: lanes
 *
 * Shapes    x [N,D]; S [N,lanes,D].
 * Writes    Every output is set.
 * Numerics  f32, i ascending.
 * Source    As kernels/ref/lanes.c.
 */
#include "kernels/gpu/rows.h"

KERNEL gpu_lanes_spread(GLOBAL float *RESTRICT S, GLOBAL const float *RESTRICT x, float divisor,
                        int lanes, int D)
{
    const gpu_size row = (gpu_size)GROUP * (gpu_size)D;

    for (int d = THREAD; d < D; d += GROUP_SIZE) {
        const float value = x[row + d] / divisor;

        for (int i = 0; i < lanes; i++)
            S[row * (gpu_size)lanes + (gpu_size)i * (gpu_size)D + d] = value;
    }
}

KERNEL gpu_lanes_sum(GLOBAL float *RESTRICT x, GLOBAL const float *RESTRICT S, float divisor,
                     int lanes, int D)
{
    const gpu_size row = (gpu_size)GROUP * (gpu_size)D;

    for (int d = THREAD; d < D; d += GROUP_SIZE) {
        float sum = 0;

        for (int i = 0; i < lanes; i++)
            sum += S[row * (gpu_size)lanes + (gpu_size)i * (gpu_size)D + d];
        x[row + d] = sum / divisor;
    }
}

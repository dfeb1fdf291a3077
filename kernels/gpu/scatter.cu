/*
 * scatter: rows added to the rows of tables that they came from, in two launches.
 *
 *   dtable[t, index[n,t], s] += scale dy[n, t sub + s]
 *
 * Several n may name one row. The first of them adds all up, following links:
 *   next[t,n] = the next m > n with index[m,t] = index[n,t], N if there is none;
 *               -1 - that where n is not the first, or index[n,t] is -1
 *
 * Shapes    dy [N, tables sub]; dtable [tables, slots, sub]; index [N, tables]; next [tables, N].
 * Writes    next is set; dtable accumulates, n ascending.
 * Numerics  f32, one product and one addition each.
 * Source    As kernels/ref/embed.c (one table) and kernels/ref/gather.c (scale 1).
 */
#include "kernels/gpu/rows.h"

KERNEL gpu_scatter_links(GLOBAL int *RESTRICT next, GLOBAL const int *RESTRICT index, int N,
                         int tables)
{
    SHARED int strip[GROUP_SIZE];
    const int n = GROUP * GROUP_SIZE + THREAD, t = GROUP_Y;
    const int slot = n < N ? index[(gpu_size)n * (gpu_size)tables + (gpu_size)t] : -1;
    int following = N, seen = slot < 0;

    for (int begin = 0; begin < N; begin += GROUP_SIZE) {
        const int m = begin + THREAD;
        const int count = N - begin < GROUP_SIZE ? N - begin : GROUP_SIZE;

        SYNC(); /* the strip before may still be read */
        if (m < N)
            strip[THREAD] = index[(gpu_size)m * (gpu_size)tables + (gpu_size)t];
        SYNC();
        for (int i = 0; i < count; i++) {
            if (strip[i] != slot)
                continue;
            if (begin + i < n)
                seen = 1;
            else if (begin + i > n && begin + i < following)
                following = begin + i;
        }
    }
    if (n < N)
        next[(gpu_size)t * (gpu_size)N + (gpu_size)n] = seen ? -1 - following : following;
}

KERNEL gpu_scatter_add(GLOBAL float *RESTRICT dtable, GLOBAL const float *RESTRICT dy,
                       GLOBAL const int *RESTRICT index, GLOBAL const int *RESTRICT next,
                       float scale, int N, int tables, int slots, int sub)
{
    const int first = GROUP, t = GROUP_Y;
    GLOBAL const int *links = &next[(gpu_size)t * (gpu_size)N];

    if (links[first] < 0) /* the same way for all threads; no barrier below */
        return;

    const gpu_size slot = (gpu_size)index[(gpu_size)first * (gpu_size)tables + (gpu_size)t];
    const gpu_size target = ((gpu_size)t * (gpu_size)slots + slot) * (gpu_size)sub;

    for (int s = THREAD; s < sub; s += GROUP_SIZE) {
        float sum = dtable[target + s];

        for (int n = first; n < N;) {
            const int link = links[n];

            sum += scale * dy[((gpu_size)n * (gpu_size)tables + (gpu_size)t) * (gpu_size)sub + s];
            n = link < 0 ? -1 - link : link;
        }
        dtable[target + s] = sum;
    }
}

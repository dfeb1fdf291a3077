/*
 * team: sums over a few threads of a group, for kernels whose rows are short.
 *
 * Purpose    A group of 256 works on 16 rows at once, 16 threads to each.
 * Ownership  scratch is SHARED float [GROUP_SIZE]; the same one may serve call after call.
 * Threads    All of the group call together: the functions contain barriers.
 * Failure    None.
 */
#ifndef NEEDLED_GPU_TEAM_H
#define NEEDLED_GPU_TEAM_H

#include "kernels/gpu/gpu.h"

#define TEAM_SIZE 16
#define TEAM_COUNT (GROUP_SIZE / TEAM_SIZE)
#define TEAM (THREAD / TEAM_SIZE) /* which of the group's teams */
#define MEMBER (THREAD % TEAM_SIZE)

/* Every thread gets the sum (the largest) of its team's values, in an order that depends on nothing. */
#define team_sum(value, scratch) GPU_SITE(gpu_team_sum(value, scratch))
#define team_max(value, scratch) GPU_SITE(gpu_team_max(value, scratch))

DEVICE float gpu_team_sum(float value, LOCAL float *scratch)
{
    SYNC(); /* the call before may still be reading */
    scratch[THREAD] = value;
    SYNC();
    for (int half_count = TEAM_SIZE / 2; half_count > 0; half_count /= 2) {
        if (MEMBER < half_count)
            scratch[THREAD] += scratch[THREAD + half_count];
        SYNC();
    }
    return scratch[TEAM * TEAM_SIZE];
}

DEVICE float gpu_team_max(float value, LOCAL float *scratch)
{
    SYNC(); /* the call before may still be reading */
    scratch[THREAD] = value;
    SYNC();
    for (int half_count = TEAM_SIZE / 2; half_count > 0; half_count /= 2) {
        if (MEMBER < half_count)
            scratch[THREAD] = fmaxf(scratch[THREAD], scratch[THREAD + half_count]);
        SYNC();
    }
    return scratch[TEAM * TEAM_SIZE];
}

#endif

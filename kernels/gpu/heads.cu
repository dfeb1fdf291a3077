/*
 * heads: norm, rotation and 8-bit rounding of each head; the formula is in kernels/ref/heads.c.
 * Taps come before (taps.cu), codes after (quant.cu).
 *
 * Shapes    As kernels/ref/heads.c; a row is one head of one token: row n H + h.
 * Writes    y, r, dt, partials are set. y may be t: a thread reads before it writes, and the same
 *           elements.
 * Numerics  f32; a row's sum is 16 sums of every 16th element, added up as team_sum does; a gain's
 *           goes down 16 parts of a share of rows in order, then the parts, then the shares.
 * Source    As kernels/ref/heads.c.
 */
#include "kernels/gpu/attention.h"
#include "kernels/gpu/round.h"
#include "kernels/gpu/team.h"

KERNEL gpu_heads_forward(GLOBAL float *y, GLOBAL float *r, GLOBAL const float *t,
                         GLOBAL const float *gain, GLOBAL const float *cosines,
                         GLOBAL const float *sines, GLOBAL const int *depth, gpu_size rows, int H,
                         int C, int rounding)
{
    SHARED float scratch[GROUP_SIZE];
    const gpu_size row = (gpu_size)GROUP * TEAM_COUNT + (gpu_size)TEAM;
    const gpu_size at = row * (gpu_size)C;
    const int mine = row < rows, half_size = C / 2;
    float sum = 0, largest = 0;

    if (gain) { /* the same way for all threads */
        for (int c = MEMBER; mine && c < C; c += TEAM_SIZE)
            sum += t[at + c] * t[at + c];
        sum = team_sum(sum, scratch);

        const float inverse = 1.0f / sqrtf(sum / (float)C + GPU_EPSILON);
        const gpu_size angle = mine ? (gpu_size)depth[row / (gpu_size)H] * (gpu_size)half_size : 0;

        if (mine && MEMBER == 0)
            r[row] = inverse;
        for (int c = MEMBER; mine && c < half_size; c += TEAM_SIZE) {
            const float z1 = (1.0f + gain[c]) * t[at + c] * inverse;
            const float z2 = (1.0f + gain[c + half_size]) * t[at + c + half_size] * inverse;
            const float cosine = cosines[angle + c], sine = sines[angle + c];
            const float y1 = z1 * cosine - z2 * sine, y2 = z2 * cosine + z1 * sine;

            y[at + c] = y1;
            y[at + c + half_size] = y2;
            largest = fmaxf(largest, fmaxf(fabsf(y1), fabsf(y2)));
        }
    } else {
        for (int c = MEMBER; mine && c < C; c += TEAM_SIZE) {
            y[at + c] = t[at + c];
            largest = fmaxf(largest, fabsf(t[at + c]));
        }
    }
    if (rounding == GPU_ROUND_A8) { /* the same way for all threads */
        const float scale = a8_scale(team_max(largest, scratch));

        for (int c = MEMBER; mine && c < C; c += TEAM_SIZE)
            y[at + c] = a8_round(y[at + c], scale, 1.0f / scale);
    }
}

/* What dy[c] was before the rotation. */
DEVICE float turned_back(GLOBAL const float *dy, GLOBAL const float *cosines,
                         GLOBAL const float *sines, int c, int half_size)
{
    if (c < half_size)
        return dy[c] * cosines[c] + dy[c + half_size] * sines[c];
    return dy[c] * cosines[c - half_size] - dy[c - half_size] * sines[c - half_size];
}

KERNEL gpu_heads_backward(GLOBAL float *RESTRICT dt, GLOBAL const float *RESTRICT dy,
                          GLOBAL const float *RESTRICT t, GLOBAL const float *RESTRICT gain,
                          GLOBAL const float *RESTRICT r, GLOBAL const float *RESTRICT cosines,
                          GLOBAL const float *RESTRICT sines, GLOBAL const int *RESTRICT depth,
                          gpu_size rows, int H, int C)
{
    SHARED float scratch[GROUP_SIZE];
    const gpu_size row = (gpu_size)GROUP * TEAM_COUNT + (gpu_size)TEAM;
    const gpu_size at = row * (gpu_size)C;
    const int mine = row < rows, half_size = C / 2;
    const gpu_size angle = mine ? (gpu_size)depth[row / (gpu_size)H] * (gpu_size)half_size : 0;
    const float inverse = mine ? r[row] : 0.0f;
    float mean = 0;

    for (int c = MEMBER; mine && c < C; c += TEAM_SIZE) {
        const float dz = turned_back(dy + at, cosines + angle, sines + angle, c, half_size);

        dt[at + c] = (1.0f + gain[c]) * dz;
        mean += dt[at + c] * t[at + c];
    }
    mean = team_sum(mean, scratch) * inverse * inverse / (float)C;
    for (int c = MEMBER; mine && c < C; c += TEAM_SIZE)
        dt[at + c] = inverse * (dt[at + c] - t[at + c] * mean);
}

/* A group has 16 columns and 16 parts of the rows; a thread goes down one of each. */
KERNEL gpu_heads_gain_partials(GLOBAL float *RESTRICT partials, GLOBAL const float *RESTRICT dy,
                               GLOBAL const float *RESTRICT t, GLOBAL const float *RESTRICT r,
                               GLOBAL const float *RESTRICT cosines,
                               GLOBAL const float *RESTRICT sines, GLOBAL const int *RESTRICT depth,
                               gpu_size rows, gpu_size share, int H, int C)
{
    SHARED float scratch[GROUP_SIZE];
    const int c = GROUP * TEAM_SIZE + MEMBER, half_size = C / 2;
    const gpu_size begin = (gpu_size)GROUP_Y * share;
    const gpu_size end = begin + share < rows ? begin + share : rows;
    float sum = 0;

    for (gpu_size row = begin + (gpu_size)TEAM; c < C && row < end; row += TEAM_COUNT) {
        const gpu_size at = row * (gpu_size)C;
        const gpu_size angle = (gpu_size)depth[row / (gpu_size)H] * (gpu_size)half_size;

        sum += turned_back(dy + at, cosines + angle, sines + angle, c, half_size) *
               t[at + (gpu_size)c] * r[row];
    }
    scratch[THREAD] = sum;
    SYNC();
    if (TEAM == 0 && c < C) {
        for (int part = 1; part < TEAM_COUNT; part++)
            sum += scratch[part * TEAM_SIZE + MEMBER];
        partials[(gpu_size)GROUP_Y * (gpu_size)C + (gpu_size)c] = sum;
    }
}

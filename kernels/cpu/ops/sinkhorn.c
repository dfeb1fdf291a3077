/*
 * sinkhorn: see kernels/ref/hyper.c.
 *
 * Two ways to the same numbers. In log space, for any matrix:
 *
 *   half-round:  L = L - logsumexp of its line        line: a row, then a column
 *   backward:    dL = dL - exp(L) (sum of dL over the line), L after the half-round
 *
 * As products, for 4 x 4 matrices whose logits are at most RANGE apart, so that nothing leaves the
 * range of f32. Without exp or log in a round, and with 4 values to keep of each half-round:
 *
 *   K = exp(L - max L),  c = 1;  20 rounds of  r_i = 1 / sum_j K_ij c_j,  c_j = 1 / sum_i K_ij r_i
 *   mix_ij = K_ij r_i c_j
 *   backward, with a = dlog r, b = dlog c, from the last round to the first, c' of the round before:
 *     G_ij = dmix_ij mix_ij,  a_i = sum_j G_ij,  b_j = sum_i G_ij,  E = 0
 *     s_j = b_j c_j;  E_ij += r_i s_j;  a_i -= r_i sum_j K_ij s_j
 *     q_i = a_i r_i;  E_ij += q_i c'_j;  b_j = -c'_j sum_i K_ij q_i;  a = 0
 *     dL_ij = G_ij - K_ij E_ij
 *
 * Shapes    [n,n,LANES], the tokens side by side.
 * Numerics  f32; the largest of a line (of a matrix) is taken out before exp.
 * Source    Sinkhorn and Knopp 1967.
 */
#include "kernels/cpu/ops/sinkhorn.h"

#include "kernels/cpu/ops/wide.h"

#include <stdbool.h>

#define QUAD 4
#define ROUNDS (SINKHORN_HALF_ROUNDS / 2)
#define RANGE 30.0f /* r and c stay below exp(2 RANGE), about */

static_assert(LANES % WIDE == 0, "tokens side by side fill whole vectors");

/* ---- in log space ---------------------------------------------------------------------------- */

/* One line: n rows of LANES values, `step` rows apart. */
static void normalise_line(float *L, size_t n, size_t step)
{
    float largest[LANES], total[LANES] = {0};

    memcpy(largest, L, sizeof largest);
    for (size_t j = 1; j < n; j++) {
        const float *row = &L[j * step * LANES];
        for (size_t l = 0; l < LANES; l++)
            largest[l] = row[l] > largest[l] ? row[l] : largest[l];
    }
    for (size_t j = 0; j < n; j++) {
        const float *row = &L[j * step * LANES];
        for (size_t l = 0; l < LANES; l++)
            total[l] += vector_exp(row[l] - largest[l]);
    }
    for (size_t l = 0; l < LANES; l++)
        largest[l] += vector_log(total[l]);
    for (size_t j = 0; j < n; j++) {
        float *row = &L[j * step * LANES];
        for (size_t l = 0; l < LANES; l++)
            row[l] -= largest[l];
    }
}

/* L in place; states (or NULL) takes it after each half-round. */
static void log_rounds(float *L, float *states, size_t n)
{
    for (size_t half = 0; half < SINKHORN_HALF_ROUNDS; half++) {
        for (size_t i = 0; i < n; i++) {
            if (half % 2 == 0)
                normalise_line(&L[i * n * LANES], n, 1);
            else
                normalise_line(&L[i * LANES], n, n);
        }
        if (states)
            memcpy(&states[half * n * n * LANES], L, n * n * LANES * sizeof *L);
    }
}

static void line_backward(float *dL, const float *L, size_t n, size_t step)
{
    float total[LANES] = {0};

    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < LANES; l++)
            total[l] += dL[j * step * LANES + l];
    for (size_t j = 0; j < n; j++) {
        size_t at = j * step * LANES;
        for (size_t l = 0; l < LANES; l++)
            dL[at + l] -= vector_exp(L[at + l]) * total[l];
    }
}

static void log_forward(float *mix, const float *logits, size_t n)
{
    const size_t count = n * n * LANES;

    memmove(mix, logits, count * sizeof *mix);
    log_rounds(mix, NULL, n);
    for (size_t k = 0; k < count; k++)
        mix[k] = vector_exp(mix[k]);
}

static void log_backward(float *dL, const float *dmix, const float *logits, size_t n, float *states)
{
    const size_t count = n * n * LANES;

    memmove(dL, logits, count * sizeof *dL);
    log_rounds(dL, states, n);
    for (size_t k = 0; k < count; k++)
        dL[k] = dmix[k] * vector_exp(dL[k]);
    for (size_t half = SINKHORN_HALF_ROUNDS; half-- > 0;) {
        const float *L = &states[half * n * n * LANES];
        for (size_t i = 0; i < n; i++) {
            if (half % 2 == 0)
                line_backward(&dL[i * n * LANES], &L[i * n * LANES], n, 1);
            else
                line_backward(&dL[i * LANES], &L[i * LANES], n, n);
        }
    }
}

/* ---- as products ----------------------------------------------------------------------------- */

struct quad {
    float kernel[QUAD * QUAD][LANES];
    float scales[SINKHORN_HALF_ROUNDS][QUAD][LANES]; /* r, c by turns */
};

/* K, and which tokens are too far apart (or not numbers); returns whether any is. */
static bool quad_kernel(struct quad *q, bool *far, const float *logits)
{
    float least[LANES], most[LANES];
    bool any = false;

    memcpy(least, logits, sizeof least);
    memcpy(most, logits, sizeof most);
    for (size_t m = 1; m < QUAD * QUAD; m++) {
        for (size_t l = 0; l < LANES; l++) {
            float value = logits[m * LANES + l];
            least[l] = value < least[l] ? value : least[l];
            most[l] = value > most[l] ? value : most[l];
        }
    }
    for (size_t m = 0; m < QUAD * QUAD; m++)
        for (size_t l = 0; l < LANES; l++)
            q->kernel[m][l] = vector_exp(logits[m * LANES + l] - most[l]);
    for (size_t l = 0; l < LANES; l++) {
        bool is_number = true;
        for (size_t m = 0; m < QUAD * QUAD; m++)
            is_number &= q->kernel[m][l] == q->kernel[m][l];
        far[l] = !is_number || !(most[l] - least[l] <= RANGE);
        any |= far[l];
    }
    return any;
}

/* Of WIDE tokens from `lane`; keeps every half-round, or the last two at the place of the first. */
WIDE_INLINE void quad_rounds(struct quad *q, size_t lane, bool keep)
{
    wide K[QUAD * QUAD], r[QUAD], c[QUAD];

    for (size_t m = 0; m < QUAD * QUAD; m++)
        K[m] = wide_load(&q->kernel[m][lane]);
    for (size_t j = 0; j < QUAD; j++)
        c[j] = (wide){0} + 1.0f;
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < QUAD; i++)
            r[i] = 1.0f / ((K[i * QUAD] * c[0] + K[i * QUAD + 1] * c[1]) +
                           (K[i * QUAD + 2] * c[2] + K[i * QUAD + 3] * c[3]));
        for (size_t j = 0; j < QUAD; j++)
            c[j] = 1.0f / ((K[j] * r[0] + K[QUAD + j] * r[1]) +
                           (K[2 * QUAD + j] * r[2] + K[3 * QUAD + j] * r[3]));
        for (size_t i = 0; keep && i < QUAD; i++) {
            wide_store(&q->scales[2 * round][i][lane], r[i]);
            wide_store(&q->scales[2 * round + 1][i][lane], c[i]);
        }
    }
    for (size_t i = 0; !keep && i < QUAD; i++) {
        wide_store(&q->scales[0][i][lane], r[i]);
        wide_store(&q->scales[1][i][lane], c[i]);
    }
}

static void quad_mix(float *mix, struct quad *q)
{
    for (size_t lane = 0; lane < LANES; lane += WIDE)
        quad_rounds(q, lane, false);
    for (size_t i = 0; i < QUAD; i++)
        for (size_t j = 0; j < QUAD; j++)
            for (size_t l = 0; l < LANES; l++)
                mix[(i * QUAD + j) * LANES + l] =
                    q->kernel[i * QUAD + j][l] * q->scales[0][i][l] * q->scales[1][j][l];
}

/* One round back: E, a and b as above; `before` is c', or NULL for 1. */
WIDE_INLINE void quad_round_backward(wide *E, wide *a, wide *b, const struct quad *q, size_t round,
                                     size_t lane)
{
    wide r[QUAD], s[QUAD], before[QUAD];

    for (size_t j = 0; j < QUAD; j++) {
        r[j] = wide_load(&q->scales[2 * round][j][lane]);
        s[j] = b[j] * wide_load(&q->scales[2 * round + 1][j][lane]);
        before[j] = round ? wide_load(&q->scales[2 * round - 1][j][lane]) : (wide){0} + 1.0f;
        b[j] = (wide){0};
    }
    for (size_t i = 0; i < QUAD; i++) {
        wide K[QUAD], sum = {0};
        for (size_t j = 0; j < QUAD; j++) {
            K[j] = wide_load(&q->kernel[i * QUAD + j][lane]);
            sum += K[j] * s[j];
        }
        wide change = (a[i] - r[i] * sum) * r[i];
        for (size_t j = 0; j < QUAD; j++) {
            E[i * QUAD + j] += r[i] * s[j] + change * before[j];
            b[j] -= K[j] * change;
        }
        a[i] = (wide){0};
    }
    for (size_t j = 0; j < QUAD; j++)
        b[j] *= before[j];
}

static void quad_backward(float *dL, const float *dmix, struct quad *q, size_t lane)
{
    wide E[QUAD * QUAD] = {0}, a[QUAD] = {0}, b[QUAD] = {0};

    quad_rounds(q, lane, true);
    for (size_t i = 0; i < QUAD; i++) {
        wide r = wide_load(&q->scales[2 * ROUNDS - 2][i][lane]);
        for (size_t j = 0; j < QUAD; j++) {
            const size_t m = i * QUAD + j;
            wide c = wide_load(&q->scales[2 * ROUNDS - 1][j][lane]);
            wide G = wide_load(&dmix[m * LANES + lane]) * wide_load(&q->kernel[m][lane]) * r * c;
            wide_store(&dL[m * LANES + lane], G);
            a[i] += G;
            b[j] += G;
        }
    }
    for (size_t round = ROUNDS; round-- > 0;)
        quad_round_backward(E, a, b, q, round, lane);
    for (size_t m = 0; m < QUAD * QUAD; m++) {
        wide G = wide_load(&dL[m * LANES + lane]);
        wide_store(&dL[m * LANES + lane], G - wide_load(&q->kernel[m][lane]) * E[m]);
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

static void take_lanes(float *target, const float *source, const bool *taken, size_t rows)
{
    for (size_t m = 0; m < rows; m++)
        for (size_t l = 0; l < LANES; l++)
            if (taken[l])
                target[m * LANES + l] = source[m * LANES + l];
}

size_t sinkhorn_scratch_count(size_t n)
{
    return (1 + SINKHORN_HALF_ROUNDS) * n * n * LANES;
}

void sinkhorn_forward(float *mix, const float *logits, size_t n, float *scratch)
{
    struct quad q;
    bool far[LANES];

    if (n != QUAD) {
        log_forward(mix, logits, n);
        return;
    }
    bool any_far = quad_kernel(&q, far, logits);
    if (any_far)
        log_forward(scratch, logits, n);
    quad_mix(mix, &q);
    if (any_far)
        take_lanes(mix, scratch, far, n * n);
}

void sinkhorn_backward(float *dlogits, const float *dmix, const float *logits, size_t n,
                       float *scratch)
{
    float *result = scratch, *states = scratch + n * n * LANES;
    struct quad q;
    bool far[LANES], any_far = true;

    if (n == QUAD)
        any_far = quad_kernel(&q, far, logits);
    if (any_far)
        log_backward(result, dmix, logits, n, states);
    for (size_t lane = 0; n == QUAD && lane < LANES; lane += WIDE)
        quad_backward(dlogits, dmix, &q, lane);
    if (n != QUAD)
        memcpy(dlogits, result, n * n * LANES * sizeof *dlogits);
    else if (any_far)
        take_lanes(dlogits, result, far, n * n);
}

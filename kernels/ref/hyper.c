/*
 * hyper: hyper-connections with a doubly stochastic mix of the lanes.
 *
 *   read:
 *     r      = 1 / sqrt(mean S^2 + eps) over all n D values of a token,   nx = round(S r)
 *     raw[m] = sum_k nx[k] phi[k,m],   l[m] = scale(m) raw[m] + bias[m]
 *     pre    = sigmoid(l_pre),   post = 2 sigmoid(l_post),   res = sinkhorn(l_res)
 *     u[d]   = sum_i pre[i] S[i,d]
 *   mix:     u alone, from S and h
 *   sinkhorn, 20 rounds:  L = L - logsumexp_j(L[i,j]), then L = L - logsumexp_i(L[i,j]); res = exp
 * L read backward, with dpost and dres given: dpre[i]      = sum_d du[d] S[i,d] dl_pre       = dpre
 * pre (1 - pre),   dl_post = dpost post (1 - post / 2) dl_res:        dL = dres res, then each
 * half-round back: dL = dL - exp(L) sum(dL) over its axis dscale(k)    = sum_{n, m of k} dl[m]
 * raw[m],   dbias[m] = sum_n dl[m] draw[m]      = scale(m) dl[m],   dphi[k,m] = sum_n nx[k] draw[m]
 *     dnx[k]       = sum_m phi[k,m] draw[m]
 *     dS[i,d]     += pre[i] du[d] + r (dnx[i D + d] - S[i,d] r^2 mean_k(dnx[k] S[k]))
 *   write:
 *     T[i,d]       = sum_j res[i,j] S[j,d] + post[i] (y[d] - u[d])
 *   write backward:
 *     dS[j,d]      = sum_i res[i,j] dT[i,d],   dy[d] = sum_i post[i] dT[i,d],   du = -dy
 *     dpost[i]     = sum_d dT[i,d] (y[d] - u[d]),   dres[i,j] = sum_d dT[i,d] S[j,d]
 *
 * Shapes    S T dS dT [N,n,D]; u y du dy [N,D]; h dh raw [N,M], M = 2 n + n n: pre, post, res;
 *           r [N]; phi [n D,M]; bias [M]; scale [3].
 * Writes    read: u, h, raw, r are set; backward: dS and weight gradients accumulate (one f32 term
 * a token). write: T, dS, dy, dh are set, the pre part of dh to 0. T may not be S; dS may be dT.
 * Numerics  f32 in and out; everything between f64 in ref; nx is f32 when rounded; eps 1e-6; the
 *           gradient passes the rounding.
 * Source    Xie et al. 2025, arXiv:2512.24880 (mHC); Sinkhorn and Knopp 1967; Needle
 *           architecture.py, _ScanBody and _sinkhorn.
 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define ROUNDS 20
#define MIX_MAX (REF_LANES_MAX * REF_LANES_MAX)
#define COEFFICIENTS_MAX (2 * REF_LANES_MAX + MIX_MAX)

/* L = L - logsumexp along one axis: `step` apart within a line, `line` between lines. */
static void normalise(double *L, size_t n, size_t line, size_t step)
{
    for (size_t i = 0; i < n; i++) {
        double *first = &L[i * line], largest = -INFINITY, total = 0;

        for (size_t j = 0; j < n; j++)
            largest = fmax(largest, first[j * step]);
        for (size_t j = 0; j < n; j++)
            total += exp(first[j * step] - largest);
        for (size_t j = 0; j < n; j++)
            first[j * step] -= largest + log(total);
    }
}

/* L [n,n] after every half-round: states[2 k] rows, states[2 k + 1] columns. */
static void sinkhorn(double states[2 * ROUNDS][MIX_MAX], const double *l, size_t n)
{
    const double *previous = l;

    for (size_t half = 0; half < 2 * ROUNDS; half++) {
        const bool rows = half % 2 == 0;

        memcpy(states[half], previous, n * n * sizeof(*l));
        normalise(states[half], n, rows ? n : 1, rows ? 1 : n);
        previous = states[half];
    }
}

static void sinkhorn_backward(double *dL, double states[2 * ROUNDS][MIX_MAX], size_t n)
{
    for (size_t half = 2 * ROUNDS; half-- > 0;) {
        const bool rows = half % 2 == 0;
        const size_t line = rows ? n : 1, step = rows ? 1 : n;

        for (size_t i = 0; i < n; i++) {
            double total = 0;

            for (size_t j = 0; j < n; j++)
                total += dL[i * line + j * step];
            for (size_t j = 0; j < n; j++)
                dL[i * line + j * step] -= exp(states[half][i * line + j * step]) * total;
        }
    }
}

/* Which of the three scales coefficient m has. */
static size_t part_of(size_t m, size_t lanes)
{
    return m < lanes ? 0 : m < 2 * lanes ? 1 : 2;
}

/* The token's normalised lanes, in f32 as they are multiplied. */
static void normalise_lanes(float *nx, const float *S, double r, const struct hyper *weights)
{
    const size_t width = weights->lanes * weights->D;

    for (size_t k = 0; k < width; k++)
        nx[k] = (float)(S[k] * r);
    if (weights->rounding == ROUND_A8)
        ref_round_a8_row(nx, nx, width);
}

static void coefficients(float *h, const float *raw, const struct hyper *weights)
{
    const size_t n = weights->lanes, M = 2 * n + n * n;
    double l[COEFFICIENTS_MAX] = {0}, states[2 * ROUNDS][MIX_MAX];

    for (size_t m = 0; m < M; m++)
        l[m] = (double)weights->scale[part_of(m, n)] * raw[m] + weights->bias[m];
    sinkhorn(states, &l[2 * n], n);
    for (size_t i = 0; i < n; i++) {
        h[i] = (float)ref_sigmoid(l[i]);
        h[n + i] = (float)(2.0 * ref_sigmoid(l[n + i]));
    }
    for (size_t m = 0; m < n * n; m++)
        h[2 * n + m] = (float)exp(states[2 * ROUNDS - 1][m]);
}

void ref_hyper_mix(float *u, const float *S, const float *h, size_t N, size_t lanes, size_t D)
{
    const size_t M = 2 * lanes + lanes * lanes;

    for (size_t token = 0; token < N; token++)
        for (size_t d = 0; d < D; d++) {
            double sum = 0;

            for (size_t i = 0; i < lanes; i++)
                sum += (double)h[token * M + i] * S[(token * lanes + i) * D + d];
            u[token * D + d] = (float)sum;
        }
}

void ref_hyper_read_forward(float *u, float *h, float *raw, float *r, const float *S,
                            const struct hyper *weights, size_t N)
{
    const size_t n = weights->lanes, D = weights->D, M = 2 * n + n * n;
    float nx[REF_LANES_MAX * REF_WIDTH_MAX];

    assert(n <= REF_LANES_MAX);
    assert(D <= REF_WIDTH_MAX);
    for (size_t token = 0; token < N; token++) {
        const float *lanes = &S[token * n * D];
        float *h_token = &h[token * M], *raw_token = &raw[token * M];

        r[token] = (float)ref_inverse_rms(lanes, n * D);
        normalise_lanes(nx, lanes, r[token], weights);
        for (size_t m = 0; m < M; m++) {
            double sum = 0;

            for (size_t k = 0; k < n * D; k++)
                sum += (double)nx[k] * weights->phi[k * M + m];
            raw_token[m] = (float)sum;
        }
        coefficients(h_token, raw_token, weights);
    }
    ref_hyper_mix(u, S, h, N, n, D);
}

/* dl [M] of one token from dpre (in place of dh's) and dh's post and res parts. */
static void coefficients_backward(double *dl, const double *dpre, const float *dh, const float *h,
                                  const float *raw, const struct hyper *weights)
{
    const size_t n = weights->lanes;
    double l[MIX_MAX] = {0}, states[2 * ROUNDS][MIX_MAX];

    for (size_t i = 0; i < n; i++) {
        const double pre = h[i], post = h[n + i];

        dl[i] = dpre[i] * pre * (1.0 - pre);
        dl[n + i] = dh[n + i] * post * (1.0 - post / 2.0);
    }
    for (size_t m = 0; m < n * n; m++)
        l[m] = (double)weights->scale[2] * raw[2 * n + m] + weights->bias[2 * n + m];
    sinkhorn(states, l, n);
    for (size_t m = 0; m < n * n; m++)
        dl[2 * n + m] = dh[2 * n + m] * exp(states[2 * ROUNDS - 1][m]);
    sinkhorn_backward(&dl[2 * n], states, n);
}

/* The share of one token in the weights' gradients; draw is made from dl. */
static void weights_backward(const struct hyper_gradients *gradients, const double *dl,
                             const double *draw, const float *nx, const float *raw,
                             const struct hyper *weights)
{
    const size_t n = weights->lanes, M = 2 * n + n * n;

    for (size_t m = 0; m < M; m++) {
        gradients->bias[m] += (float)dl[m];
        gradients->scale[part_of(m, n)] += (float)(dl[m] * raw[m]);
        for (size_t k = 0; k < n * weights->D; k++)
            gradients->phi[k * M + m] += (float)(nx[k] * draw[m]);
    }
}

void ref_hyper_read_backward(float *dS, const struct hyper_gradients *gradients, const float *du,
                             const float *dh, const float *S, const float *h, const float *raw,
                             const float *r, const struct hyper *weights, size_t N)
{
    const size_t n = weights->lanes, D = weights->D, M = 2 * n + n * n;
    double dl[COEFFICIENTS_MAX], draw[COEFFICIENTS_MAX], dpre[REF_LANES_MAX];
    double dnx[REF_LANES_MAX * REF_WIDTH_MAX];
    float nx[REF_LANES_MAX * REF_WIDTH_MAX];

    assert(n <= REF_LANES_MAX);
    assert(D <= REF_WIDTH_MAX);
    for (size_t token = 0; token < N; token++) {
        const float *lanes = &S[token * n * D], *du_token = &du[token * D];
        const double rn = r[token];
        double mean = 0;

        for (size_t i = 0; i < n; i++) {
            dpre[i] = 0;
            for (size_t d = 0; d < D; d++)
                dpre[i] += (double)du_token[d] * lanes[i * D + d];
        }
        coefficients_backward(dl, dpre, &dh[token * M], &h[token * M], &raw[token * M], weights);
        for (size_t m = 0; m < M; m++)
            draw[m] = weights->scale[part_of(m, n)] * dl[m];
        if (gradients && gradients->phi) {
            normalise_lanes(nx, lanes, rn, weights);
            weights_backward(gradients, dl, draw, nx, &raw[token * M], weights);
        }
        for (size_t k = 0; k < n * D; k++) {
            dnx[k] = 0;
            for (size_t m = 0; m < M; m++)
                dnx[k] += weights->phi[k * M + m] * draw[m];
            mean += dnx[k] * lanes[k];
        }
        mean *= rn * rn / (double)(n * D);
        for (size_t k = 0; k < n * D; k++)
            dS[token * n * D + k] += (float)((double)h[token * M + k / D] * du_token[k % D] +
                                             rn * (dnx[k] - lanes[k] * mean));
    }
}

void ref_hyper_write_forward(float *T, const float *S, const float *h, const float *y,
                             const float *u, size_t N, size_t lanes, size_t D)
{
    const size_t n = lanes, M = 2 * n + n * n;

    for (size_t token = 0; token < N; token++) {
        const float *post = &h[token * M + n], *res = &h[token * M + 2 * n];

        for (size_t k = 0; k < n * D; k++) {
            const size_t i = k / D, d = k % D;
            double sum = post[i] * ((double)y[token * D + d] - u[token * D + d]);

            for (size_t j = 0; j < n; j++)
                sum += (double)res[i * n + j] * S[(token * n + j) * D + d];
            T[token * n * D + k] = (float)sum;
        }
    }
}

/* dh of one token. */
static void write_backward_weights(float *dh_token, const float *dT_token, const float *S_token,
                                   const float *y_token, const float *u_token, size_t n, size_t D)
{
    for (size_t i = 0; i < n; i++) {
        double dpost = 0;

        for (size_t d = 0; d < D; d++)
            dpost += dT_token[i * D + d] * ((double)y_token[d] - u_token[d]);
        dh_token[i] = 0;
        dh_token[n + i] = (float)dpost;
        for (size_t j = 0; j < n; j++) {
            double dres = 0;

            for (size_t d = 0; d < D; d++)
                dres += (double)dT_token[i * D + d] * S_token[j * D + d];
            dh_token[2 * n + i * n + j] = (float)dres;
        }
    }
}

void ref_hyper_write_backward(float *dS, float *dy, float *dh, const float *dT, const float *S,
                              const float *h, const float *y, const float *u, size_t N,
                              size_t lanes, size_t D)
{
    const size_t n = lanes, M = 2 * n + n * n;

    assert(n <= REF_LANES_MAX);
    for (size_t token = 0; token < N; token++) {
        const float *post = &h[token * M + n], *res = &h[token * M + 2 * n];
        const float *dT_token = &dT[token * n * D], *S_token = &S[token * n * D];

        write_backward_weights(&dh[token * M], dT_token, S_token, &y[token * D], &u[token * D], n,
                               D);
        for (size_t d = 0; d < D; d++) {
            double sum = 0;

            for (size_t i = 0; i < n; i++)
                sum += (double)post[i] * dT_token[i * D + d];
            dy[token * D + d] = (float)sum;
        }
        for (size_t d = 0; d < D; d++) {
            float column[REF_LANES_MAX] = {0}; /* read before dS, which may be dT, is written */

            for (size_t i = 0; i < n; i++)
                column[i] = dT_token[i * D + d];
            for (size_t j = 0; j < n; j++) {
                double sum = 0;

                for (size_t i = 0; i < n; i++)
                    sum += (double)res[i * n + j] * column[i];
                dS[(token * n + j) * D + d] = (float)sum;
            }
        }
    }
}

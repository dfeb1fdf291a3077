/*
 * heads: queries, keys or values from their projection to what attention reads.
 *
 *   t[n,h,c] = sum_j taps[j,h,c] x[a(n,j),h,c]          a(n,j): the ancestor j above n; or t = x
 *   r[n,h]   = 1 / sqrt(mean_c t[n,h,c]^2 + eps)
 *   z[n,h,c] = (1 + g[c]) t[n,h,c] r[n,h]
 *   with p = depth[n], K = C / 2, c < K:
 *     y[c]   = z[c] cos[p,c] - z[c+K] sin[p,c]
 *     y[c+K] = z[c+K] cos[p,c] + z[c] sin[p,c]          then y[n,h,:] is rounded
 *   without g (values): y = round(t)
 *   backward turns dy back by the same angle (dz), then
 *   dt[c]    = r ((1 + g[c]) dz[c] - t[c] r^2 mean_k((1 + g[k]) dz[k] t[k]))
 *   dg[c]    = sum_{n,h} dz[n,h,c] t[n,h,c] r[n,h]
 *   dx, dtaps from dt as in taps.c
 *
 * Shapes    x y t dx dy [N,H,C]; r [N,H]; g dg [C]; taps dtaps [tap_count,H,C]; cos sin
 * [positions,C/2]. Writes    y, t, r, dx are set; dtaps, dg accumulate. dx may not be dy. Numerics
 * f32 in and out; sums f64 in ref; dx adds its taps in f32, n ascending; eps 1e-6; the gradient
 * passes the rounding. Rounding A8 has one scale a head. Source    Needle architecture.py,
 * MultiHeadAttention, apply_rope; Su et al. 2021, arXiv:2104.09864.
 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <string.h>

static void round_head(float *y, const struct heads *heads)
{
    switch (heads->rounding) {
    case ROUND_NONE:
        return;
    case ROUND_A8:
        ref_round_a8_row(y, y, heads->head_size);
        return;
    case ROUND_CODE:
        ref_round_code_row(y, NULL, NULL, y, heads->head_size, 1, &heads->codebook);
        return;
    }
}

/* Norm and rotation of one head at position p. */
static void norm_and_turn(float *y, const float *t, double r, const struct heads *heads, size_t p)
{
    const size_t half = heads->head_size / 2;

    for (size_t c = 0; c < half; c++) {
        const double z1 = (1.0 + heads->gain[c]) * t[c] * r;
        const double z2 = (1.0 + heads->gain[c + half]) * t[c + half] * r;
        const double cosine = heads->cos[p * half + c], sine = heads->sin[p * half + c];

        y[c] = (float)(z1 * cosine - z2 * sine);
        y[c + half] = (float)(z2 * cosine + z1 * sine);
    }
}

void ref_heads_forward(float *y, float *t, float *r, const float *x, const struct heads *heads,
                       const struct tree *tree)
{
    const size_t H = heads->head_count, C = heads->head_size;

    if (heads->tap_count > 0)
        ref_taps_forward(t, x, heads->taps, tree, H * C, heads->tap_count, 1);
    for (size_t n = 0; n < tree->token_count; n++) {
        for (size_t h = 0; h < H; h++) {
            const size_t head = n * H + h;
            const float *tapped = heads->tap_count > 0 ? &t[head * C] : &x[head * C];

            if (heads->gain) {
                r[head] = (float)ref_inverse_rms(tapped, C);
                norm_and_turn(&y[head * C], tapped, r[head], heads, (size_t)tree->depth[n]);
            } else {
                memmove(&y[head * C], tapped, C * sizeof(*y));
            }
            round_head(&y[head * C], heads);
        }
    }
}

/* dt of one head; dgain, if wanted, gets its share. */
static void head_backward(double *dt, float *dgain, const float *dy, const float *t, double r,
                          const struct heads *heads, size_t p)
{
    const size_t C = heads->head_size, half = C / 2;
    double mean = 0;

    if (!heads->gain) {
        for (size_t c = 0; c < C; c++)
            dt[c] = dy[c];
        return;
    }
    for (size_t c = 0; c < half; c++) {
        const double cosine = heads->cos[p * half + c], sine = heads->sin[p * half + c];

        dt[c] = dy[c] * cosine + dy[c + half] * sine;
        dt[c + half] = dy[c + half] * cosine - dy[c] * sine;
    }
    for (size_t c = 0; c < C; c++) {
        if (dgain)
            dgain[c] += (float)(dt[c] * t[c] * r);
        dt[c] *= 1.0 + heads->gain[c];
        mean += dt[c] * t[c];
    }
    mean *= r * r / (double)C;
    for (size_t c = 0; c < C; c++)
        dt[c] = r * (dt[c] - t[c] * mean);
}

void ref_heads_backward(float *dx, float *dtaps, float *dgain, const float *dy, const float *x,
                        const float *t, const float *r, const struct heads *heads,
                        const struct tree *tree)
{
    const size_t H = heads->head_count, C = heads->head_size;
    double dt[REF_WIDTH_MAX] = {0};

    assert(C <= REF_WIDTH_MAX);
    memset(dx, 0, tree->token_count * H * C * sizeof(*dx));
    for (size_t n = 0; n < tree->token_count; n++) {
        for (size_t h = 0; h < H; h++) {
            const size_t head = n * H + h;

            head_backward(dt, dgain, &dy[head * C], &t[head * C], heads->gain ? r[head] : 1, heads,
                          (size_t)tree->depth[n]);
            for (size_t c = 0; heads->tap_count == 0 && c < C; c++)
                dx[head * C + c] = (float)dt[c];
            for (size_t j = 0; j < heads->tap_count; j++) {
                const int32_t m = ref_ancestor(tree, n, j);
                const size_t tap = (j * H + h) * C, source = ((size_t)m * H + h) * C;

                for (size_t c = 0; m >= 0 && c < C; c++) {
                    dx[source + c] += (float)(heads->taps[tap + c] * dt[c]);
                    if (dtaps)
                        dtaps[tap + c] += (float)(dt[c] * x[source + c]);
                }
            }
        }
    }
}

/*
 * monarch: a feed-forward layer of Kronecker factors and permutations, conditioned on its input.
 *
 *   K(z; wa, wb)[k b + l] = sum_{i,j} z[i b + j] wa[i,k] wb[j,l]       z seen as [a,b], row-major
 *   m     = softmax(x cond_v)                                          [rank]
 *   e[i]  = 1 + sum_r m[r] cond_u[r,i]                                 [P]
 *   z1[i] = K(d1 pad(x); w1a, w1b)[p1[i]]
 *   c[i]  = d2[i] e[i] z1[i] + b2[i]
 *   z2[i] = K(c sigmoid(c); w2a, w2b)[p2[i]]
 *   z3    = K(d3 z2; w3a, w3b)
 *   y[i]  = skip[i] + d4[i] z3[i], i < D
 *   backward, the same chain from the end (d. of the product rule left out where it is plain):
 *     dz[i,j]  = sum_{k,l} wa[i,k] wb[j,l] dK[k,l]
 *     dwa[i,k] = sum_{j,l} z[i,j] wb[j,l] dK[k,l],   dwb[j,l] = sum_{i,k} z[i,j] wa[i,k] dK[k,l]
 *     dc       = ds (sigmoid(c) + c sigmoid(c) (1 - sigmoid(c)))
 *     dm[r]    = sum_i cond_u[r,i] d2[i] z1[i] dc[i],   dcond_u[r,i] = m[r] d2[i] z1[i] dc[i]
 *     da[r]    = m[r] (dm[r] - sum_t m[t] dm[t]),   dcond_v[d,r] = x[d] da[r]
 *     dx[d]    = d1[d] dz(first K)[d] + sum_r cond_v[d,r] da[r]
 *
 * Shapes    x y skip dx dy [N,D]; P = a b the next power of two from D; d1 d2 b2 d3 d4 p1 p2 [P];
 *           w*a [a,a], w*b [b,b]; cond_v [D,rank], cond_u [rank,P].
 * Writes    y, dx are set; weight gradients accumulate, one f32 term a token. y may be skip or x,
 * dx may be dy. dskip = dy (the caller's). Numerics  f32 in and out; everything between f64 in ref.
 * Backward computes forward again. Source    Dao et al. 2022, arXiv:2204.00595 (Monarch matrices);
 * Needle architecture.py, HadamardMLP.
 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* One token's values on the way through; [P] each, named as above. */
struct pass {
    double m[REF_RANK_MAX], e[REF_WIDTH_MAX];
    double in1[REF_WIDTH_MAX], z1[REF_WIDTH_MAX], c[REF_WIDTH_MAX];
    double in2[REF_WIDTH_MAX], in3[REF_WIDTH_MAX], z2[REF_WIDTH_MAX], z3[REF_WIDTH_MAX];
};

/* out = K(in; wa, wb), or its transpose (the gradient of z) when `back`. */
static void kron(double *out, const double *in, const float *wa, const float *wb,
                 const struct monarch *weights, bool back)
{
    const size_t a = weights->a, b = weights->b;
    double left[REF_WIDTH_MAX] = {0}; /* wa applied: [a,b] */

    for (size_t k = 0; k < a; k++) {
        for (size_t j = 0; j < b; j++) {
            double sum = 0;

            for (size_t i = 0; i < a; i++)
                sum += (back ? wa[k * a + i] : wa[i * a + k]) * in[i * b + j];
            left[k * b + j] = sum;
        }
    }
    for (size_t k = 0; k < a; k++) {
        for (size_t l = 0; l < b; l++) {
            double sum = 0;

            for (size_t j = 0; j < b; j++)
                sum += left[k * b + j] * (back ? wb[l * b + j] : wb[j * b + l]);
            out[k * b + l] = sum;
        }
    }
}

/* dwa, dwb += the gradient of the factors of dK = K(in). */
static void kron_weights(float *dwa, float *dwb, const double *in, const double *dk,
                         const float *wa, const float *wb, const struct monarch *weights)
{
    const size_t a = weights->a, b = weights->b;

    for (size_t i = 0; i < a; i++) {
        for (size_t l = 0; l < b; l++) { /* right = in wb: [a,b] */
            double right = 0;

            for (size_t j = 0; j < b; j++)
                right += in[i * b + j] * wb[j * b + l];
            for (size_t k = 0; k < a; k++)
                dwa[i * a + k] += (float)(right * dk[k * b + l]);
        }
    }
    for (size_t k = 0; k < a; k++) {
        for (size_t j = 0; j < b; j++) { /* left = wa^T in: [a,b] */
            double left = 0;

            for (size_t i = 0; i < a; i++)
                left += wa[i * a + k] * in[i * b + j];
            for (size_t l = 0; l < b; l++)
                dwb[j * b + l] += (float)(left * dk[k * b + l]);
        }
    }
}

/* m = softmax(x cond_v), e = 1 + m cond_u. */
static void condition(struct pass *pass, const float *x, const struct monarch *weights)
{
    const size_t rank = weights->rank;
    double largest = -INFINITY, total = 0;

    for (size_t r = 0; r < rank; r++) {
        pass->m[r] = 0;
        for (size_t d = 0; d < weights->D; d++)
            pass->m[r] += (double)x[d] * weights->cond_v[d * rank + r];
        largest = fmax(largest, pass->m[r]);
    }
    for (size_t r = 0; r < rank; r++) {
        pass->m[r] = exp(pass->m[r] - largest);
        total += pass->m[r];
    }
    for (size_t r = 0; r < rank; r++)
        pass->m[r] /= total;
    for (size_t i = 0; i < weights->P; i++) {
        pass->e[i] = 1;
        for (size_t r = 0; r < rank; r++)
            pass->e[i] += pass->m[r] * weights->cond_u[r * weights->P + i];
    }
}

static void forward(struct pass *pass, const float *x, const struct monarch *weights)
{
    const size_t P = weights->P;
    double out[REF_WIDTH_MAX] = {0};

    assert(P <= REF_WIDTH_MAX);
    assert(weights->rank <= REF_RANK_MAX);
    condition(pass, x, weights);
    for (size_t i = 0; i < P; i++)
        pass->in1[i] = i < weights->D ? (double)weights->d1[i] * x[i] : 0;
    kron(out, pass->in1, weights->w1a, weights->w1b, weights, false);
    for (size_t i = 0; i < P; i++) {
        pass->z1[i] = out[weights->p1[i]];
        pass->c[i] = weights->d2[i] * pass->e[i] * pass->z1[i] + weights->b2[i];
        pass->in2[i] = pass->c[i] * ref_sigmoid(pass->c[i]);
    }
    kron(out, pass->in2, weights->w2a, weights->w2b, weights, false);
    for (size_t i = 0; i < P; i++) {
        pass->z2[i] = out[weights->p2[i]];
        pass->in3[i] = weights->d3[i] * pass->z2[i];
    }
    kron(pass->z3, pass->in3, weights->w3a, weights->w3b, weights, false);
}

void ref_monarch_forward(float *y, const float *skip, const float *x, const struct monarch *weights,
                         size_t N)
{
    const size_t D = weights->D;
    struct pass pass = {0};

    for (size_t n = 0; n < N; n++) {
        forward(&pass, &x[n * D], weights);
        for (size_t d = 0; d < D; d++)
            y[n * D + d] = (float)(skip[n * D + d] + weights->d4[d] * pass.z3[d]);
    }
}

/* From dc to dx, which already holds the share through d1; da by way of m. */
static void condition_backward(float *dx, const struct monarch_gradients *gradients,
                               const double *dc, const struct pass *pass, const float *x,
                               const struct monarch *weights)
{
    const size_t rank = weights->rank, P = weights->P;
    double dm[REF_RANK_MAX] = {0}, mean = 0;

    for (size_t r = 0; r < rank; r++) {
        for (size_t i = 0; i < P; i++) {
            const double de = weights->d2[i] * pass->z1[i] * dc[i];

            dm[r] += weights->cond_u[r * P + i] * de;
            if (gradients)
                gradients->cond_u[r * P + i] += (float)(pass->m[r] * de);
        }
        mean += pass->m[r] * dm[r];
    }
    for (size_t d = 0; d < weights->D; d++) {
        double sum = dx[d];

        for (size_t r = 0; r < rank; r++) {
            const double da = pass->m[r] * (dm[r] - mean);

            sum += weights->cond_v[d * rank + r] * da;
            if (gradients)
                gradients->cond_v[d * rank + r] += (float)(x[d] * da);
        }
        dx[d] = (float)sum;
    }
}

static void backward(float *dx, const struct monarch_gradients *gradients, const float *dy,
                     const struct pass *pass, const float *x, const struct monarch *weights)
{
    const struct monarch *w = weights;
    const size_t P = w->P, D = w->D;
    double dk[REF_WIDTH_MAX] = {0}, dz[REF_WIDTH_MAX] = {0}, dc[REF_WIDTH_MAX] = {0};

    for (size_t i = 0; i < P; i++) {
        dk[i] = i < D ? (double)w->d4[i] * dy[i] : 0;
        if (gradients && i < D)
            gradients->d4[i] += (float)(pass->z3[i] * dy[i]);
    }
    kron(dz, dk, w->w3a, w->w3b, w, true);
    if (gradients)
        kron_weights(gradients->w3a, gradients->w3b, pass->in3, dk, w->w3a, w->w3b, w);
    for (size_t i = 0; i < P; i++) {
        dk[w->p2[i]] = w->d3[i] * dz[i];
        if (gradients)
            gradients->d3[i] += (float)(pass->z2[i] * dz[i]);
    }
    kron(dz, dk, w->w2a, w->w2b, w, true);
    if (gradients)
        kron_weights(gradients->w2a, gradients->w2b, pass->in2, dk, w->w2a, w->w2b, w);
    for (size_t i = 0; i < P; i++) {
        const double s = ref_sigmoid(pass->c[i]);

        dc[i] = dz[i] * (s + pass->c[i] * s * (1.0 - s));
        dk[w->p1[i]] = w->d2[i] * pass->e[i] * dc[i];
        if (gradients) {
            gradients->d2[i] += (float)(pass->e[i] * pass->z1[i] * dc[i]);
            gradients->b2[i] += (float)dc[i];
        }
    }
    kron(dz, dk, w->w1a, w->w1b, w, true);
    if (gradients)
        kron_weights(gradients->w1a, gradients->w1b, pass->in1, dk, w->w1a, w->w1b, w);
    for (size_t d = 0; d < D; d++) {
        dx[d] = (float)(w->d1[d] * dz[d]);
        if (gradients)
            gradients->d1[d] += (float)(x[d] * dz[d]);
    }
    condition_backward(dx, gradients, dc, pass, x, weights);
}

void ref_monarch_backward(float *dx, const struct monarch_gradients *gradients, const float *dy,
                          const float *x, const struct monarch *weights, size_t N)
{
    const size_t D = weights->D;
    struct pass pass = {0};

    if (gradients && !gradients->w1a)
        gradients = NULL;
    for (size_t n = 0; n < N; n++) {
        forward(&pass, &x[n * D], weights);
        backward(&dx[n * D], gradients, &dy[n * D], &pass, &x[n * D], weights);
    }
}

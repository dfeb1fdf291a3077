/*
 * inject: a value added as far as its key fits, see kernels/ref/inject.c.
 */
#include "kernels/cpu/ops/norm.h"

struct inject {
    float *y, *alpha, *dkey, *dvalue; /* du for y in backward */
    const float *dy, *kept_alpha, *u, *key, *value;
    size_t D;
};

struct sums { /* of u and key with themselves and each other; of dy value */
    double uu, kk, uk, gradient;
};

/* All sums of a row in one pass; dy and value NULL: without the last. Sums of finite values that
 * leave f32 are made again in f64. */
static inline struct sums row_sums(const float *u, const float *key, const float *dy,
                                   const float *value, size_t D)
{
    wide sum[4] = {{0}};

    for (size_t d = 0; d < D; d += WIDE) {
        const size_t some = D - d < WIDE ? D - d : WIDE;
        const wide a = wide_load_some(&u[d], some), b = wide_load_some(&key[d], some);
        sum[0] += a * a;
        sum[1] += b * b;
        sum[2] += a * b;
        if (dy)
            sum[3] += wide_load_some(&dy[d], some) * wide_load_some(&value[d], some);
    }
    struct sums s = {wide_sum(sum[0]), wide_sum(sum[1]), wide_sum(sum[2]), wide_sum(sum[3])};
    if (!isfinite(s.uu + s.kk + s.uk + s.gradient)) {
        s.uu = norm_dot(u, u, D);
        s.kk = norm_dot(key, key, D);
        s.uk = norm_dot(u, key, D);
        s.gradient = dy ? norm_dot(dy, value, D) : 0;
    }
    return s;
}

static double inverse_of(double squares, size_t D)
{
    return 1.0 / sqrt(squares / (double)D + CPU_EPSILON);
}

static void inject_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct inject *a = context;
    size_t D = a->D;

    (void)part;
    for (size_t n = begin; n < end; n++) {
        const float *u = &a->u[n * D], *value = &a->value[n * D];
        const struct sums s = row_sums(u, &a->key[n * D], NULL, NULL, D);
        const double fit = s.uk * inverse_of(s.uu, D) * inverse_of(s.kk, D);
        const float alpha = (float)(1.0 / (1.0 + exp(-fit / sqrt((double)D))));
        float *y = &a->y[n * D];
        size_t d = 0;

        a->alpha[n] = alpha;
        for (; d + WIDE <= D; d += WIDE)
            wide_store(&y[d], wide_load(&u[d]) + alpha * wide_load(&value[d]));
        for (; d < D; d++)
            y[d] = u[d] + alpha * value[d];
    }
}

void cpu_inject_forward(struct cpu *cpu, float *y, float *alpha, const float *u, const float *key,
                        const float *value, size_t N, size_t D)
{
    struct inject a = {.y = y, .alpha = alpha, .u = u, .key = key, .value = value, .D = D};
    cpu_run_rows(cpu, N, D * 4, inject_rows, &a);
}

/* y = skip + scale (a - b pull), skip may be NULL; y may be skip. */
static void combine(float *y, const float *skip, const float *a, const float *b, float scale,
                    float pull, size_t D)
{
    size_t d = 0;

    for (; d + WIDE <= D; d += WIDE) {
        wide value = scale * (wide_load(&a[d]) - wide_load(&b[d]) * pull);
        if (skip)
            value += wide_load(&skip[d]);
        wide_store(&y[d], value);
    }
    for (; d < D; d++)
        y[d] = (skip ? skip[d] : 0.0f) + scale * (a[d] - b[d] * pull);
}

static void inject_backward_row(const struct inject *a, size_t n)
{
    const size_t D = a->D;
    const float *u = &a->u[n * D], *key = &a->key[n * D], *dy = &a->dy[n * D];
    const struct sums s = row_sums(u, key, dy, &a->value[n * D], D);
    const double ru = inverse_of(s.uu, D), rk = inverse_of(s.kk, D), mean = s.uk / (double)D;
    const float alpha = a->kept_alpha[n];
    const double fit = (double)(alpha * (1.0f - alpha)) * s.gradient / sqrt((double)D);
    const float both = (float)(fit * ru * rk);

    if (a->dkey)
        combine(&a->dkey[n * D], NULL, u, key, both, (float)(rk * rk * mean), D);
    for (size_t d = 0; a->dvalue && d < D; d++)
        a->dvalue[n * D + d] = alpha * dy[d];
    combine(&a->y[n * D], dy, key, u, both, (float)(ru * ru * mean), D);
}

static void inject_backward_rows(void *context, size_t begin, size_t end, size_t part)
{
    (void)part;
    for (size_t n = begin; n < end; n++)
        inject_backward_row(context, n);
}

void cpu_inject_backward(struct cpu *cpu, float *du, float *dkey, float *dvalue, const float *dy,
                         const float *alpha, const float *u, const float *key, const float *value,
                         size_t N, size_t D)
{
    struct inject a = {.y = du, .dkey = dkey, .dvalue = dvalue, .dy = dy, .D = D};
    a.kept_alpha = alpha;
    a.u = u;
    a.key = key;
    a.value = value;
    cpu_run_rows(cpu, N, D * 6, inject_backward_rows, &a);
}

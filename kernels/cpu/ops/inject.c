/*
 * inject: a value added as far as its key fits, see kernels/ref/inject.c.
 */
#include "kernels/cpu/ops/norm.h"

struct inject {
    float *y, *alpha, *dkey, *dvalue; /* du for y in backward */
    const float *dy, *kept_alpha, *u, *key, *value;
    size_t D;
};

static void inject_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct inject *a = context;
    size_t D = a->D;

    (void)part;
    for (size_t n = begin; n < end; n++) {
        const float *u = &a->u[n * D], *key = &a->key[n * D], *value = &a->value[n * D];
        double fit = norm_dot(u, key, D) * norm_inverse(u, D) * norm_inverse(key, D);
        float alpha = (float)(1.0 / (1.0 + exp(-fit / sqrt((double)D)))), *y = &a->y[n * D];
        a->alpha[n] = alpha;
        for (size_t d = 0; d < D; d++)
            y[d] = u[d] + alpha * value[d];
    }
}

void cpu_inject_forward(struct cpu *cpu, float *y, float *alpha, const float *u, const float *key,
                        const float *value, size_t N, size_t D)
{
    struct inject a = {.y = y, .alpha = alpha, .u = u, .key = key, .value = value, .D = D};
    cpu_run_rows(cpu, N, D * 4, inject_rows, &a);
}

static void inject_backward_row(const struct inject *a, size_t n)
{
    size_t D = a->D;
    const float *u = &a->u[n * D], *key = &a->key[n * D], *dy = &a->dy[n * D];
    const double ru = norm_inverse(u, D), rk = norm_inverse(key, D), alpha = a->kept_alpha[n];
    const double mean = norm_dot(u, key, D) / (double)D;
    const double fit = alpha * (1.0 - alpha) * norm_dot(dy, &a->value[n * D], D);
    const double both = fit / sqrt((double)D) * ru * rk;
    const double u_pull = ru * ru * mean, key_pull = rk * rk * mean;

    for (size_t d = 0; a->dkey && d < D; d++)
        a->dkey[n * D + d] = (float)(both * ((double)u[d] - (double)key[d] * key_pull));
    for (size_t d = 0; a->dvalue && d < D; d++)
        a->dvalue[n * D + d] = (float)alpha * dy[d];
    for (size_t d = 0; d < D; d++)
        a->y[n * D + d] = (float)((double)dy[d] + both * ((double)key[d] - (double)u[d] * u_pull));
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

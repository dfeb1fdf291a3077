#include "daemon/train/optimizer.h"

#include <assert.h>
#include <math.h>

#define BETA1 0.9
#define BETA2 0.999
#define EPSILON 1e-8f
#define WEIGHT_DECAY 1e-4f
#define NORM_MAX 1.0f

bool optimizer_init(struct optimizer *optimizer, struct backend *be, struct error *err)
{
    float *sum = backend_alloc(be, sizeof(*sum));

    if (!sum)
        return error_set(err, ERR_NO_MEMORY, "%s", backend_fault(be));
    *optimizer = (struct optimizer){.backend = be, .sum = sum};
    return true;
}

void optimizer_release(struct optimizer *optimizer)
{
    if (optimizer->backend)
        backend_free(optimizer->backend, optimizer->sum);
    *optimizer = (struct optimizer){0};
}

bool optimizer_norm(struct optimizer *optimizer, const struct model_values *values, float *ret_norm,
                    struct error *err)
{
    struct backend *be = optimizer->backend;
    float sum = 0;

    backend_sum_squares(be, optimizer->sum, values->gradients, values->count);
    backend_download(be, &sum, optimizer->sum, sizeof(sum));
    if (backend_sync(be) != BACKEND_OK)
        return error_set(err, ERR_DEVICE, "%s", backend_fault(be));
    *ret_norm = sqrtf(sum);
    return true;
}

void optimizer_step(struct optimizer *optimizer, const struct model_values *values, size_t step,
                    float learning_rate, float norm)
{
    /* The reference raises the betas to the step in float32, but takes 1 - beta from doubles. */
    const struct adamw adamw = {
        .learning_rate = learning_rate,
        .epsilon = EPSILON,
        .weight_decay = WEIGHT_DECAY,
        .beta1 = BETA1,
        .beta2 = BETA2,
        .correction1 = 1.0f - powf((float)BETA1, (float)step),
        .correction2 = 1.0f - powf((float)BETA2, (float)step),
        .gradient_divisor = norm < NORM_MAX ? 1.0f : norm,
    };

    assert(step > 0);
    backend_adamw(optimizer->backend, values->values, values->moment1, values->moment2,
                  values->gradients, &adamw, values->count);
}

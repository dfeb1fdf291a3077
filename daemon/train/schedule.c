#include "daemon/train/schedule.h"

#include <assert.h>
#include <math.h>

struct schedule schedule_make(size_t total_steps, double peak)
{
    assert(total_steps > 0);
    size_t warmup = total_steps / 20 > 1 ? total_steps / 20 : 1;

    if (warmup > total_steps - 1)
        warmup = total_steps - 1;
    return (struct schedule){.total_steps = total_steps, .warmup_steps = warmup, .peak = peak};
}

float schedule_learning_rate(const struct schedule *schedule, size_t step_index)
{
    const float peak = (float)schedule->peak;

    if (step_index < schedule->warmup_steps) {
        const float left = 1.0f - (float)step_index / (float)schedule->warmup_steps;
        return -peak * left + peak;
    }
    const size_t decay_steps = schedule->total_steps - schedule->warmup_steps;
    size_t done = step_index - schedule->warmup_steps;
    if (done > decay_steps)
        done = decay_steps;
    return peak * (0.5f * (1.0f + cosf((float)M_PI * (float)done / (float)decay_steps)));
}

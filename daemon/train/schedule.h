/*
 * schedule: the learning rate of each step.
 *
 * Purpose    Linear warm-up from 0, then a cosine down to 0, in float32 as the reference's
 *            optimiser computes it: the same digits.
 * Ownership  A plain value.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_SCHEDULE_H
#define NEEDLED_SCHEDULE_H

#include <stddef.h>

struct schedule {
    size_t total_steps, warmup_steps;
    double peak;
};

/* warmup = min(max(1, total / 20), total - 1); total_steps > 0. */
struct schedule schedule_make(size_t total_steps, double peak);
/* step_index counts from 0: the first step has the rate 0 wherever there is a warm-up. */
float schedule_learning_rate(const struct schedule *schedule, size_t step_index);

#endif

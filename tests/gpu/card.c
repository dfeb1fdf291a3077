/*
 * card: what tests/kernels/standin/standin.h declares, where a real card runs the kernels.
 *
 * A card has its own order of threads and its own faults: options change nothing, nothing is reported,
 * and what was not given back is for compute-sanitizer to say.
 */
#include "tests/kernels/standin/standin.h"

const struct standin_options standin_defaults;

void standin_set(const struct standin_options *options)
{
    (void)options;
}

const char *standin_build(void)
{
    return "card";
}

size_t standin_report_count(void)
{
    return 0;
}

size_t standin_allocation_count(void)
{
    return 0;
}

struct standin_counts standin_counts(int device)
{
    (void)device;
    return (struct standin_counts){0};
}

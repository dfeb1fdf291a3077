/*
 * partials: sums of blocks of rows, added up in the order of the blocks.
 */
#include "kernels/cpu/cpu.h"

struct partials {
    float *total;
    const float *partial;
    size_t blocks, stride;
};

static void add_partial_columns(void *context, size_t begin, size_t end, size_t part)
{
    const struct partials *a = context;

    (void)part;
    for (size_t b = 0; b < a->blocks; b++)
        for (size_t c = begin; c < end; c++)
            a->total[c] += a->partial[b * a->stride + c];
}

void cpu_add_partials(struct cpu *cpu, float *total, const float *partial, size_t blocks,
                      size_t stride, size_t width)
{
    struct partials a = {total, partial, blocks, stride};
    cpu_run_rows(cpu, width, blocks, add_partial_columns, &a);
}

#include "tests/bench/counts.h"

#include "daemon/train/inputs.h"
#include "daemon/train/packing.h"

#include <stdlib.h>

static double smaller(size_t a, size_t b)
{
    return (double)(a < b ? a : b);
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Writes a key for each row, equal for equal tokens on the last `order` places (FNV-1a), and counts
 * the different ones; a line's start is a place like any other. */
static size_t count_grams(const struct batch *batch, size_t order, uint64_t *keys)
{
    size_t different = 0;

    for (size_t i = 0; i < batch->token_count; i++) {
        int32_t at = (int32_t)i;

        keys[i] = 0xcbf29ce484222325u;
        for (size_t j = 0; j < order; j++) {
            keys[i] = (keys[i] ^ (at >= 0 ? batch->tokens[at] : UINT32_MAX)) * 0x100000001b3u;
            at = at >= 0 ? batch->parent[at] : -1;
        }
    }
    qsort(keys, batch->token_count, sizeof(*keys), compare_keys);
    for (size_t i = 0; i < batch->token_count; i++)
        different += i == 0 || keys[i] != keys[i - 1];
    return different;
}

static size_t longest_order(const struct geometry *geometry)
{
    size_t longest = 1;

    for (size_t i = 0; i < geometry->engram_order_count; i++)
        if (geometry->engram_orders[i] > longest)
            longest = geometry->engram_orders[i];
    return longest;
}

/* A batch is one tree here, whatever the trainer's memory makes of it. */
static void count_batch(struct packing *packing, const struct example *const *lines, size_t count,
                        const struct geometry *geometry, uint64_t *keys, struct counts *ret_counts)
{
    const size_t window = geometry->sliding_window;
    struct packing_totals totals;
    struct counts counts = {0};
    struct batch batch;

    for (size_t i = 0; i < count; i++)
        counts.line_rows += packing_line_rows(lines[i]);
    packing_begin(packing, lines, count, &totals);
    counts.line_tokens = totals.token_count;
    while (packing_next(packing, &batch)) {
        counts.rows += batch.token_count;
        counts.grams += count_grams(&batch, longest_order(geometry), keys);
        for (size_t i = 0; i < batch.token_count; i++) {
            const size_t seen = (size_t)batch.depth[i] + 1;

            counts.global_pairs += (double)seen;
            counts.window_pairs += window > 0 ? smaller(seen, window) : (double)seen;
        }
        for (size_t i = 0; i < batch.target_count; i++)
            counts.target_rows += i == 0 || batch.target_row[i] != batch.target_row[i - 1];
    }
    *ret_counts = counts;
}

static bool count_steps(const struct inputs *inputs, const struct train_job *job,
                        const struct geometry *geometry, size_t step_max, struct counts *ret_steps,
                        size_t *ret_step_count, struct error *err)
{
    const size_t batch_size = job->hyper.batch_size;
    const struct packing_sizes sizes = {.max_lines = batch_size,
                                        .max_tokens = batch_size * inputs->longest_rows,
                                        .longest = inputs->longest_rows};
    uint32_t *order = calloc(inputs->train_count, sizeof(*order));
    uint64_t *keys = calloc(sizes.max_tokens + 1, sizeof(*keys));
    const struct example **lines = calloc(batch_size, sizeof(const struct example *));
    struct shuffle shuffle = inputs->shuffle;
    struct packing *packing = NULL;
    bool ok = false;
    size_t step = 0;

    if (!order || !keys || !lines) {
        error_set(err, ERR_NO_MEMORY, "no memory to count %zu lines", inputs->train_count);
        goto out;
    }
    if (!packing_new(&sizes, &packing, err))
        goto out;
    shuffle_permutation(&shuffle, inputs->train_count, order);
    for (; step < step_max && step * batch_size < inputs->train_count; step++) {
        const size_t first = step * batch_size, left = inputs->train_count - first;
        const size_t count = left < batch_size ? left : batch_size;

        for (size_t i = 0; i < count; i++)
            lines[i] = inputs->train[order[first + i]];
        count_batch(packing, lines, count, geometry, keys, &ret_steps[step]);
    }
    *ret_step_count = step;
    ok = true;
out:
    packing_free(packing);
    free(lines);
    free(keys);
    free(order);
    return ok;
}

bool counts_of_steps(const struct train_job *job, const struct geometry *geometry, size_t step_max,
                     struct counts *ret_steps, size_t *ret_step_count, struct error *err)
{
    struct dataset_report *reports = calloc(2, sizeof(*reports));
    struct inputs inputs;
    bool ok = false;

    if (!reports)
        return error_set(err, ERR_NO_MEMORY, "no memory for the report on the data");
    if (inputs_read(job, &inputs, &reports[0], &reports[1], err)) {
        ok = count_steps(&inputs, job, geometry, step_max, ret_steps, ret_step_count, err);
        inputs_release(&inputs);
    }
    free(reports);
    return ok;
}

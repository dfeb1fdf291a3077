#include "daemon/train/budget.h"

#include "daemon/base/size.h"

#include <stdlib.h>
#include <string.h>

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rows of the largest batch among `lines`, taken in the given order. */
static size_t largest_batch(const struct example *const *lines, const uint32_t *order, size_t count,
                            size_t batch_size, const struct example **scratch)
{
    size_t largest = 0;

    for (size_t first = 0; first < count; first += batch_size) {
        const size_t length = smaller(batch_size, count - first);

        for (size_t i = 0; i < length; i++)
            scratch[i] = lines[order ? order[first + i] : first + i];
        largest = larger(largest, packing_count_rows(scratch, length));
    }
    return largest;
}

/* What one batch may need: the first epoch's largest and an eighth more for the orders to come. A
 * later batch that is still larger is cut in two, to the same sums. */
static bool wanted_tokens(const struct train_job *job, const struct inputs *inputs,
                          size_t *ret_tokens, struct error *err)
{
    const size_t batch_size = job->hyper.batch_size;
    struct shuffle shuffle = inputs->shuffle;
    uint32_t *order = calloc(inputs->train_count, sizeof(*order));
    const struct example **scratch =
        calloc(larger(inputs->train_count, inputs->held_count), sizeof(const struct example *));
    bool ok = false;

    if (!order || !scratch) {
        error_set(err, ERR_NO_MEMORY, "no memory to plan batches of %zu lines", batch_size);
        goto out;
    }
    shuffle_permutation(&shuffle, inputs->train_count, order);
    size_t tokens = largest_batch(inputs->train, order, inputs->train_count, batch_size, scratch);
    tokens += tokens / 8;
    *ret_tokens =
        larger(tokens, largest_batch(inputs->held, NULL, inputs->held_count, batch_size, scratch));
    ok = true;
out:
    free(order);
    free(scratch);
    return ok;
}

static bool plan(const struct train_job *job, const struct inputs *inputs, size_t tokens, bool keep,
                 struct budget *ret_budget, size_t *ret_needed, struct error *err)
{
    const size_t line_max =
        smaller(job->hyper.batch_size, larger(inputs->train_count, inputs->held_count));
    struct budget budget = {
        .sizes = {.max_lines = line_max, .max_tokens = tokens, .longest = inputs->longest_rows},
        .spec = {.numerics = job->hyper.numerics,
                 .lora_rank = job->hyper.lora_rank,
                 .lora_alpha = (float)job->hyper.lora_alpha,
                 .seed = job->hyper.seed,
                 .limits = {.max_tokens = tokens, .keep_activations = keep}},
    };

    budget.spec.limits.max_targets = packing_max_targets(&budget.sizes);
    if (!model_plan(job->base_folder, &budget.spec, &budget.memory, err))
        return false;
    size_t needed;
    if (!size_add(budget.memory.weights_bytes, budget.memory.adapter_bytes, &needed) ||
        !size_add(needed, budget.memory.activations_bytes, &needed))
        needed = SIZE_MAX;
    *ret_budget = budget;
    *ret_needed = needed;
    return true;
}

bool budget_choose(const struct train_job *job, const struct inputs *inputs,
                   uint64_t device_free_bytes, size_t batch_tokens, struct budget *ret_budget,
                   struct error *err)
{
    /* A little of what is free is left to others; 0 free means that the device cannot say. */
    const size_t free_bytes =
        device_free_bytes > 0 ? (size_t)(device_free_bytes - device_free_bytes / 16) : SIZE_MAX;
    const size_t available =
        job->memory_limit_bytes > 0 ? smaller(job->memory_limit_bytes, free_bytes) : free_bytes;
    const size_t longest = larger(inputs->longest_rows, 1);
    size_t whole, tokens;

    if (!wanted_tokens(job, inputs, &whole, err))
        return false;
    if (batch_tokens > 0)
        tokens = batch_tokens;
    else
        tokens =
            smaller(whole, job->batch_token_limit > 0 ? job->batch_token_limit : BUDGET_TOKENS_MAX);
    for (;;) {
        size_t needed = 0;

        tokens = larger(tokens, longest);
        for (int keep = 1; keep >= 0; keep--) {
            if (!plan(job, inputs, tokens, keep != 0, ret_budget, &needed, err))
                return false;
            if (needed <= available)
                return true;
        }
        if (tokens == longest)
            return error_set(
                err, ERR_NO_MEMORY,
                "%zu bytes of memory are needed, %zu are available (lines of up to %zu "
                "tokens)",
                needed, available, longest + 1);
        tokens /= 2;
    }
}

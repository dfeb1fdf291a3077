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

struct wanted {
    size_t rows;  /* of the largest batch as one forest */
    size_t alone; /* of its lines, each counted for itself */
};

/* The largest batch among `lines`, taken in the given order. */
static struct wanted largest_batch(const struct example *const *lines, const uint32_t *order,
                                   size_t count, size_t batch_size, const struct example **scratch)
{
    struct wanted largest = {0};

    for (size_t first = 0; first < count; first += batch_size) {
        const size_t length = smaller(batch_size, count - first);
        struct wanted batch = {0};

        for (size_t i = 0; i < length; i++) {
            scratch[i] = lines[order ? order[first + i] : first + i];
            batch.alone += packing_line_rows(scratch[i]);
        }
        batch.rows = packing_count_rows(scratch, length);
        if (batch.rows > largest.rows)
            largest = batch;
    }
    return largest;
}

/* What one batch may need: the first epoch's largest and an eighth more for the orders to come. A
 * later batch that is still larger is cut in two, to the same sums. */
static bool find_wanted(const struct train_job *job, const struct inputs *inputs,
                        struct wanted *ret_wanted, struct error *err)
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
    struct wanted wanted =
        largest_batch(inputs->train, order, inputs->train_count, batch_size, scratch);
    wanted.rows += wanted.rows / 8;
    wanted.alone += wanted.alone / 8;
    const struct wanted held =
        largest_batch(inputs->held, NULL, inputs->held_count, batch_size, scratch);
    *ret_wanted = held.rows > wanted.rows ? held : wanted;
    ok = true;
out:
    free(order);
    free(scratch);
    return ok;
}

/* ---- what a plan needs ----------------------------------------------------------------------- */

struct planner {
    const struct train_job *job;
    const struct inputs *inputs;
    bool is_card;
    size_t available, longest;
};

static size_t other_bytes(const struct planner *planner, const struct model_plan *memory)
{
    return planner->is_card
               ? BUDGET_CARD_OTHER_BYTES + memory->activations_bytes / BUDGET_CARD_OTHER_SHARE
               : BUDGET_OTHER_BYTES;
}

static bool plan(const struct planner *planner, size_t tokens, size_t recomputed_layers,
                 struct budget *ret_budget, struct error *err)
{
    const struct train_job *job = planner->job;
    const struct inputs *inputs = planner->inputs;
    const size_t line_max =
        smaller(job->hyper.batch_size, larger(inputs->train_count, inputs->held_count));
    struct budget budget = {
        .sizes = {.max_lines = line_max, .max_tokens = tokens, .longest = inputs->longest_rows},
        .spec = {.numerics = job->hyper.numerics,
                 .lora_rank = job->hyper.lora_rank,
                 .lora_alpha = (float)job->hyper.lora_alpha,
                 .seed = job->hyper.seed,
                 .adapter_path = job->start_adapter_path,
                 .limits = {.max_tokens = tokens, .recomputed_layers = recomputed_layers}},
        .layer_count = inputs->info.layer_count,
        .recomputed_layers = recomputed_layers,
    };
    size_t *total = &budget.total_bytes;

    budget.spec.limits.max_targets = packing_max_targets(&budget.sizes);
    if (!model_plan(job->base_folder, &budget.spec, &budget.memory, err))
        return false;
    if (planner->is_card)
        budget.memory.weights_bytes += budget.memory.mapped_bytes; /* both are sizes of files */
    *total = other_bytes(planner, &budget.memory);
    if (!size_add(*total, budget.memory.weights_bytes, total) ||
        !size_add(*total, budget.memory.adapter_bytes, total) ||
        !size_add(*total, budget.memory.activations_bytes, total))
        *total = SIZE_MAX;
    *ret_budget = budget;
    return true;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool fits(const struct planner *planner, const struct budget *budget, size_t aim)
{
    return budget->total_bytes <= planner->available && budget->memory.activations_bytes <= aim;
}

/* The most rows between those of the longest line and `tokens` that fit, with every product kept;
 * if none do, those of the longest line. */
static bool most_tokens(const struct planner *planner, size_t tokens, size_t aim,
                        struct budget *ret_budget, struct error *err)
{
    size_t low = planner->longest, high = tokens;
    struct budget tried;

    if (!plan(planner, high, 0, ret_budget, err))
        return false;
    if (high == low || fits(planner, ret_budget, aim))
        return true;
    if (!plan(planner, low, 0, ret_budget, err))
        return false;
    while (high - low > 1) { /* high does not fit; low does, or is the least there can be */
        const size_t middle = low + (high - low) / 2;

        if (!plan(planner, middle, 0, &tried, err))
            return false;
        if (fits(planner, &tried, aim)) {
            *ret_budget = tried;
            low = middle;
        } else {
            high = middle;
        }
    }
    return true;
}

/* So many rows with the fewest layers computed again that fit; all but one if none do. */
static bool within(const struct planner *planner, size_t tokens, struct budget *ret_budget,
                   bool *ret_fits, struct error *err)
{
    size_t low = 0, high = planner->inputs->info.layer_count - 1;
    struct budget tried;

    if (!plan(planner, tokens, 0, ret_budget, err))
        return false;
    *ret_fits = fits(planner, ret_budget, SIZE_MAX);
    if (*ret_fits)
        return true;
    if (!plan(planner, tokens, high, ret_budget, err))
        return false;
    *ret_fits = fits(planner, ret_budget, SIZE_MAX);
    while (*ret_fits && high - low > 1) { /* high fits, low does not */
        const size_t middle = low + (high - low) / 2;

        if (!plan(planner, tokens, middle, &tried, err))
            return false;
        if (fits(planner, &tried, SIZE_MAX)) {
            *ret_budget = tried;
            high = middle;
        } else {
            low = middle;
        }
    }
    return true;
}

/* A processor takes a batch that must be cut in pieces that stay in its caches, unless its lines
 * share so much that each piece would compute that again. */
static bool cut_smaller(const struct planner *planner, const struct wanted *wanted,
                        struct budget *ret_budget, struct error *err)
{
    const size_t piece = larger(BUDGET_TOKENS_PIECE, planner->longest);
    const size_t rows = ret_budget->sizes.max_tokens;
    const bool shares_much = wanted->alone / 3 > wanted->rows / 2;

    return shares_much || rows >= wanted->rows || rows <= piece ||
           plan(planner, piece, 0, ret_budget, err);
}

/* Rows for a run that starts: what the job says, or the plan's own choice. */
static bool choose_tokens(const struct planner *planner, struct budget *ret_budget,
                          struct error *err)
{
    const size_t limit = planner->job->batch_token_limit;
    const bool is_free = limit > 0 || planner->is_card; /* of the aim */
    const size_t most = planner->is_card ? BUDGET_CARD_TOKENS_MAX : BUDGET_TOKENS_MAX;
    struct wanted wanted;

    if (!find_wanted(planner->job, planner->inputs, &wanted, err))
        return false;
    const size_t tokens = smaller(wanted.rows, limit > 0 ? limit : most);
    if (!most_tokens(planner, larger(tokens, planner->longest),
                     is_free ? SIZE_MAX : BUDGET_ACTIVATIONS_AIM, ret_budget, err))
        return false;
    return is_free || cut_smaller(planner, &wanted, ret_budget, err);
}

/* As an earlier part of the run had them: layers computed again give the same bits, batches cut in
 * another way do not. */
static bool keep_tokens(const struct planner *planner, size_t tokens, struct budget *ret_budget,
                        struct error *err)
{
    bool fitting;

    tokens = larger(tokens, planner->longest);
    return within(planner, tokens, ret_budget, &fitting, err) &&
           (fitting || most_tokens(planner, tokens, SIZE_MAX, ret_budget, err));
}

uint64_t budget_usable_bytes(uint64_t free_bytes)
{
    return free_bytes - free_bytes / 16;
}

bool budget_choose(const struct train_job *job, const struct inputs *inputs,
                   const struct budget_device *device, size_t batch_tokens,
                   struct budget *ret_budget, struct error *err)
{
    const size_t free_bytes =
        device->free_bytes > 0 ? (size_t)budget_usable_bytes(device->free_bytes) : SIZE_MAX;
    const struct planner planner = {
        .job = job,
        .inputs = inputs,
        .is_card = device->is_card,
        .available =
            job->memory_limit_bytes > 0 ? smaller(job->memory_limit_bytes, free_bytes) : free_bytes,
        .longest = larger(inputs->longest_rows, 1),
    };
    bool fitting;

    if (!(batch_tokens > 0 ? keep_tokens(&planner, batch_tokens, ret_budget, err)
                           : choose_tokens(&planner, ret_budget, err)) ||
        !within(&planner, ret_budget->sizes.max_tokens, ret_budget, &fitting, err))
        return false;
    return fitting ||
           error_set(err, ERR_NO_MEMORY,
                     "%zu bytes of memory are needed, %zu are available (lines of up to %zu "
                     "tokens)",
                     ret_budget->total_bytes, planner.available, planner.longest + 1);
}

bool budget_bounds(const struct train_job *job, const struct inputs *inputs,
                   struct train_memory *ret_memory, struct error *err)
{
    const size_t last = inputs->info.layer_count - 1;
    struct planner planner = {.job = job,
                              .inputs = inputs,
                              .available = SIZE_MAX,
                              .longest = larger(inputs->longest_rows, 1)};
    struct budget least, wanted, card_least, card_wanted;

    if (!plan(&planner, planner.longest, last, &least, err) ||
        !choose_tokens(&planner, &wanted, err))
        return false;
    planner.is_card = true;
    if (!plan(&planner, planner.longest, last, &card_least, err) ||
        !choose_tokens(&planner, &card_wanted, err))
        return false;
    *ret_memory = (struct train_memory){
        .least_bytes = least.total_bytes,
        .wanted_bytes = larger(wanted.total_bytes, least.total_bytes),
        .base_bytes = card_least.total_bytes - least.total_bytes,
        .card_wanted_bytes = larger(card_wanted.total_bytes, card_least.total_bytes),
    };
    return true;
}

/*
 * Proves that what is planned fits what there is: everything kept first, then fewer tokens at once,
 * then layers computed again, and a refusal in bytes below that.
 */
#include "daemon/train/budget.h"
#include "tests/support/test.h"

#define MINI FIXTURES "needle3/mini"

static struct train_job job;
static struct inputs inputs;

static int read_seventeen(void **state)
{
    (void)state;
    static struct dataset_report training, validation;
    struct error err = {0};

    job = (struct train_job){
        .base_folder = MINI,
        .training_path = FIXTURES "inputs/jsonl/seventeen.jsonl",
        .hyper = hyperparameters_default(),
    };
    job.hyper.max_len = 512;
    return inputs_read(&job, &inputs, &training, &validation, &err) ? 0 : -1;
}

static int release_inputs(void **state)
{
    (void)state;
    inputs_release(&inputs);
    return 0;
}

static const struct budget_device unbounded; /* it cannot say what is free */

static struct budget choose(size_t limit_bytes, uint64_t free_bytes, size_t batch_tokens)
{
    struct train_job limited = job;
    const struct budget_device device = {.free_bytes = free_bytes};
    struct budget budget;
    struct error err = {0};

    limited.memory_limit_bytes = limit_bytes;
    if (!budget_choose(&limited, &inputs, &device, batch_tokens, &budget, &err))
        fail_msg("%s", err.message);
    return budget;
}

static void plenty_of_memory_keeps_everything_of_a_whole_batch(void **state)
{
    (void)state;
    const struct budget budget = choose(0, (uint64_t)1 << 40, 0);

    assert_int_equal(budget.recomputed_layers, 0);
    assert_in_range(budget.sizes.max_tokens, inputs.longest_rows + 1, BUDGET_TOKENS_MAX);
    assert_int_equal(budget.sizes.max_tokens, budget.spec.limits.max_tokens);
    assert_int_equal(budget.sizes.longest, inputs.longest_rows);
    assert_int_equal(budget.sizes.max_lines, 16); /* one of the 17 is held out */
    assert_int_equal(budget.spec.limits.max_targets, packing_max_targets(&budget.sizes));
    assert_int_equal(budget.total_bytes, budget.memory.weights_bytes + budget.memory.adapter_bytes +
                                             budget.memory.activations_bytes + BUDGET_OTHER_BYTES);
    const struct budget unknown = choose(0, 0, 0); /* a device that cannot say */
    assert_int_equal(unknown.sizes.max_tokens, budget.sizes.max_tokens);
    assert_int_equal(unknown.recomputed_layers, 0);
}

static void whatever_the_limit_the_plan_fits_or_is_refused(void **state)
{
    (void)state;
    const struct budget whole = choose(0, 0, 0);
    size_t tokens = whole.sizes.max_tokens, recomputed = 0, limit = whole.total_bytes;
    bool cut = false;

    for (;; limit -= whole.memory.activations_bytes / 256) {
        struct train_job limited = job;
        struct budget budget;
        struct error err = {0};

        limited.memory_limit_bytes = limit;
        if (!budget_choose(&limited, &inputs, &unbounded, 0, &budget, &err)) {
            char words[64];

            assert_int_equal(err.code, ERR_NO_MEMORY);
            snprintf(words, sizeof(words), "%zu are available", limit);
            assert_non_null(strstr(err.message, words));
            assert_true(strtoull(err.message, NULL, 10) > limit); /* what is needed comes first */
            break;
        }
        assert_true(budget.total_bytes <= limit);
        assert_true(budget.sizes.max_tokens <= tokens);
        assert_true(budget.sizes.max_tokens >= inputs.longest_rows);
        assert_true(budget.recomputed_layers >= recomputed);
        if (budget.recomputed_layers > 0) /* rows give way first */
            assert_int_equal(budget.sizes.max_tokens, inputs.longest_rows);
        cut = cut || (budget.sizes.max_tokens < tokens && budget.recomputed_layers == 0);
        tokens = budget.sizes.max_tokens;
        recomputed = budget.recomputed_layers;
    }
    assert_true(cut);
    assert_int_equal(recomputed, whole.layer_count - 1); /* every kind of plan was seen */
}

static void what_is_free_and_what_is_allowed_both_count(void **state)
{
    (void)state;
    const struct budget whole = choose(0, 0, 0);
    const size_t needed = whole.total_bytes, tokens = whole.sizes.max_tokens;

    assert_int_equal(choose(needed, needed * 2, 0).sizes.max_tokens, tokens);
    assert_in_range(choose(needed - 1, needed * 2, 0).sizes.max_tokens, 1, tokens - 1);
    assert_in_range(choose(needed, needed, 0).sizes.max_tokens, 1,
                    tokens - 1); /* a little is left free */
    assert_in_range(choose(0, needed, 0).sizes.max_tokens, 1, tokens - 1);
}

static void a_token_limit_is_kept_but_never_below_the_longest_line(void **state)
{
    (void)state;
    struct budget budget;
    struct error err = {0};
    struct train_job limited = job;

    limited.batch_token_limit = inputs.longest_rows + 7;
    assert_true(budget_choose(&limited, &inputs, &unbounded, 0, &budget, &err));
    assert_int_equal(budget.sizes.max_tokens, inputs.longest_rows + 7);
    limited.batch_token_limit = 1;
    assert_true(budget_choose(&limited, &inputs, &unbounded, 0, &budget, &err));
    assert_int_equal(budget.sizes.max_tokens, inputs.longest_rows);
}

static void a_resumed_run_cuts_its_batches_as_before(void **state)
{
    (void)state;
    const size_t earlier = inputs.longest_rows + 13;
    const struct budget plenty = choose(0, 0, earlier);
    const struct budget less = choose(plenty.total_bytes - 1, 0, earlier);

    assert_int_equal(plenty.sizes.max_tokens, earlier);
    assert_int_equal(plenty.recomputed_layers, 0);
    assert_int_equal(less.sizes.max_tokens, earlier); /* the same bits, a little slower */
    assert_int_equal(less.recomputed_layers, 1);
}

/* ---- batches too large for one pass ---------------------------------------------------------- */

#define MADE_LINES 640
#define MADE_TOKENS 100 /* and one that has no row */

/* Lines of which the first `shared` tokens are the same, in batches of all of them. */
static struct budget choose_for_lines_on(const struct budget_device *device, size_t shared)
{
    static uint32_t ids[MADE_LINES][MADE_TOKENS + 1];
    static struct example lines[MADE_LINES];
    static const struct example *pointers[MADE_LINES];
    struct train_job made_job = job;
    struct inputs made = inputs;
    struct budget budget;
    struct error err = {0};

    for (size_t i = 0; i < MADE_LINES; i++) {
        for (size_t t = 0; t <= MADE_TOKENS; t++)
            ids[i][t] = (uint32_t)(t < shared ? t : t + i);
        lines[i] = (struct example){
            .line = i + 1, .ids = ids[i], .id_count = MADE_TOKENS + 1, .prompt_count = 1};
        pointers[i] = &lines[i];
    }
    made.train = pointers;
    made.train_count = MADE_LINES;
    made.held_count = 0;
    made.longest_rows = MADE_TOKENS;
    made_job.hyper.batch_size = MADE_LINES;
    if (!budget_choose(&made_job, &made, device, 0, &budget, &err))
        fail_msg("%s", err.message);
    return budget;
}

static struct budget choose_for_lines(size_t shared)
{
    return choose_for_lines_on(&unbounded, shared);
}

static void a_batch_cut_anyway_is_cut_small_unless_its_lines_share_much(void **state)
{
    (void)state;
    const size_t tree = 98 + 2 * MADE_LINES; /* and an eighth more: it fits */

    assert_int_equal(choose_for_lines(0).sizes.max_tokens, BUDGET_TOKENS_PIECE);
    assert_int_equal(choose_for_lines(20).sizes.max_tokens, BUDGET_TOKENS_PIECE);
    assert_int_equal(choose_for_lines(60).sizes.max_tokens, BUDGET_TOKENS_MAX);
    assert_int_equal(choose_for_lines(98).sizes.max_tokens, tree + tree / 8);
}

/* 64,000 rows that share nothing, and an eighth: as many at once as there is memory for. */
static void a_card_takes_a_batch_in_as_few_pieces_as_fit(void **state)
{
    (void)state;
    const size_t rows = MADE_LINES * MADE_TOKENS;
    const struct budget_device large = {.free_bytes = (uint64_t)1 << 40, .is_card = true};
    const struct budget whole = choose_for_lines_on(&large, 0);

    assert_int_equal(whole.sizes.max_tokens, rows + rows / 8);
    assert_int_equal(whole.recomputed_layers, 0);
    assert_int_equal(whole.memory.weights_bytes - choose_for_lines(0).memory.weights_bytes,
                     whole.memory.mapped_bytes);
    const size_t fixed = whole.total_bytes - whole.memory.activations_bytes;
    for (uint64_t parts = 2; parts <= 8; parts *= 2) {
        const struct budget_device small = {
            .free_bytes = fixed + whole.memory.activations_bytes / parts, .is_card = true};
        const struct budget cut = choose_for_lines_on(&small, 0);

        assert_true(cut.total_bytes <= budget_usable_bytes(small.free_bytes));
        assert_true(cut.total_bytes > budget_usable_bytes(small.free_bytes) - (1 << 20));
        assert_int_equal(cut.recomputed_layers, 0);
    }
}

static void a_plan_lies_between_the_bounds_told_before(void **state)
{
    (void)state;
    struct train_memory memory;
    struct error err = {0};
    const struct budget_device card = {.free_bytes = (uint64_t)1 << 40, .is_card = true};
    struct budget budget;

    assert_true(budget_bounds(&job, &inputs, &memory, &err));
    assert_int_equal(choose(0, 0, 0).total_bytes, memory.wanted_bytes);
    assert_true(memory.least_bytes < memory.wanted_bytes);
    assert_true(budget_choose(&job, &inputs, &card, 0, &budget, &err));
    assert_int_equal(budget.total_bytes, memory.card_wanted_bytes);
    assert_true(memory.base_bytes > budget.memory.mapped_bytes); /* and more scratch */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plenty_of_memory_keeps_everything_of_a_whole_batch),
        cmocka_unit_test(whatever_the_limit_the_plan_fits_or_is_refused),
        cmocka_unit_test(what_is_free_and_what_is_allowed_both_count),
        cmocka_unit_test(a_token_limit_is_kept_but_never_below_the_longest_line),
        cmocka_unit_test(a_resumed_run_cuts_its_batches_as_before),
        cmocka_unit_test(a_batch_cut_anyway_is_cut_small_unless_its_lines_share_much),
        cmocka_unit_test(a_card_takes_a_batch_in_as_few_pieces_as_fit),
        cmocka_unit_test(a_plan_lies_between_the_bounds_told_before),
    };

    return cmocka_run_group_tests(tests, read_seventeen, release_inputs);
}

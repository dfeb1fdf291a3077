/* Proves: a forest of lines with shared starts computes what its lines alone compute; what is not
 * kept is made again bit for bit; a run takes no memory, leaves nothing behind, and can be
 * stopped. */
#include "tests/support/network.h"

#define SCALE 0.125f
/* The same sums in another order, in float32. */
#define CLOSE 1e-5

struct bench {
    struct backend *be;
    struct safetensors *fixture;
    struct forest *forest; /* the recorded batch, as chains */
    struct weights *weights;
    struct lora *lora;
    struct weight_gradients *full;
};

static void bench_init(struct bench *bench, enum backend_kind kind, const char *folder,
                       enum numerics numerics)
{
    struct error err = {0};

    *bench = (struct bench){.be = bench_open(kind)};
    if (!bench->be)
        return;
    bench->fixture = fixture_open(folder, "grads.safetensors");
    bench->forest = forest_from_fixture(bench->fixture);
    bench->weights = bench_weights(bench->be, folder, numerics);
    bench->lora = bench_lora(bench->weights, bench->fixture);
    fail_on(weight_gradients_new(bench->weights, &bench->full, &err), &err);
}

static void bench_release(struct bench *bench)
{
    weight_gradients_free(bench->full);
    lora_free(bench->lora);
    weights_free(bench->weights);
    forest_free(bench->forest);
    safetensors_close(bench->fixture);
    backend_close(bench->be);
}

typedef void bench_test(struct bench *bench);

/* Plain loops take minutes over the larger geometry under the sanitizers: what does not depend on
 * how an op is computed leaves that pair out. */
static void run_bench(bench_test *test, enum numerics numerics, bool plain_loops_too)
{
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++)
        for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
            struct bench bench;

            if (kind == BACKEND_REF && i == 0 && !plain_loops_too)
                continue;
            bench_init(&bench, kind, geometry_folders[i], numerics);
            if (!bench.be)
                continue;
            test(&bench);
            bench_release(&bench);
        }
}

static void on_every_backend(bench_test *test, enum numerics numerics)
{
    run_bench(test, numerics, false);
}

/* ---- what a run leaves ----------------------------------------------------------------------- */

#define EMBEDDING "embedding/embedding"
#define TABLE "engrams_0/embedding"
#define TAPS "engrams_0/taps"
#define PHI "stack/mhc_phi_res"

struct outcome {
    struct batch_result result;
    float *adapter, *weights[4];
    size_t adapter_count, weight_counts[4];
};

static const char *const watched[4] = {EMBEDDING, TABLE, TAPS, PHI};

static void clear_gradients(struct bench *bench)
{
    backend_zero(bench->be, bench->lora->gradients, bench->lora->value_count * sizeof(float));
    weight_gradients_clear(bench->full);
}

static void outcome_read(struct outcome *outcome, const struct bench *bench)
{
    const size_t capacity = bench->weights->parameter_count;

    outcome->adapter_count = bench->lora->value_count;
    outcome->adapter = calloc(outcome->adapter_count, sizeof(float));
    assert_non_null(outcome->adapter);
    backend_download(bench->be, outcome->adapter, bench->lora->gradients,
                     outcome->adapter_count * sizeof(float));
    for (size_t i = 0; i < 4; i++) {
        outcome->weights[i] = calloc(capacity, sizeof(float));
        assert_non_null(outcome->weights[i]);
        assert_true(weight_gradients_get(bench->full, watched[i], outcome->weights[i], capacity,
                                         &outcome->weight_counts[i]));
    }
}

static void outcome_release(struct outcome *outcome)
{
    free(outcome->adapter);
    for (size_t i = 0; i < 4; i++)
        free(outcome->weights[i]);
}

static void assert_same_bits(const struct outcome *a, const struct outcome *b)
{
    assert_memory_equal(&a->result, &b->result, sizeof(a->result));
    assert_memory_equal(a->adapter, b->adapter, a->adapter_count * sizeof(float));
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(a->weights[i], b->weights[i], a->weight_counts[i] * sizeof(float));
}

static void assert_close(const struct outcome *a, const struct outcome *b)
{
    assert_true(b->result.loss_sum > 0);
    if (!(fabs(a->result.loss_sum - b->result.loss_sum) <= CLOSE * b->result.loss_sum))
        fail_msg("losses %.9g and %.9g", a->result.loss_sum, b->result.loss_sum);
    assert_true(a->result.hit_sum == b->result.hit_sum);
    assert_true(a->result.weight_sum == b->result.weight_sum);
    if (!(relative_difference(a->adapter, b->adapter, a->adapter_count) <= CLOSE))
        fail_msg("adapter gradients differ by %.3g of their size",
                 relative_difference(a->adapter, b->adapter, a->adapter_count));
    for (size_t i = 0; i < 4; i++) {
        const double difference =
            relative_difference(a->weights[i], b->weights[i], a->weight_counts[i]);

        if (!(difference <= CLOSE))
            fail_msg("gradients of %s differ by %.3g of their size", watched[i], difference);
    }
}

/* Adds the run's gradients to what is there; the adapter's and those of every weight. */
static struct batch_result train(struct bench *bench, struct network *network,
                                 const struct forest *forest)
{
    struct batch_result result;
    struct error err = {0};

    fail_on(network_run(network, NETWORK_TRAIN, &forest->batch, SCALE, bench->full, NULL, &result,
                        &err),
            &err);
    return result;
}

static void train_alone(struct bench *bench, const struct forest *forest, bool keep,
                        struct outcome *outcome)
{
    struct network *network = bench_network(bench->weights, bench->lora, forest, keep);

    clear_gradients(bench);
    outcome->result = train(bench, network, forest);
    outcome_read(outcome, bench);
    network_free(network);
}

/* ---- lines ----------------------------------------------------------------------------------- */

#define LINE_COUNT 7
#define LINE_TOKENS 44

struct lines {
    int32_t tokens[LINE_COUNT][LINE_TOKENS];
    float mask[LINE_TOKENS];
    struct line lines[LINE_COUNT];
};

/* Lines of one product: they share a start of 30 tokens, some more; longer than the window of the
 * local layers; one twice; one that ends inside another's; one of its own. */
static void lines_fill(struct lines *all)
{
    static const struct {
        size_t count, shared; /* tokens that equal those of line `of` */
        size_t of;
    } shapes[LINE_COUNT] = {{44, 0, 0},  {42, 30, 0}, {44, 44, 0}, {40, 34, 1},
                            {33, 33, 0}, {31, 0, 0},  {1, 1, 0}};

    for (size_t t = 0; t < LINE_TOKENS; t++)
        all->mask[t] = t >= 29 ? 1 : 0;
    for (size_t i = 0; i < LINE_COUNT; i++) {
        for (size_t t = 0; t < LINE_TOKENS; t++)
            all->tokens[i][t] = t < shapes[i].shared ? all->tokens[shapes[i].of][t]
                                                     : (int32_t)((i * 977 + t * 131 + 7) % 800);
        all->lines[i] = (struct line){shapes[i].count, all->tokens[i], all->mask};
    }
}

static void check_tree_and_chains(struct bench *bench)
{
    struct lines all;
    struct outcome shared, apart;

    lines_fill(&all);
    struct forest *tree = forest_new(all.lines, LINE_COUNT, true);
    struct forest *chains = forest_new(all.lines, LINE_COUNT, false);
    assert_true(tree->batch.token_count < chains->batch.token_count / 2);
    assert_int_equal(tree->batch.target_count, chains->batch.target_count);
    train_alone(bench, tree, true, &shared);
    train_alone(bench, chains, true, &apart);
    assert_close(&shared, &apart);
    outcome_release(&shared);
    outcome_release(&apart);
    forest_free(tree);
    forest_free(chains);
}

static void a_tree_of_lines_learns_what_its_lines_learn_apart(void **state)
{
    (void)state;
    run_bench(check_tree_and_chains, NUMERICS_FLOAT32, true);
}

static void check_packed_and_alone(struct bench *bench)
{
    struct lines all;
    struct outcome packed, alone = {0};

    lines_fill(&all);
    struct forest *together = forest_new(all.lines, LINE_COUNT, false);
    train_alone(bench, together, true, &packed);

    struct network *network = bench_network(bench->weights, bench->lora, together, true);
    clear_gradients(bench);
    for (size_t i = 0; i < LINE_COUNT; i++) {
        struct forest *one = forest_new(&all.lines[i], 1, false);
        const struct batch_result result = train(bench, network, one);

        alone.result.loss_sum += result.loss_sum;
        alone.result.hit_sum += result.hit_sum;
        alone.result.weight_sum += result.weight_sum;
        forest_free(one);
    }
    outcome_read(&alone, bench);
    assert_close(&packed, &alone);
    network_free(network);
    outcome_release(&packed);
    outcome_release(&alone);
    forest_free(together);
}

static void packed_lines_learn_what_they_learn_one_after_another(void **state)
{
    (void)state;
    on_every_backend(check_packed_and_alone, NUMERICS_FLOAT32);
}

static void check_weighted(struct bench *bench)
{
    struct outcome twice, once;
    struct forest *forest = bench->forest;

    train_alone(bench, forest, true, &once);
    for (size_t m = 0; m < forest->batch.target_count; m++)
        forest->weight[m] *= 2;
    train_alone(bench, forest, true, &twice);
    assert_true(twice.result.loss_sum == 2 * once.result.loss_sum);
    assert_true(twice.result.weight_sum == 2 * once.result.weight_sum);
    for (size_t i = 0; i < once.adapter_count; i++)
        once.adapter[i] *= 2;
    assert_true(relative_difference(twice.adapter, once.adapter, once.adapter_count) <= CLOSE);
    outcome_release(&twice);
    outcome_release(&once);
}

static void a_weight_of_two_counts_twice(void **state)
{
    (void)state;
    on_every_backend(check_weighted, NUMERICS_FLOAT32);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void check_recompute(struct bench *bench)
{
    struct outcome kept, made_again;

    train_alone(bench, bench->forest, true, &kept);
    train_alone(bench, bench->forest, false, &made_again);
    assert_same_bits(&kept, &made_again);
    outcome_release(&kept);
    outcome_release(&made_again);
}

static void layers_made_again_give_the_same_bits_as_layers_kept(void **state)
{
    (void)state;
    on_every_backend(check_recompute, NUMERICS_FLOAT32);
    on_every_backend(check_recompute, NUMERICS_W4A8);
}

/* With every weight wanted each layer is computed again whole. Without, backward takes the products
 * that forward kept, of fewer and fewer layers, and must come to the same bits. */
static void check_adapter_alone(struct bench *bench)
{
    const struct batch *batch = &bench->forest->batch;
    struct outcome with_weights, alone;

    train_alone(bench, bench->forest, true, &with_weights);
    for (size_t recomputed = 0; recomputed < bench->weights->geometry.layer_count; recomputed++) {
        const struct network_limits limits = {batch->token_count, batch->target_count, recomputed};
        struct network *network;
        struct error err = {0};

        fail_on(network_new(bench->weights, bench->lora, &limits, &network, &err), &err);
        clear_gradients(bench);
        fail_on(network_run(network, NETWORK_TRAIN, batch, SCALE, NULL, NULL, &alone.result, &err),
                &err);
        outcome_read(&alone, bench);
        assert_memory_equal(&alone.result, &with_weights.result, sizeof(alone.result));
        assert_memory_equal(alone.adapter, with_weights.adapter,
                            alone.adapter_count * sizeof(float));
        for (size_t i = 0; i < alone.weight_counts[0]; i++)
            assert_true(alone.weights[0][i] == 0);
        network_free(network);
        outcome_release(&alone);
    }
    outcome_release(&with_weights);
}

static void products_kept_or_made_again_teach_the_adapter_the_same_bits(void **state)
{
    (void)state;
    on_every_backend(check_adapter_alone, NUMERICS_FLOAT32);
    on_every_backend(check_adapter_alone, NUMERICS_W4A8);
}

static void check_allocation(struct bench *bench)
{
    const size_t before = backend_allocated_bytes(bench->be);

    for (int keep = 0; keep < 2; keep++) {
        const struct network_limits limits = {200, 150, keep ? 0 : SIZE_MAX};
        struct network *network;
        struct error err = {0};

        fail_on(network_new(bench->weights, bench->lora, &limits, &network, &err), &err);
        const size_t taken = backend_allocated_bytes(bench->be) - before;
        assert_int_equal(
            taken, network_device_bytes(&bench->weights->geometry, bench->lora->rank, &limits));
        for (int i = 0; i < 3; i++)
            (void)train(bench, network, bench->forest); /* results are other tests' business */
        assert_int_equal(backend_allocated_bytes(bench->be) - before, taken);
        network_free(network);
        assert_int_equal(backend_allocated_bytes(bench->be), before);
    }
}

static void a_network_takes_what_it_planned_and_a_run_takes_nothing(void **state)
{
    (void)state;
    on_every_backend(check_allocation, NUMERICS_W4A8);
}

static void a_plan_past_all_memory_is_refused_not_wrapped(void **state)
{
    (void)state;
    struct bench bench;
    const struct network_limits limits = {SIZE_MAX / 8, 1, 0};
    struct network *network = NULL;
    struct error err = {0};

    bench_init(&bench, BACKEND_REF, geometry_folders[1], NUMERICS_FLOAT32);
    assert_true(network_device_bytes(&bench.weights->geometry, 4, &limits) == SIZE_MAX);
    assert_false(network_new(bench.weights, bench.lora, &limits, &network, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    assert_null(network);
    bench_release(&bench);
}

static size_t engram_values(const struct geometry *g)
{
    return g->engram_order_count * g->engram_heads * g->engram_slots * g->engram_sub;
}

/* Puts NaN into every array a run writes by running over weights that are NaN. */
static void poison(struct bench *bench, struct network *network, const struct forest *forest)
{
    const struct geometry *g = &bench->weights->geometry;
    const size_t count = g->vocab_size * g->d_model > engram_values(g) ? g->vocab_size * g->d_model
                                                                       : engram_values(g);
    const float *const embedding = bench->weights->embedding;
    const struct table table = bench->weights->engrams[0].table;
    float *values = calloc(count, sizeof(float)), *nan;

    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = NAN;
    nan = backend_alloc(bench->be, count * sizeof(float));
    assert_non_null(nan);
    backend_upload(bench->be, nan, values, count * sizeof(float));
    bench->weights->embedding = nan;
    bench->weights->engrams[0].table = (struct table){.values = nan};
    assert_true(isnan(train(bench, network, forest).loss_sum));
    bench->weights->embedding = embedding;
    bench->weights->engrams[0].table = table;
    backend_free(bench->be, nan);
    free(values);
    clear_gradients(bench);
}

static void check_leftovers(struct bench *bench)
{
    struct lines all;
    struct outcome fresh, after;

    lines_fill(&all);
    struct forest *larger = forest_new(all.lines, LINE_COUNT, false);
    assert_true(larger->batch.token_count > bench->forest->batch.token_count);
    for (int keep = 0; keep < 2; keep++) {
        const struct network_limits limits = {larger->batch.token_count,
                                              larger->batch.target_count + bench->forest->capacity,
                                              keep ? 0 : SIZE_MAX};
        struct network *network;
        struct error err = {0};

        train_alone(bench, bench->forest, true, &fresh);
        fail_on(network_new(bench->weights, bench->lora, &limits, &network, &err), &err);
        poison(bench, network, larger);
        after.result = train(bench, network, bench->forest);
        outcome_read(&after, bench);
        assert_same_bits(&fresh, &after);
        network_free(network);
        outcome_release(&fresh);
        outcome_release(&after);
    }
    forest_free(larger);
}

static void nothing_of_an_earlier_run_reaches_the_next(void **state)
{
    (void)state;
    on_every_backend(check_leftovers, NUMERICS_W4A8);
}

static void check_accumulation(struct bench *bench)
{
    struct network *network = bench_network(bench->weights, bench->lora, bench->forest, true);
    struct outcome once, thrice;

    train_alone(bench, bench->forest, true, &once);
    clear_gradients(bench);
    for (int i = 0; i < 3; i++)
        thrice.result = train(bench, network, bench->forest);
    outcome_read(&thrice, bench);
    for (size_t i = 0; i < once.adapter_count; i++)
        once.adapter[i] *= 3;
    for (size_t w = 0; w < 4; w++)
        for (size_t i = 0; i < once.weight_counts[w]; i++)
            once.weights[w][i] *= 3;
    assert_close(&thrice, &once);
    network_free(network);
    outcome_release(&once);
    outcome_release(&thrice);
}

static void gradients_of_several_runs_add_up(void **state)
{
    (void)state;
    on_every_backend(check_accumulation, NUMERICS_FLOAT32);
}

static void check_evaluation(struct bench *bench)
{
    struct network *network = bench_network(bench->weights, bench->lora, bench->forest, true);
    struct batch_result evaluated = {0}, empty = {1, 1, 1};
    struct outcome outcome;
    struct error err = {0};
    struct batch no_targets = bench->forest->batch;

    clear_gradients(bench);
    fail_on(network_run(network, NETWORK_EVALUATE, &bench->forest->batch, SCALE, NULL, NULL,
                        &evaluated, &err),
            &err);
    no_targets.target_count = 0;
    fail_on(
        network_run(network, NETWORK_TRAIN, &no_targets, SCALE, bench->full, NULL, &empty, &err),
        &err);
    assert_true(empty.loss_sum == 0 && empty.hit_sum == 0 && empty.weight_sum == 0);
    outcome_read(&outcome, bench);
    for (size_t i = 0; i < outcome.adapter_count; i++)
        assert_true(outcome.adapter[i] == 0);
    for (size_t i = 0; i < outcome.weight_counts[0]; i++)
        assert_true(outcome.weights[0][i] == 0);
    outcome.result = train(bench, network, bench->forest);
    assert_memory_equal(&outcome.result, &evaluated, sizeof(evaluated));
    network_free(network);
    outcome_release(&outcome);
}

static void an_evaluation_gives_the_loss_and_touches_no_gradient(void **state)
{
    (void)state;
    on_every_backend(check_evaluation, NUMERICS_W4A8);
}

/* ---- stopping -------------------------------------------------------------------------------- */

struct stopper {
    const char *at; /* what must be seen before it stops; NULL: it is stopped already */
    atomic_bool stop;
    size_t seen_after;
};

static void stop_when_seen(void *context, const char *name, const float *device, size_t rows,
                           size_t cols)
{
    struct stopper *stopper = context;

    (void)device;
    (void)rows;
    (void)cols;
    if (atomic_load(&stopper->stop) && strstr(name, ".block_in"))
        stopper->seen_after++;
    if (stopper->at && strcmp(name, stopper->at) == 0)
        atomic_store(&stopper->stop, true);
}

static void a_run_asked_to_stop_stops_between_layers_forward_and_back(void **state)
{
    (void)state;
    static const char *const moments[] = {NULL, "layer0.block_out", "layer1.q_ready", "final"};
    struct bench bench;

    bench_init(&bench, BACKEND_REF, geometry_folders[1], NUMERICS_FLOAT32);
    struct network *network = bench_network(bench.weights, bench.lora, bench.forest, false);
    clear_gradients(&bench);
    for (size_t i = 0; i < COUNT_OF(moments); i++) {
        struct stopper stopper = {.at = moments[i]};
        struct batch_result result = {-1, -1, -1};
        struct outcome outcome;
        struct error err = {0};

        atomic_init(&stopper.stop, moments[i] == NULL);
        network_set_probe(network, stop_when_seen, &stopper);
        assert_false(network_run(network, NETWORK_TRAIN, &bench.forest->batch, SCALE, bench.full,
                                 &stopper.stop, &result, &err));
        assert_int_equal(err.code, ERR_CANCELLED);
        assert_true(result.loss_sum == -1);
        assert_int_equal(stopper.seen_after, 0);
        outcome_read(&outcome, &bench);
        for (size_t j = 0; j < outcome.adapter_count; j++)
            assert_true(outcome.adapter[j] == 0);
        outcome_release(&outcome);
    }
    network_set_probe(network, NULL, NULL);
    assert_true(train(&bench, network, bench.forest).loss_sum > 0);
    network_free(network);
    bench_release(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_of_lines_learns_what_its_lines_learn_apart),
        cmocka_unit_test(packed_lines_learn_what_they_learn_one_after_another),
        cmocka_unit_test(a_weight_of_two_counts_twice),
        cmocka_unit_test(layers_made_again_give_the_same_bits_as_layers_kept),
        cmocka_unit_test(products_kept_or_made_again_teach_the_adapter_the_same_bits),
        cmocka_unit_test(a_network_takes_what_it_planned_and_a_run_takes_nothing),
        cmocka_unit_test(a_plan_past_all_memory_is_refused_not_wrapped),
        cmocka_unit_test(nothing_of_an_earlier_run_reaches_the_next),
        cmocka_unit_test(gradients_of_several_runs_add_up),
        cmocka_unit_test(an_evaluation_gives_the_loss_and_touches_no_gradient),
        cmocka_unit_test(a_run_asked_to_stop_stops_between_layers_forward_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

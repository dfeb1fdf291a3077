/*
 * Proves that the host side of kernels/cuda and the kernels of kernels/gpu give what ref gives, on
 * every shape of the op table, with threads and blocks in any order and streams deferred, in place
 * where the op allows it; that their bits do not depend on that order; and that no build of the
 * stand-in finds a fault in them.
 *
 *   ONLY=heads test_ops    the cases whose names begin so
 */
#include "kernels/plugin.h"
#include "tests/kernels/standin/standin.h"
#include "tests/support/op_cases.h"

static size_t case_count;

plugin_entry needled_plugin; /* linked in, where the program loads it */

static struct backend *open_device(int index)
{
    const struct backend_options options = {.device_index = index, .thread_count = 1};
    struct backend *be = NULL;
    char reason[200] = "";

    if (needled_plugin()->open(&options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("device %d: %s", index, reason);
    return be;
}

static bool is_asked_for(const struct op_case *op)
{
    const char *only = getenv("ONLY");

    return !only || strncmp(op->name, only, strlen(only)) == 0;
}

static void run_both_ways(struct op_run *run)
{
    op_run_forward(run);
    if (run->op->backward)
        op_run_backward(run);
}

static void compare_with_oracle(const struct op_run *run, const struct op_run *oracle)
{
    char reason[200];

    if (!op_agrees(run, oracle, reason, sizeof(reason)))
        fail_msg("%s", reason);
}

static void compare_bits(const struct op_run *run, const struct op_run *other)
{
    for (size_t i = 0; i < run->array_count; i++) {
        const struct op_array *a = &run->arrays[i], *b = &other->arrays[i];
        const size_t size_bytes = a->count * (a->bytes ? 1 : sizeof(float));

        if (a->written && memcmp(a->result, b->result, size_bytes) != 0)
            fail_msg("%s, size %s, %s: other bits in another order", run->op->name, run->size->name,
                     a->name);
    }
}

/* A case on ref: numbers and results that the device's runs are made from and compared with. */
static void run_oracle(struct op_run *oracle, const struct op_case *op, const struct op_size *size)
{
    static struct backend *ref;

    if (!ref)
        ref = backend_for_test(BACKEND_REF); /* until the end of the program */
    op_run_init(oracle, ref, op, size);
    run_both_ways(oracle);
}

static void compare_with_ref(struct backend *be, const struct op_case *op,
                             const struct op_size *size)
{
    struct op_run run, oracle;

    if (!is_asked_for(op))
        return;
    run_oracle(&oracle, op, size);
    op_run_init_as(&run, be, &oracle);
    run_both_ways(&run);
    compare_with_oracle(&run, &oracle);
    op_run_release(&run);
    op_run_release(&oracle);
    case_count++;
}

static void close_clean(struct backend *be)
{
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
    assert_int_equal(standin_allocation_count(), 0);
    assert_int_equal(standin_report_count(), 0);
}

/*
 * What orders and sizes a build has to see. The fast one, and a card, see all. What the others look
 * for they find in any order, since each access is looked at, not what came of it; and their size
 * "large" is shorter: past every border that is drawn at 64 or less. What lies past the wider ones
 * (256 threads, 128 vectors) they see in the tests of one op below.
 */
static bool sees_all(void)
{
    return strcmp(standin_build(), "asan") != 0 && strcmp(standin_build(), "race") != 0;
}

#define ROUNDS 4 /* forward, reverse, two seeds; every other one deferred */

static struct standin_options round_options(int round)
{
    struct standin_options options = standin_defaults;

    options.order = round < 2 ? (enum standin_order)round : STANDIN_SEEDED;
    options.seed = (uint64_t)round;
    options.deferred = round % 2 == 1;
    return options;
}

static bool is_seen(int round, const struct op_size *size)
{
    return sees_all() || round == 0 || (round < 3 && size->N <= 33);
}

static void compare_in_any_order(struct backend *be, const struct op_case *op,
                                 const struct op_size *size)
{
    struct op_run oracle, first, other;
    struct op_size shorter = *size;

    if (!is_asked_for(op))
        return;
    if (!sees_all() && size->N > 100) {
        shorter.N = 90;
        shorter.C = 70;
        shorter.vocab = 140;
    }
    run_oracle(&oracle, op, &shorter);
    for (int round = 0; round < ROUNDS; round++) {
        const struct standin_options options = round_options(round);
        struct op_run *run = round == 0 ? &first : &other;

        if (!is_seen(round, size))
            continue;
        standin_set(&options);
        op_run_init_as(run, be, &oracle);
        run_both_ways(run);
        if (round == 0) {
            compare_with_oracle(run, &oracle);
        } else {
            compare_bits(run, &first);
            op_run_release(run);
        }
    }
    op_run_release(&first);
    op_run_release(&oracle);
    case_count++;
}

static void kernels_agree_with_ref_and_give_the_same_bits_in_any_order(void **state)
{
    (void)state;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    each_op_case(be, op_size_count, compare_in_any_order);
    close_clean(be);
    assert_true(getenv("ONLY") || case_count >= 50 * op_size_count);
}

static void compare_in_place(struct backend *be, const struct op_case *op,
                             const struct op_size *size)
{
    for (size_t pair = 0; pair < COUNT_OF(op->in_place) && op->in_place[pair][0]; pair++) {
        struct op_run apart, together;

        if (!is_asked_for(op))
            return;
        op_run_init(&apart, be, op, size);
        op_run_init_as(&together, be, &apart);
        run_both_ways(&apart);
        struct op_array *output = op_array(&together, op->in_place[pair][0]);
        struct op_array *input = op_array(&together, op->in_place[pair][1]);
        void *own = output->device;
        if (output->gradient_of)
            op_run_forward(&together);
        output->device = input->device;
        memcpy(output->start, input->start, input->count * sizeof(float));
        if (output->gradient_of)
            op_run_backward(&together);
        else
            op_run_forward(&together);
        assert_memory_equal(output->result, op_array(&apart, op->in_place[pair][0])->result,
                            output->count * sizeof(float));
        output->device = own;
        op_run_release(&apart);
        op_run_release(&together);
    }
}

static void outputs_may_stand_where_inputs_stood(void **state)
{
    (void)state;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    each_op_case(be, op_size_count - 1, compare_in_place); /* "large" tells nothing new */
    close_clean(be);
}

/* Coefficients of eight lanes, more tokens than one partial sum takes, factors of several tiles. */
static void blocks_are_as_large_as_they_like(void **state)
{
    static const struct op_size sizes[] = {
        {.name = "eight lanes", .N = 9, .C = 21, .lanes = 8},
        {.name = "many tokens", .N = 700, .C = 3, .lanes = 2},
        {.name = "wide blocks", .N = 2, .C = 2100, .lanes = 1},
    };

    (void)state;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    for (size_t size = 0; size < COUNT_OF(sizes); size++)
        for (const struct op_case *op = op_cases_blocks; op->name; op++)
            compare_with_ref(be, op, &sizes[size]);
    close_clean(be);
}

/* More rows and values than one partial sum takes, and a weight's gradient that adds; rows of tables
 * named again by another block of rows. */
static void long_sums_take_several_groups(void **state)
{
    static const struct op_size sizes[] = {
        {.name = "many rows",
         .N = 1000,
         .C = 3,
         .H = 1,
         .G = 1,
         .half = 1,
         .V = 1,
         .lanes = 1,
         .vocab = 2},
        {.name = "wide rows",
         .N = 5,
         .C = 4096, /* as wide as ref goes */
         .H = 1,
         .G = 1,
         .half = 1,
         .V = 1,
         .lanes = 1,
         .vocab = 2},
        {.name = "many slots",
         .N = 600,
         .C = 3,
         .H = 2,
         .G = 1,
         .half = 1,
         .V = 1,
         .lanes = 1,
         .vocab = 400},
    };

    (void)state;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    for (size_t size = 0; size < COUNT_OF(sizes); size++) {
        for (const struct op_case *op = op_cases; op->name && size < 2; op++)
            compare_with_ref(be, op, &sizes[size]);
        for (const struct op_case *op = op_cases_tables; op->name; op++)
            compare_with_ref(be, op, &sizes[size]);
    }
    close_clean(be);
}

/* Several tiles where the table's shapes have one: of a head's width, of the vocabulary; more tiles
 * of tokens than one block describes; several blocks of targets; gains summed over more than the
 * fewest rows. */
static void wide_shapes_take_several_tiles(void **state)
{
    static const struct {
        const char *op;
        struct op_size size;
    } shapes[] = {
        {"attention", {"wide keys", 70, 1, 4, 2, 40, 9, 1, 2, TREE_NESTED, 30}},
        {"attention", {"wide values", 70, 1, 2, 2, 4, 70, 1, 2, TREE_FOREST, 3}},
        {"attention in", {"many tokens", 16500, 1, 1, 1, 1, 1, 1, 2, TREE_FOREST, 3}},
        {"cross_entropy", {"many words", 1100, 5, 1, 1, 1, 1, 1, 8300, TREE_CHAIN, 0}},
        {"heads: queries", {"many heads", 500, 1, 35, 1, 2, 1, 1, 2, TREE_CHAIN, 0}},
    };

    (void)state;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (const struct op_case *op = op_cases; op->name; op++)
            if (strncmp(op->name, shapes[i].op, strlen(shapes[i].op)) == 0)
                compare_with_ref(be, op, &shapes[i].size);
    close_clean(be);
}

static void loss_alone(struct op_run *run, float *dx, float *dtable)
{
    const struct op_size *size = run->size;

    backend_cross_entropy(run->be, op_device(run, "loss"), op_device(run, "hit"), dx, dtable,
                          op_device(run, "x"), op_device(run, "table"), op_device(run, "row"),
                          op_device(run, "label"), op_device(run, "weight"), 0.375f, size->N + 2,
                          size->N, size->vocab, size->C);
}

/* One gradient of the loss is the same without the other, and what is not asked for stays. */
static void gradients_may_be_left_out(void **state)
{
    const struct op_case *op = op_cases;
    struct op_run run;

    (void)state;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    while (op->name && strcmp(op->name, "cross_entropy") != 0)
        op++;
    assert_non_null(op->name);
    op_run_init(&run, be, op, &op_sizes[3]);
    run_both_ways(&run);

    struct op_array *const gradients[] = {op_array(&run, "dx"), op_array(&run, "dtable")};
    for (size_t wanted = 0; wanted < COUNT_OF(gradients); wanted++) {
        struct op_array *one = gradients[wanted];
        const size_t size_bytes = one->count * sizeof(float);
        float *alone = malloc(size_bytes);

        assert_non_null(alone);
        backend_upload(be, one->device, one->start, size_bytes);
        loss_alone(&run, wanted == 0 ? one->device : NULL, wanted == 1 ? one->device : NULL);
        backend_download(be, alone, one->device, size_bytes);
        assert_memory_equal(alone, one->result, size_bytes);
        free(alone);
    }
    op_run_release(&run);
    close_clean(be);
}

/* Logits that are all 1 from the fourth word on: the same in one thread's words, in another thread's
 * and in the next tile of the vocabulary. */
static void of_equal_logits_the_first_is_the_hit(void **state)
{
    static const int32_t rows[] = {0, 0, 0, 0, 0};
    static const uint32_t labels[] = {3, 2, 4, 3 + 256, 3 + 8192};
    static const float weights[] = {1, 1, 1, 1, 1};
    static float table[8300], one = 1, hits[COUNT_OF(labels)];

    (void)state;
    for (size_t word = 3; word < COUNT_OF(table); word++)
        table[word] = 1;
    standin_set(&standin_defaults);
    struct backend *be = open_device(0);
    float *x = backend_alloc(be, sizeof(one)), *words = backend_alloc(be, sizeof(table));
    float *weight = backend_alloc(be, sizeof(weights)), *loss = backend_alloc(be, sizeof(hits));
    float *hit = backend_alloc(be, sizeof(hits));
    int32_t *row = backend_alloc(be, sizeof(rows));
    uint32_t *label = backend_alloc(be, sizeof(labels));

    backend_upload(be, x, &one, sizeof(one));
    backend_upload(be, words, table, sizeof(table));
    backend_upload(be, weight, weights, sizeof(weights));
    backend_upload(be, row, rows, sizeof(rows));
    backend_upload(be, label, labels, sizeof(labels));
    backend_cross_entropy(be, loss, hit, NULL, NULL, x, words, row, label, weight, 1,
                          COUNT_OF(labels), 1, COUNT_OF(table), 1);
    backend_download(be, hits, hit, sizeof(hits));
    assert_int_equal(backend_sync(be), BACKEND_OK);
    for (size_t i = 0; i < COUNT_OF(labels); i++)
        if (hits[i] != (i == 0 ? 1.0f : 0.0f))
            fail_msg("word %u: hit %g", labels[i], (double)hits[i]);

    void *const all[] = {x, words, weight, loss, hit, row, label};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        backend_free(be, all[i]);
    close_clean(be);
}

static void a_device_that_breaks_says_so_and_gives_its_memory_back(void **state)
{
    struct standin_options options = standin_defaults;
    float result;

    (void)state;
    if (strcmp(standin_build(), "card") == 0) /* a real one is not to be broken */
        skip();
    options.fail_launch = 2; /* the second half of the first sum */
    standin_set(&options);
    struct backend *be = open_device(0);
    float *x = backend_alloc(be, 400), *sum = backend_alloc(be, sizeof(float));
    float host[100] = {1};
    backend_upload(be, x, host, sizeof(host));
    backend_sum_squares(be, sum, x, 100);
    backend_download(be, &result, sum, sizeof(result));
    assert_int_equal(backend_sync(be), BACKEND_FAULT);
    assert_string_equal(backend_fault(be),
                        "cuda:0, earlier work: cudaErrorLaunchFailure: unspecified launch failure");
    backend_free(be, x);
    backend_free(be, sum);
    close_clean(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_agree_with_ref_and_give_the_same_bits_in_any_order),
        cmocka_unit_test(outputs_may_stand_where_inputs_stood),
        cmocka_unit_test(long_sums_take_several_groups),
        cmocka_unit_test(wide_shapes_take_several_tiles),
        cmocka_unit_test(gradients_may_be_left_out),
        cmocka_unit_test(blocks_are_as_large_as_they_like),
        cmocka_unit_test(of_equal_logits_the_first_is_the_hit),
        cmocka_unit_test(a_device_that_breaks_says_so_and_gives_its_memory_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

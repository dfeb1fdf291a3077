/* Proves that splits and orders are NumPy's: those of the recorded runs, from their seeds alone. */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/train/shuffle.h"
#include "tests/support/test.h"

static struct json *read_json(const char *path)
{
    struct mapping map = MAPPING_NONE;
    struct json *json = NULL;
    struct error err = {0};

    if (!mapping_open(&map, path, &err) ||
        !json_parse((const char *)map.data, map.size, &json, &err))
        fail_msg("%s: %s", path, err.message);
    mapping_close(&map);
    return json;
}

static void check_order(struct shuffle *shuffle, const struct json *wanted)
{
    const size_t count = json_count(wanted);
    uint32_t *order = calloc(count, sizeof(*order));
    size_t i = 0;

    assert_non_null(order);
    shuffle_permutation(shuffle, count, order);
    for (const struct json *e = json_first(wanted); e; e = json_next(e), i++)
        assert_int_equal(order[i], json_number(e));
    assert_int_equal(i, count);
    free(order);
}

static void the_recorded_split_and_orders_come_from_the_seed(void **state)
{
    (void)state;
    static const char *const runs[] = {FIXTURES "needle3/train_run.json",
                                       FIXTURES "needle3/mini/train_run.json"};

    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        struct json *run = read_json(runs[i]);
        const struct json *epochs = json_member(run, "epoch_permutations");
        struct shuffle shuffle;

        shuffle_init(&shuffle,
                     (uint64_t)json_number(json_member(json_member(run, "args"), "seed")));
        check_order(&shuffle, json_member(run, "split_permutation"));
        assert_true(json_count(epochs) >= 2);
        for (const struct json *e = json_first(epochs); e; e = json_next(e))
            check_order(&shuffle, e);
        json_free(run);
    }
}

static void a_seed_past_32_bits_gives_its_own_order(void **state)
{
    (void)state;
    struct shuffle narrow, wide;
    uint32_t a[64], b[64];

    shuffle_init(&narrow, 7);
    shuffle_init(&wide, 7 | (uint64_t)1 << 40);
    shuffle_permutation(&narrow, COUNT_OF(a), a);
    shuffle_permutation(&wide, COUNT_OF(b), b);
    assert_memory_not_equal(a, b, sizeof(a));
}

static void a_saved_state_goes_on_where_it_was(void **state)
{
    (void)state;
    struct shuffle shuffle, copy;
    uint32_t order[58], wanted[64], found[64];
    uint64_t words[SHUFFLE_WORDS];
    size_t with_half = 0;

    shuffle_init(&shuffle, 3);
    for (size_t round = 0; round < 8; round++) {
        shuffle_permutation(&shuffle, COUNT_OF(order), order);
        with_half += shuffle.has_half != 0;
        shuffle_save(&shuffle, words);
        shuffle_restore(&copy, words);
        shuffle_permutation(&copy, COUNT_OF(found), found);
        struct shuffle ahead = shuffle;
        shuffle_permutation(&ahead, COUNT_OF(wanted), wanted);
        assert_memory_equal(found, wanted, sizeof(found));
    }
    assert_in_range(with_half, 1, 7); /* both kinds of state were seen */
}

static void short_orders_hold_every_index_once(void **state)
{
    (void)state;
    struct shuffle shuffle;
    uint32_t order[40];

    shuffle_init(&shuffle, 0);
    for (size_t count = 0; count <= COUNT_OF(order); count++) {
        bool seen[COUNT_OF(order)] = {0};

        shuffle_permutation(&shuffle, count, order);
        for (size_t i = 0; i < count; i++) {
            assert_true(order[i] < count);
            assert_false(seen[order[i]]);
            seen[order[i]] = true;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recorded_split_and_orders_come_from_the_seed),
        cmocka_unit_test(a_seed_past_32_bits_gives_its_own_order),
        cmocka_unit_test(a_saved_state_goes_on_where_it_was),
        cmocka_unit_test(short_orders_hold_every_index_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

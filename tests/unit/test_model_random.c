/*
 * Proves that permutations are NumPy's and start values JAX's, against numbers they produced.
 */
#include "daemon/model/random.h"
#include "tests/support/network.h"
#include "tests/support/test.h"

static void permutations_are_those_of_numpy(void **state)
{
    (void)state;
    /* numpy.random.RandomState(seed).permutation(count): the first four, and sum (i + 1) p[i] */
    static const struct {
        uint32_t seed;
        size_t count;
        int32_t first[4];
        int64_t sum;
    } cases[] = {
        {11, 256, {137, 144, 26, 173}, 4236732},
        {13, 256, {96, 248, 125, 107}, 4169328},
        {11, 10, {7, 8, 2, 6}, 224},
        {13, 10, {3, 5, 6, 1}, 245},
        {988, 10, {2, 4, 8, 6}, 270},
        {990, 10, {4, 2, 7, 5}, 257},
        {4294967295U, 70000, {14972, 66828, 49490, 22806}, 85784494817776},
    };
    int32_t *order = calloc(70000, sizeof(*order));

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t sum = 0;

        random_mt_permutation(cases[i].seed, cases[i].count, order);
        for (size_t j = 0; j < cases[i].count; j++)
            sum += (int64_t)(j + 1) * order[j];
        assert_memory_equal(order, cases[i].first, sizeof(cases[i].first));
        if (sum != cases[i].sum)
            fail_msg("seed %u, %zu: sum %lld", cases[i].seed, cases[i].count, (long long)sum);
    }
    random_mt_permutation(1, 1, order);
    assert_int_equal(order[0], 0);
    random_mt_permutation(1, 0, order); /* nothing to do */
    free(order);
}

/* What the recorded runs were started with. */
static const uint64_t seeds[GEOMETRY_COUNT] = {0, 3};

static void keys_are_split_as_recorded_for_each_group(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct safetensors *file = fixture_open(geometry_folders[i], "lora_init.safetensors");
        struct threefry_key key = threefry_key_from_seed(seeds[i]);
        size_t keys = 0;

        for (size_t j = 0; j < safetensors_count(file); j++) { /* in the order of names */
            const struct tensor *tensor = safetensors_at(file, j);
            struct threefry_key sub;

            if (strncmp(tensor->name, "key/", 4) != 0)
                continue;
            sub = threefry_split(&key);
            assert_memory_equal(&sub, tensor->data, sizeof(sub));
            keys++;
        }
        assert_int_equal(keys, i == 0 ? 5 : 4);
        safetensors_close(file);
    }
}

static void normal_numbers_are_the_recorded_start_values(void **state)
{
    (void)state;
    size_t equal = 0, total = 0;

    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct safetensors *file = fixture_open(geometry_folders[i], "lora_init.safetensors");

        for (size_t j = 0; j < safetensors_count(file); j++) {
            const struct tensor *tensor = safetensors_at(file, j);
            struct threefry_key key;
            char name[256];
            size_t count, rank;
            float *wanted, *found;

            if (strncmp(tensor->name, "key/", 4) != 0)
                continue;
            memcpy(&key, tensor->data, sizeof(key));
            snprintf(name, sizeof(name), "lora/%s/A", tensor->name + 4);
            rank = fixture_tensor(file, "", name)->shape[2];
            wanted = fixture_floats(file, "", name, &count);
            found = calloc(count, sizeof(*found));
            threefry_normal(key, 0, count, found);
            for (size_t k = 0; k < count; k++) {
                float value = found[k] * (1.0F / (float)rank);

                if (!(fabsf(value - wanted[k]) <= 2e-7F))
                    fail_msg("%s[%zu]: %.9g, not %.9g", name, k, (double)value, (double)wanted[k]);
                equal += value == wanted[k];
                total++;
            }
            /* any stretch of the numbers can be had alone */
            threefry_normal(key, 7, 5, wanted);
            assert_memory_equal(wanted, found + 7, 5 * sizeof(*found));
            free(found);
            free(wanted);
        }
        safetensors_close(file);
    }
    print_message("%zu of %zu start values are bit-equal\n", equal, total);
    assert_true(equal * 10 > total * 8); /* the rest differ by log1p's last bit */
}

static void normal_numbers_are_normal(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    float *values = calloc(COUNT, sizeof(*values));
    double sum = 0, squares = 0;
    float largest = 0;

    threefry_normal(threefry_key_from_seed(42), 0, COUNT, values);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(isfinite(values[i]));
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        largest = fmaxf(largest, fabsf(values[i]));
    }
    assert_true(fabs(sum / COUNT) < 0.015);          /* 4.7 standard errors */
    assert_true(fabs(squares / COUNT - 1.0) < 0.02); /* 4.5 standard errors */
    assert_true(largest > 3.5F && largest < 6.0F);   /* both branches of the inverse were taken */
    free(values);
}

static void a_seed_beyond_32_bits_counts_by_its_low_word(void **state)
{
    (void)state;
    struct threefry_key key = threefry_key_from_seed(0x100000005), same = threefry_key_from_seed(5);

    assert_memory_equal(&key, &same, sizeof(key));
    assert_int_equal(key.a, 0);
    assert_int_equal(key.b, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations_are_those_of_numpy),
        cmocka_unit_test(keys_are_split_as_recorded_for_each_group),
        cmocka_unit_test(normal_numbers_are_the_recorded_start_values),
        cmocka_unit_test(normal_numbers_are_normal),
        cmocka_unit_test(a_seed_beyond_32_bits_counts_by_its_low_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

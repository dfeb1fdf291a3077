/*
 * Proves that a base of random weights is one that can be loaded, the same for the same seed, and that
 * none of its tensors is flat, so that an op that goes wrong on it is seen.
 */
#include "daemon/model/sample.h"
#include "daemon/model/safetensors.h"
#include "daemon/model/weights.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>

static const char config[] =
    "{\"vocab_size\": 50, \"d_model\": 20, \"num_heads\": 2, \"num_kv_heads\": 1, "
    "\"num_layers\": 3, \"qk_head_dim\": 6, \"v_head_dim\": 5, \"max_seq_len\": 16, "
    "\"rope_theta\": 10000.0, \"engram_orders\": [2], \"engram_heads\": 2, "
    "\"engram_slots\": 7, \"engram_seed_heads\": 0, \"engram_layers\": [0, 2], "
    "\"global_layers\": [], \"sliding_window\": 0, \"ladder_widths\": [], \"mhc_lanes\": 2, "
    "\"qkv_conv_taps\": 3, \"out_vocab\": 0, \"kv_bits\": 8, \"act_bits\": 8}";

static void write_sample(const char *path, uint64_t seed)
{
    struct error err = {0};

    if (!sample_write(path, config, seed, &err))
        fail_msg("%s", err.message);
}

static void a_sample_is_a_base_with_every_tensor(void **state)
{
    const char *path = scratch_path(*state, "base.safetensors");
    struct geometry geometry;
    struct error err = {0};
    size_t parameters;

    write_sample(path, 3);
    if (!weights_check(path, &geometry, &parameters, &err))
        fail_msg("%s", err.message);
    assert_int_equal(geometry.layer_count, 3);
    assert_int_equal(geometry.engram_site_count, 2);
    assert_true(parameters > 50 * 20);
}

static void no_tensor_is_flat(void **state)
{
    const char *path = scratch_path(*state, "base.safetensors");
    struct safetensors *file = NULL;
    struct error err = {0};

    write_sample(path, 3);
    if (!safetensors_open(path, &file, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *tensor = safetensors_at(file, i);
        float *values = malloc(tensor->element_count * sizeof(*values));
        double sum = 0, squares = 0;

        assert_non_null(values);
        assert_true(tensor_to_f32(tensor, values, &err));
        for (size_t n = 0; n < tensor->element_count; n++) {
            sum += values[n];
            squares += (double)values[n] * values[n];
        }
        const double mean = sum / (double)tensor->element_count;
        if (!(squares / (double)tensor->element_count - mean * mean > 1e-4))
            fail_msg("%s", tensor->name);
        free(values);
    }
    safetensors_close(file);
}

static void the_same_seed_gives_the_same_bytes(void **state)
{
    static const uint64_t seeds[] = {3, 3, 4};
    char *content[COUNT_OF(seeds)];
    size_t sizes[COUNT_OF(seeds)];

    for (size_t i = 0; i < COUNT_OF(seeds); i++) {
        const char *path = scratch_path(*state, "base.safetensors");

        write_sample(path, seeds[i]);
        content[i] = scratch_read(path, &sizes[i]);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(content[0], content[1], sizes[0]);
    assert_int_equal(sizes[0], sizes[2]);
    assert_memory_not_equal(content[0], content[2], sizes[0]);
    for (size_t i = 0; i < COUNT_OF(seeds); i++)
        free(content[i]);
}

static void an_impossible_geometry_is_refused(void **state)
{
    struct error err = {0};

    assert_false(sample_write(scratch_path(*state, "base"), "{\"vocab_size\": 0}", 1, &err));
    assert_non_null(strstr(err.message, "vocab_size"));
}

static int set_up(void **state)
{
    *state = scratch_new();
    return 0;
}

static int tear_down(void **state)
{
    scratch_free(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_sample_is_a_base_with_every_tensor),
        TEST(no_tensor_is_flat),
        TEST(the_same_seed_gives_the_same_bytes),
        TEST(an_impossible_geometry_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

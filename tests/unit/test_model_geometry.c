/*
 * Proves that a checkpoint's config is read as the reference implementation reads it, with the same
 * values for what is absent, and that what cannot be is refused by the field's name.
 */
#include "daemon/model/geometry.h"
#include "daemon/model/safetensors.h"
#include "tests/support/test.h"

static struct geometry parse(const char *config)
{
    struct geometry geometry;
    struct error err = {0};

    if (!geometry_parse(config, &geometry, &err))
        fail_msg("%s: %s", config, err.message);
    return geometry;
}

static struct geometry of_checkpoint(const char *path)
{
    struct safetensors *file;
    struct geometry geometry;
    struct error err = {0};

    if (!safetensors_open(path, &file, &err))
        fail_msg("%s", err.message);
    geometry = parse(safetensors_metadata(file, "config"));
    safetensors_close(file);
    return geometry;
}

static void the_larger_fixture_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct geometry g = of_checkpoint(FIXTURES "needle3/base.safetensors");

    assert_int_equal(g.vocab_size, 1024);
    assert_int_equal(g.out_vocab, 1024); /* 0 in the file */
    assert_int_equal(g.d_model, 192);
    assert_int_equal(g.layer_count, 6);
    assert_int_equal(g.head_count, 6);
    assert_int_equal(g.kv_head_count, 2);
    assert_int_equal(g.qk_head_size, 16);
    assert_int_equal(g.v_head_size, 24);
    assert_int_equal(g.max_seq_len, 512);
    assert_true(g.rope_theta == 100000.0);
    assert_int_equal(g.engram_order_count, 2);
    assert_int_equal(g.engram_orders[1], 3);
    assert_int_equal(g.engram_heads, 2);
    assert_int_equal(g.engram_seed_heads, 2); /* 0 in the file */
    assert_int_equal(g.engram_slots, 307);
    assert_int_equal(g.engram_sub, 48);
    assert_int_equal(g.sliding_window, 24);
    assert_int_equal(g.lane_count, 4);
    assert_int_equal(g.conv_taps, 3);
    assert_false(g.split_permutations);
    assert_int_equal(g.monarch_size, 256);
    assert_int_equal(g.monarch_a, 16);
    assert_int_equal(g.monarch_b, 16);
    assert_int_equal(g.kv_bits, 8);
    assert_int_equal(g.act_bits, 8);
    for (size_t layer = 0; layer < 6; layer++) {
        assert_int_equal(geometry_is_global(&g, layer), layer == 2 || layer == 5);
        assert_int_equal(geometry_engram_site(&g, layer), layer == 1 ? 0 : layer == 4 ? 1 : -1);
    }
}

static void the_smaller_fixture_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct geometry g = of_checkpoint(FIXTURES "needle3/mini/base.safetensors");

    assert_int_equal(g.vocab_size, 840);
    assert_int_equal(g.out_vocab, 800);
    assert_int_equal(g.qk_head_size, 10);
    assert_int_equal(g.engram_heads, 1); /* 0 in the file: max(1, 80 / 256) */
    assert_int_equal(g.engram_seed_heads, 5);
    assert_int_equal(g.engram_sub, 40);
    assert_int_equal(g.lane_count, 3);
    assert_int_equal(g.conv_taps, 0);
    assert_true(g.split_permutations);
    assert_int_equal(g.monarch_size, 128);
    assert_int_equal(g.monarch_a, 8);
    assert_int_equal(g.monarch_b, 16);
    assert_int_equal(g.kv_bits, 4);
    assert_true(geometry_is_global(&g, 1)); /* without a window every layer is */
}

static void what_an_older_checkpoint_lacks_has_the_value_it_had_then(void **state)
{
    (void)state;
    struct geometry g = parse("{}");

    assert_int_equal(g.vocab_size, 16384);
    assert_int_equal(g.d_model, 768);
    assert_int_equal(g.head_count, 12);
    assert_int_equal(g.kv_head_count, 2);
    assert_int_equal(g.layer_count, 20);
    assert_int_equal(g.qk_head_size, 64); /* not a new model's 48: width / heads */
    assert_int_equal(g.v_head_size, 64);
    assert_int_equal(g.max_seq_len, 4096);
    assert_int_equal(g.engram_slots, 18432);
    assert_int_equal(g.engram_heads, 3); /* 768 / (2 * 128) */
    assert_int_equal(g.engram_sub, 128);
    assert_int_equal(g.engram_site_count, 5);
    assert_int_equal(g.engram_layers[4], 19);
    assert_int_equal(g.global_layer_count, 0);
    assert_int_equal(g.sliding_window, 0);
    assert_int_equal(g.conv_taps, 0);
    assert_int_equal(g.lane_count, 4);
    assert_int_equal(g.monarch_size, 1024);
    assert_int_equal(g.monarch_a, 32);
    assert_int_equal(g.monarch_b, 32);
    assert_int_equal(g.kv_bits, 8);
    assert_false(g.split_permutations);
    g = parse("{\"ladder_widths\":[],\"engram_layers\":[],\"d_model\":770,\"num_heads\":5,"
              "\"num_kv_heads\":5,\"kv_bits\":16,\"some_new_field\":[1]}");
    assert_false(g.split_permutations);
    assert_int_equal(g.engram_site_count, 0);
    assert_int_equal(g.kv_bits, 8);                             /* as the reference: 8 and above */
    assert_int_equal(parse("{\"d_model\":512}").monarch_a, 16); /* an odd power of two */
    assert_int_equal(parse("{\"d_model\":512}").monarch_b, 32);
    assert_int_equal(
        parse("{\"ladder_order\":[1,0],\"num_layers\":2,\"engram_layers\":[0]}").layer_count, 2);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *config, *field;
    } cases[] = {
        {"{\"vocab_size\":0}", "vocab_size"},
        {"{\"vocab_size\":99999999}", "vocab_size"},
        {"{\"vocab_size\":\"1\"}", "vocab_size"},
        {"{\"d_model\":0}", "d_model"},
        {"{\"d_model\":1000000}", "d_model"},
        {"{\"d_model\":768.5}", "d_model"},
        {"{\"num_heads\":0}", "num_heads"},
        {"{\"num_kv_heads\":0}", "num_kv_heads"},
        {"{\"num_kv_heads\":5}", "num_kv_heads"},
        {"{\"num_layers\":0}", "num_layers"},
        {"{\"num_layers\":257}", "num_layers"},
        {"{\"qk_head_dim\":15}", "qk_head_dim"},
        {"{\"qk_head_dim\":-2}", "qk_head_dim"},
        {"{\"d_model\":36,\"num_heads\":12,\"engram_layers\":[]}", "qk_head_dim"},
        {"{\"d_model\":8,\"num_heads\":12,\"qk_head_dim\":4,\"engram_layers\":[]}", "num_heads"},
        {"{\"v_head_dim\":-1}", "v_head_dim"},
        {"{\"max_seq_len\":0}", "max_seq_len"},
        {"{\"rope_theta\":0}", "rope_theta"},
        {"{\"rope_theta\":\"x\"}", "rope_theta"},
        {"{\"engram_orders\":[]}", "engram_orders"},
        {"{\"engram_orders\":[0]}", "engram_orders"},
        {"{\"engram_orders\":[2.5]}", "engram_orders"},
        {"{\"engram_orders\":[2,2]}", "engram_orders"},
        {"{\"engram_orders\":[1,2,3,4,5,6,7,8,9]}", "engram_orders"},
        {"{\"engram_heads\":5}", "engram_heads"}, /* 10 tables do not divide 768 */
        {"{\"engram_heads\":-1}", "engram_heads"},
        {"{\"engram_slots\":0}", "engram_slots"},
        {"{\"engram_layers\":[20]}", "engram_layers"},
        {"{\"engram_layers\":[-1]}", "engram_layers"},
        {"{\"engram_layers\":[3,3]}", "engram_layers"},
        {"{\"engram_layers\":3}", "engram_layers"},
        {"{\"num_layers\":6}", "engram_layers"}, /* absent: up to layer 19 */
        {"{\"global_layers\":[20]}", "global_layers"},
        {"{\"global_layers\":[true]}", "global_layers"},
        {"{\"sliding_window\":-1}", "sliding_window"},
        {"{\"mhc_lanes\":0}", "mhc_lanes"},
        {"{\"mhc_lanes\":9}", "mhc_lanes"},
        {"{\"qkv_conv_taps\":-1}", "qkv_conv_taps"},
        {"{\"qkv_conv_taps\":17}", "qkv_conv_taps"},
        {"{\"out_vocab\":16385}", "out_vocab"},
        {"{\"kv_bits\":5}", "kv_bits"},
        {"{\"kv_bits\":1}", "kv_bits"},
        {"{\"act_bits\":4}", "act_bits"},
        {"{\"ladder_widths\":384}", "ladder_widths"},
        {"{\"ladder_order\":[0,1,2]}", "ladder_order"},
        {"{\"ladder_order\":[0,20]}", "ladder_order"},
        {"{\"attn_dim\":512}", "attn_dim"}, /* Needle 2 */
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct geometry geometry = {.d_model = 7};
        struct error err = {0};

        if (geometry_parse(cases[i].config, &geometry, &err))
            fail_msg("%s was read", cases[i].config);
        if (err.code != ERR_INVALID || strcmp(err.param, cases[i].field) != 0 ||
            !strstr(err.message, cases[i].field))
            fail_msg("%s: param '%s', %s", cases[i].config, err.param, err.message);
        assert_int_equal(geometry.d_model, 7);
    }
}

static void a_config_that_is_no_object_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "", "[]", "null", "{\"d_model\":", "{} {}", "{\"d_model\":8,\"d_model\":16}"};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct geometry geometry;
        struct error err = {0};

        if (geometry_parse(cases[i], &geometry, &err))
            fail_msg("%s was read", cases[i]);
        assert_non_null(strstr(err.message, "config"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_larger_fixture_is_read_as_it_was_written),
        cmocka_unit_test(the_smaller_fixture_is_read_as_it_was_written),
        cmocka_unit_test(what_an_older_checkpoint_lacks_has_the_value_it_had_then),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_config_that_is_no_object_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

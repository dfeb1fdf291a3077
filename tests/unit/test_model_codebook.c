/*
 * Proves that the code values are the reference implementation's, bit for bit.
 */
#include "daemon/model/codebook.h"
#include "daemon/model/safetensors.h"
#include "tests/support/test.h"

static void code_values_are_the_recorded_ones_bit_for_bit(void **state)
{
    (void)state;
    static const size_t groups[] = {WEIGHT_GROUP, KV_GROUP};
    struct safetensors *file;
    struct error err = {0};

    assert_true(safetensors_open(FIXTURES "needle3/quant.safetensors", &file, &err));
    for (int bits = 2; bits <= 4; bits++)
        for (size_t i = 0; i < COUNT_OF(groups); i++) {
            float values[CODEBOOK_MAX];
            const struct tensor *wanted;
            char name[64];
            size_t count = codebook_values(bits, groups[i], values);

            snprintf(name, sizeof(name), "codebook/b%d_g%zu", bits, groups[i]);
            wanted = safetensors_find(file, name);
            assert_non_null(wanted);
            assert_int_equal(count, (size_t)1 << bits);
            assert_int_equal(wanted->size_bytes, count * sizeof(float));
            assert_memory_equal(values, wanted->data, wanted->size_bytes);
            for (size_t k = 1; k < count; k++)
                assert_true(values[k - 1] < values[k]);
        }
    safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(code_values_are_the_recorded_ones_bit_for_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

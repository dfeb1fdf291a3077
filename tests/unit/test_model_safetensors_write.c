/*
 * Proves that half-precision values are converted exactly both ways, and that written files read
 * back equal and are the same bytes for the same content.
 */
#include "daemon/model/safetensors.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>
#include <unistd.h>

/* The value of a half by its definition, in double. */
static double half_value(uint16_t half)
{
    int exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    double size;

    if (exponent == 0x1F)
        size = fraction ? (double)NAN : HUGE_VAL;
    else if (exponent)
        size = ldexp(1024 + fraction, exponent - 25);
    else
        size = ldexp(fraction, -24);
    return half & 0x8000 ? -size : size;
}

static void every_half_is_read_exactly_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        float value = f16_to_f32((uint16_t)half);
        double wanted = half_value((uint16_t)half);

        if (isnan(wanted)) {
            assert_true(isnan(value));
            assert_true(isnan(half_value(f32_to_f16(value))));
            continue;
        }
        if ((double)value != wanted || !signbit(value) != !(half & 0x8000))
            fail_msg("half %04x is %.9g, not %.17g", half, (double)value, wanted);
        if (f32_to_f16(value) != half)
            fail_msg("half %04x comes back as %04x", half, f32_to_f16(value));
    }
}

static void a_float_becomes_the_nearest_half_and_ties_the_even_one(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7C00; half++) {
        double low = half_value((uint16_t)half);
        double high = half == 0x7BFF ? 65536.0 : half_value((uint16_t)(half + 1));
        float middle = (float)((low + high) / 2); /* exact in float32 */
        uint32_t even = half & 1 ? half + 1 : half;

        if (f32_to_f16(middle) != even || f32_to_f16(-middle) != (0x8000 | even))
            fail_msg("the middle above %04x became %04x", half, f32_to_f16(middle));
        if (f32_to_f16(nextafterf(middle, 0)) != half)
            fail_msg("below the middle of %04x and the next", half);
        if (f32_to_f16(nextafterf(middle, INFINITY)) != half + 1)
            fail_msg("above the middle of %04x and the next", half);
    }
    assert_int_equal(f32_to_f16(65504.0F), 0x7BFF);
    assert_int_equal(f32_to_f16(65520.0F), 0x7C00);
    assert_int_equal(f32_to_f16(3e38F), 0x7C00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(f32_to_f16(1e-45F), 0);
}

static const float floats[] = {1.5F, -2.25F, 3e-40F, 1e30F, 0.0F, -0.0F};
static const uint8_t bytes3[] = {1, 2, 255};
static const int64_t wide[] = {INT64_MIN, 1};
static const struct tensor_out tensors[] = {
    {"stack/q/kernel", TENSOR_F32, 2, {3, 2}, floats},
    {"a \"quoted\" name\n", TENSOR_U8, 1, {3}, bytes3},
    {"z", TENSOR_I64, 1, {2}, wide},
    {"none", TENSOR_F32, 3, {4, 0, 2}, NULL},
    {"one", TENSOR_F32, 0, {0}, floats},
};
static const struct metadata_out metadata[] = {
    {"scale", "2.0"}, {"base", "\"caf\\u00e9 \xc3\xa9\""}, {"config", "{\"a\":[1,2]}\n"}};

static void write_small(const char *name, bool backwards, uint64_t *ret_size, char sha256[65])
{
    struct tensor_out order[COUNT_OF(tensors)];
    struct metadata_out entries[COUNT_OF(metadata)];
    struct error err = {0};

    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        order[i] = tensors[backwards ? COUNT_OF(tensors) - 1 - i : i];
    for (size_t i = 0; i < COUNT_OF(metadata); i++)
        entries[i] = metadata[backwards ? COUNT_OF(metadata) - 1 - i : i];
    if (!safetensors_write(scratch_path(scratch_shared, name), order, COUNT_OF(order), entries,
                           COUNT_OF(entries), ret_size, sha256, &err))
        fail_msg("%s", err.message);
}

static void a_written_file_reads_back_equal(void **state)
{
    (void)state;
    struct safetensors *file;
    struct error err = {0};
    uint64_t size = 0;
    char sha256[65] = "";

    write_small("first", false, &size, sha256);
    if (!safetensors_open(scratch_path(scratch_shared, "first"), &file, &err))
        fail_msg("%s", err.message);
    assert_int_equal(safetensors_count(file), COUNT_OF(tensors));
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        const struct tensor *tensor = safetensors_find(file, tensors[i].name);

        assert_non_null(tensor);
        assert_int_equal(tensor->type, tensors[i].type);
        assert_int_equal(tensor->rank, tensors[i].rank);
        assert_memory_equal(tensor->shape, tensors[i].shape, tensor->rank * sizeof(size_t));
        if (tensor->size_bytes)
            assert_memory_equal(tensor->data, tensors[i].data, tensor->size_bytes);
    }
    for (size_t i = 1; i < safetensors_count(file); i++)
        assert_true(strcmp(safetensors_at(file, i - 1)->name, safetensors_at(file, i)->name) < 0);
    for (size_t i = 0; i < COUNT_OF(metadata); i++)
        assert_string_equal(safetensors_metadata(file, metadata[i].key), metadata[i].value);
    safetensors_close(file);
    assert_int_equal(strlen(sha256), 64);
}

static void equal_content_makes_equal_bytes_whatever_its_order(void **state)
{
    (void)state;
    uint64_t first_size, second_size;
    size_t size, size2;
    char first_hash[65], second_hash[65];
    char *first, *second;

    write_small("first", false, &first_size, first_hash);
    write_small("second", true, &second_size, second_hash);
    first = scratch_read(scratch_path(scratch_shared, "first"), &size);
    second = scratch_read(scratch_path(scratch_shared, "second"), &size2);
    assert_int_equal(size, first_size);
    assert_int_equal(size, size2);
    assert_memory_equal(first, second, size);
    assert_string_equal(first_hash, second_hash);
    free(first);
    free(second);
}

static void data_start_on_a_multiple_of_eight_bytes(void **state)
{
    (void)state;
    char name[16] = "n";

    for (size_t length = 1; length <= 8; length++) {
        const struct tensor_out one = {name, TENSOR_F32, 0, {0}, floats};
        struct error err = {0};
        char *bytes;
        size_t size, header;

        assert_true(safetensors_write(scratch_path(scratch_shared, "aligned"), &one, 1, NULL, 0,
                                      NULL, NULL, &err));
        bytes = scratch_read(scratch_path(scratch_shared, "aligned"), &size);
        header = (unsigned char)bytes[0] | (size_t)(unsigned char)bytes[1] << 8;
        assert_int_equal((8 + header) % 8, 0);
        assert_int_equal(bytes[8], '{');
        assert_int_equal(size, 8 + header + 4);
        free(bytes);
        name[length] = 'n';
    }
}

static void an_empty_file_of_tensors_is_legal(void **state)
{
    (void)state;
    struct safetensors *file;
    struct error err = {0};

    assert_true(safetensors_write(scratch_path(scratch_shared, "empty"), NULL, 0, metadata, 1, NULL,
                                  NULL, &err));
    assert_true(safetensors_open(scratch_path(scratch_shared, "empty"), &file, &err));
    assert_int_equal(safetensors_count(file), 0);
    assert_string_equal(safetensors_metadata(file, "scale"), "2.0");
    safetensors_close(file);
}

static void a_failed_write_leaves_nothing_behind(void **state)
{
    (void)state;
    const struct tensor_out huge = {"huge", TENSOR_F32, 2, {SIZE_MAX / 2, 4}, floats};
    struct error err = {0};

    assert_false(safetensors_write(scratch_path(scratch_shared, "huge"), &huge, 1, NULL, 0, NULL,
                                   NULL, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    assert_non_null(strstr(err.message, "huge"));
    assert_int_equal(access(scratch_path(scratch_shared, "huge"), F_OK), -1);
    assert_false(safetensors_write(scratch_path(scratch_shared, "no/such/folder"), tensors, 1, NULL,
                                   0, NULL, NULL, &err));
    assert_non_null(strstr(err.message, "no/such/folder"));
}

int main(void)
{
    const struct CMUnitTest tests_to_run[] = {
        cmocka_unit_test(every_half_is_read_exactly_and_comes_back),
        cmocka_unit_test(a_float_becomes_the_nearest_half_and_ties_the_even_one),
        cmocka_unit_test(a_written_file_reads_back_equal),
        cmocka_unit_test(equal_content_makes_equal_bytes_whatever_its_order),
        cmocka_unit_test(data_start_on_a_multiple_of_eight_bytes),
        cmocka_unit_test(an_empty_file_of_tensors_is_legal),
        cmocka_unit_test(a_failed_write_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests_to_run, scratch_make_shared, scratch_drop_shared);
}

/*
 * Proves that the reader of safetensors files believes nothing: every damaged file is refused with
 * the tensor and the numbers, legal oddities are read, and no change of bytes makes it misbehave.
 */
#include "daemon/model/safetensors.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>
#include <unistd.h>

#define INPUTS FIXTURES "inputs/safetensors/"

static const char *file_of(const char *name, const void *bytes, size_t size)
{
    const char *path = scratch_path(scratch_shared, name);

    (void)unlink(path); /* a file cut to nothing and written again is flushed: slow */
    scratch_write(path, bytes, size);
    return path;
}

static void the_given_files_are_taken_or_refused_with_these_words(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        enum error_code code; /* ERR_NONE: taken */
        const char *words[3];
    } cases[] = {
        {"too-short", ERR_CORRUPT, {"7 bytes", "short", "8 bytes"}},
        {"header-length-huge", ERR_CORRUPT, {"header length", "past the end"}},
        {"header-past-end", ERR_CORRUPT, {"4096", "past the end", "54"}},
        {"header-is-array", ERR_CORRUPT, {"object"}},
        {"header-bad-json", ERR_CORRUPT, {"JSON", "at byte 52"}},
        {"duplicate-tensor", ERR_CORRUPT, {"tensor", "'t'", "twice"}},
        {"begin-after-end", ERR_CORRUPT, {"'t'", "reversed", "8 to 0"}},
        {"past-end", ERR_CORRUPT, {"'t'", "16", "has 8"}},
        {"shape-bytes-mismatch", ERR_CORRUPT, {"'t'", "4000000 bytes", "has 4"}},
        {"overlap", ERR_CORRUPT, {"'a'", "'b'", "overlap"}},
        {"big-endian-length", ERR_CORRUPT, {"header length", "past the end", "big-endian"}},
        {"unsupported-dtype", ERR_INVALID, {"container is fine", "F8_E4M3", "'t'"}},
        {"truncated-data", ERR_CORRUPT, {"'b'", "cut off", "512"}},
        {"pickle-as-safetensors", ERR_INVALID, {"pickle"}},
        {"empty-metadata", ERR_NONE, {0}},
        {"zero-size-tensor", ERR_NONE, {0}},
        {"space-padded-header", ERR_NONE, {0}},
        {"bf16-values", ERR_NONE, {0}},
        {"adapter-rank-mismatch", ERR_NONE, {0}},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct safetensors *file = NULL;
        struct error err = {0};
        char path[256];
        bool ok;

        snprintf(path, sizeof(path), INPUTS "%s.safetensors", cases[i].file);
        ok = safetensors_open(path, &file, &err);
        if (ok != (cases[i].code == ERR_NONE) || err.code != cases[i].code)
            fail_msg("%s: ok=%d, code %s, %s", cases[i].file, ok, error_code_name(err.code),
                     err.message);
        for (size_t j = 0; j < COUNT_OF(cases[i].words) && cases[i].words[j]; j++)
            if (!strstr(err.message, cases[i].words[j]))
                fail_msg("%s: no '%s' in: %s", cases[i].file, cases[i].words[j], err.message);
        if (!ok && !strstr(err.message, path))
            fail_msg("%s: the path is not named: %s", cases[i].file, err.message);
        safetensors_close(file);
    }
}

static void the_legal_oddities_hold_the_tensors_they_declare(void **state)
{
    (void)state;
    struct safetensors *file;
    struct error err = {0};
    float values[2];

    assert_true(safetensors_open(INPUTS "zero-size-tensor.safetensors", &file, &err));
    assert_int_equal(safetensors_count(file), 2);
    assert_string_equal(safetensors_at(file, 0)->name, "e");
    assert_int_equal(safetensors_at(file, 0)->element_count, 0);
    assert_int_equal(safetensors_at(file, 0)->shape[1], 3);
    assert_true(tensor_to_f32(safetensors_find(file, "e"), values, &err));
    assert_true(tensor_to_f32(safetensors_find(file, "t"), values, &err));
    assert_true(values[1] == 0.25F);
    assert_null(safetensors_find(file, "no such tensor"));
    safetensors_close(file);

    assert_true(safetensors_open(INPUTS "empty-metadata.safetensors", &file, &err));
    assert_int_equal(safetensors_count(file), 1);
    assert_null(safetensors_metadata(file, "config"));
    safetensors_close(file);
}

static void bf16_values_are_exact(void **state)
{
    (void)state;
    static const float wanted[] = {1.0F, -2.0F, 0.333984375F, 0.0F, -0.0F, 3.3895314e38F};
    struct safetensors *file;
    struct error err = {0};
    float values[COUNT_OF(wanted)];

    assert_true(safetensors_open(INPUTS "bf16-values.safetensors", &file, &err));
    assert_int_equal(safetensors_find(file, "v")->type, TENSOR_BF16);
    assert_true(tensor_to_f32(safetensors_find(file, "v"), values, &err));
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        if (values[i] != wanted[i] || signbit(values[i]) != signbit(wanted[i]))
            fail_msg("value %zu is %.9g, not %.9g", i, (double)values[i], (double)wanted[i]);
    safetensors_close(file);
}

static void the_largest_magnitude_is_found_wherever_it_stands(void **state)
{
    (void)state;
    static const struct {
        enum tensor_type type;
        uint32_t largest, infinite, nan; /* with the sign bit of the type set */
        float wanted;
    } cases[] = {
        {TENSOR_F32, 0xC0A00000, 0xFF800000, 0xFFC00000, 5.0F},
        {TENSOR_F16, 0xC500, 0xFC00, 0xFE00, 5.0F},
        {TENSOR_BF16, 0xC0A0, 0xFF80, 0xFFC0, 5.0F},
    };
    static const size_t counts[] = {1, 7, 4096, 4097, 10000}, places[] = {0, 6, 4095, 4096, 9999};
    unsigned char *bytes = calloc(10001, 4);

    assert_non_null(bytes);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t j = 0; j < COUNT_OF(counts); j++) {
            const size_t size = tensor_type_size(cases[i].type);
            unsigned char *data = bytes + 1; /* odd on purpose */
            const struct tensor tensor = {.name = "t",
                                          .type = cases[i].type,
                                          .element_count = counts[j],
                                          .size_bytes = counts[j] * size,
                                          .data = data};

            memset(bytes, 0, 40004);
            assert_true(tensor_largest(&tensor) == 0);
            memcpy(data + places[j] * size, &cases[i].largest, size);
            assert_true(tensor_largest(&tensor) == cases[i].wanted);
            memcpy(data + places[j] * size, &cases[i].infinite, size);
            assert_true(isinf(tensor_largest(&tensor)));
            memcpy(data + places[j] * size, &cases[i].nan, size);
            assert_true(isnan(tensor_largest(&tensor)));
        }
    free(bytes);
}

static void dropped_pages_come_back_with_their_values(void **state)
{
    (void)state;
    struct safetensors *file;
    struct error err = {0};
    const struct tensor *tensor;
    unsigned char *kept;

    assert_true(safetensors_open(FIXTURES "needle3/base.safetensors", &file, &err));
    tensor = safetensors_find(file, "embedding/embedding");
    kept = malloc(tensor->size_bytes);
    assert_non_null(kept);
    memcpy(kept, tensor->data, tensor->size_bytes);
    tensor_drop_pages(tensor);
    assert_memory_equal(kept, tensor->data, tensor->size_bytes);
    free(kept);
    safetensors_close(file);
}

/* A file of this header and so many data bytes. */
static const char *with_header(const char *header, size_t data_bytes)
{
    unsigned char bytes[4096] = {0};
    size_t size = strlen(header);

    assert_true(8 + size + data_bytes <= sizeof(bytes));
    bytes[0] = (unsigned char)(size & 0xFF);
    bytes[1] = (unsigned char)(size >> 8);
    memcpy(bytes + 8, header, size);
    return file_of("made.safetensors", bytes, 8 + size + data_bytes);
}

static void every_part_of_a_header_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *words[2];
    } cases[] = {
        {"", 0, {"JSON"}},
        {"{} {}", 0, {"JSON"}},
        {"{}", 4, {"end at byte 0", "has 4"}},
        {"{\"t\":1}", 0, {"'t'", "object"}},
        {"{\"t\":{}}", 0, {"'t'", "dtype"}},
        {"{\"t\":{\"dtype\":3}}", 0, {"'t'", "dtype"}},
        {"{\"t\":{\"dtype\":\"F32\"}}", 0, {"'t'", "shape"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, {"'t'", "data_offsets"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, {"data_offsets"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, {"data_offsets"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, {"data_offsets"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, {"shape", "'-1'"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, {"shape"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}", 4, {"shape"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}",
         4,
         {"'t'", "impossible shape"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         0,
         {"'t'", "impossible shape"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
         0,
         {"'t'", "impossible shape"}},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
         1,
         {"'t'", "9 dimensions"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8,
         {"0 to 4", "no tensor"}},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         8,
         {"end at byte 4", "has 8"}},
        {"{\"__metadata__\":[]}", 0, {"__metadata__", "object"}},
        {"{\"__metadata__\":{\"k\":1}}", 0, {"'k'", "string"}},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, {"'k'", "twice"}},
        {"{\"__metadata__\":{\"k\":\"a\\u0000b\"}}", 0, {"\\u0000"}},
        {"{\"t\\u0000\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, {"\\u0000"}},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[NaN],\"data_offsets\":[0,1]}}", 1, {"JSON"}},
        {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, {"JSON"}},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct safetensors *file = NULL;
        struct error err = {0};

        if (safetensors_open(with_header(cases[i].header, cases[i].data_bytes), &file, &err))
            fail_msg("%s was read", cases[i].header);
        for (size_t j = 0; j < COUNT_OF(cases[i].words) && cases[i].words[j]; j++)
            if (!strstr(err.message, cases[i].words[j]))
                fail_msg("%s: no '%s' in: %s", cases[i].header, cases[i].words[j], err.message);
    }
}

static void a_long_name_is_cut_in_a_message_between_characters(void **state)
{
    (void)state;
    char header[2048];
    struct safetensors *file = NULL;
    struct error err = {0};
    size_t used = 2;

    memcpy(header, "{\"", used);
    for (size_t i = 0; i < 300; i++, used += 2)
        memcpy(header + used, "\xc3\xa9", 2); /* e with an acute accent */
    memcpy(header + used, "\":1}", sizeof("\":1}"));
    assert_false(safetensors_open(with_header(header, 0), &file, &err));
    assert_non_null(strstr(err.message, "\xc3\xa9' is described by"));
}

/* A small file with every kind of thing in it, as bytes. */
static char *small_file(size_t *ret_size)
{
    static const float floats[6] = {1, 2, 3, 4, 5, 6};
    static const uint16_t halves[4] = {0x3C00, 0x0001, 0xFC00, 0x7BFF};
    static const struct tensor_out tensors[] = {
        {"b/kernel", TENSOR_F32, 2, {2, 3}, floats},
        {"a", TENSOR_F16, 1, {4}, halves},
        {"none", TENSOR_I64, 2, {0, 7}, NULL},
        {"scalar", TENSOR_U8, 0, {0}, "\x07"},
    };
    static const struct metadata_out metadata[] = {{"rank", "4"}, {"base", "\"x\""}};
    const char *path = scratch_path(scratch_shared, "small.safetensors");
    struct error err = {0};

    if (!safetensors_write(path, tensors, COUNT_OF(tensors), metadata, COUNT_OF(metadata), NULL,
                           NULL, &err))
        fail_msg("%s", err.message);
    return scratch_read(path, ret_size);
}

static void a_file_cut_at_any_length_is_refused(void **state)
{
    (void)state;
    size_t size;
    char *bytes = small_file(&size);
    size_t header = (unsigned char)bytes[0] | (size_t)(unsigned char)bytes[1] << 8;

    for (size_t cut = 0; cut < size; cut++) {
        struct safetensors *file = NULL;
        struct error err = {0};

        if (safetensors_open(file_of("cut.safetensors", bytes, cut), &file, &err))
            fail_msg("the first %zu of %zu bytes were read", cut, size);
        if (err.code != ERR_CORRUPT || !err.message[0])
            fail_msg("%zu bytes: %s", cut, err.message);
        if (cut >= 8 && cut < 8 + header && !strstr(err.message, "past the end"))
            fail_msg("%zu bytes, the header has %zu: %s", cut, header, err.message);
    }
    free(bytes);
}

/* Reads every byte that the file says belongs to a tensor. */
static size_t sum_of(const struct safetensors *file)
{
    size_t sum = 0;

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *tensor = safetensors_at(file, i);

        sum += strlen(tensor->name);
        for (size_t j = 0; j < tensor->size_bytes; j++)
            sum += ((const unsigned char *)tensor->data)[j];
    }
    return sum;
}

static void random_damage_never_reaches_past_the_file(void **state)
{
    (void)state;
    size_t size, taken = 0;
    char *bytes = small_file(&size), *damaged = malloc(size);
    uint32_t seed = 12345;

    print_message("seed %u\n", seed);
    for (size_t round = 0; round < 10000; round++) {
        struct safetensors *file = NULL;
        struct error err = {0};

        memcpy(damaged, bytes, size);
        for (size_t flip = 0; flip < 1 + round % 3; flip++) {
            seed = seed * 1664525U + 1013904223U;
            damaged[(seed >> 8) % size] ^= (char)(1U << (seed >> 5 & 7));
        }
        if (safetensors_open(file_of("damaged.safetensors", damaged, size), &file, &err)) {
            size_t total = 0;

            for (size_t i = 0; i < safetensors_count(file); i++)
                total += safetensors_at(file, i)->size_bytes;
            assert_true(total < size);
            (void)sum_of(file); /* asan looks on */
            taken++;
        } else {
            assert_true(err.code != ERR_NONE && err.message[0]);
        }
        safetensors_close(file);
    }
    assert_true(taken > 0); /* flips in data and names are not faults of the container */
    assert_true(taken < 10000);
    free(damaged);
    free(bytes);
}

static void a_missing_file_and_a_folder_are_named(void **state)
{
    (void)state;
    struct safetensors *file = NULL;
    struct error err = {0};

    assert_false(safetensors_open(INPUTS "no-such.safetensors", &file, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "no-such.safetensors"));
    assert_false(safetensors_open(INPUTS, &file, &err));
    assert_non_null(strstr(err.message, INPUTS));
    safetensors_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_given_files_are_taken_or_refused_with_these_words),
        cmocka_unit_test(the_legal_oddities_hold_the_tensors_they_declare),
        cmocka_unit_test(bf16_values_are_exact),
        cmocka_unit_test(the_largest_magnitude_is_found_wherever_it_stands),
        cmocka_unit_test(dropped_pages_come_back_with_their_values),
        cmocka_unit_test(every_part_of_a_header_is_checked),
        cmocka_unit_test(a_long_name_is_cut_in_a_message_between_characters),
        cmocka_unit_test(a_file_cut_at_any_length_is_refused),
        cmocka_unit_test(random_damage_never_reaches_past_the_file),
        cmocka_unit_test(a_missing_file_and_a_folder_are_named),
    };

    return cmocka_run_group_tests(tests, scratch_make_shared, scratch_drop_shared);
}

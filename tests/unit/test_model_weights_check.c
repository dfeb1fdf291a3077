/*
 * Proves that a checkpoint is refused before a device is touched when a tensor is missing,
 * misshapen or of the wrong kind, with the tensor and both shapes in the message.
 */
#include "daemon/model/weights.h"
#include "tests/support/network.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#define TENSOR_MAX 128

/* A copy of a fixture's checkpoint that a test may spoil before it is written. */
struct copy {
    struct safetensors *file;
    struct tensor_out tensors[TENSOR_MAX];
    size_t tensor_count;
    struct metadata_out metadata[2];
    size_t metadata_count;
};

static void copy_open(struct copy *copy, const char *base_folder)
{
    *copy =
        (struct copy){.file = fixture_open(base_folder, "base.safetensors"), .metadata_count = 2};
    copy->tensor_count = safetensors_count(copy->file);
    assert_true(copy->tensor_count < TENSOR_MAX);
    for (size_t i = 0; i < copy->tensor_count; i++) {
        const struct tensor *tensor = safetensors_at(copy->file, i);

        copy->tensors[i] = (struct tensor_out){
            .name = tensor->name, .type = tensor->type, .rank = tensor->rank, .data = tensor->data};
        memcpy(copy->tensors[i].shape, tensor->shape, sizeof(tensor->shape));
    }
    copy->metadata[0] = (struct metadata_out){"config", safetensors_metadata(copy->file, "config")};
    copy->metadata[1] = (struct metadata_out){"format_version", "2"};
}

static struct tensor_out *copy_find(struct copy *copy, const char *name)
{
    for (size_t i = 0; i < copy->tensor_count; i++)
        if (strcmp(copy->tensors[i].name, name) == 0)
            return &copy->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static const char *copy_write(const struct copy *copy)
{
    struct error err = {0};

    fail_on(safetensors_write(scratch_path(scratch_shared, "copy.safetensors"), copy->tensors,
                              copy->tensor_count, copy->metadata, copy->metadata_count, NULL, NULL,
                              &err),
            &err);
    return scratch_path(scratch_shared, "copy.safetensors");
}

static void expect_refused(const struct copy *copy, const char *first_word, const char *second_word)
{
    struct geometry geometry = {.d_model = 7};
    struct error err = {0};
    size_t parameters = 0;

    if (weights_check(copy_write(copy), &geometry, &parameters, &err))
        fail_msg("the checkpoint without a sound '%s' was taken", first_word);
    if (err.code != ERR_INVALID || !strstr(err.message, first_word) ||
        !strstr(err.message, second_word))
        fail_msg("no '%s' or '%s' in: %s", first_word, second_word, err.message);
    assert_int_equal(geometry.d_model, 7);
}

/* Heads and the like, which training does not use. */
static bool ignored(const char *name)
{
    return strstr(name, "_head/") || strncmp(name, "mtp_", 4) == 0;
}

static void a_sound_checkpoint_passes_and_its_unused_tensors_do_not_count(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct copy copy;
        struct geometry geometry;
        struct error err = {0};
        size_t parameters, wanted = 0;

        copy_open(&copy, geometry_folders[i]);
        for (size_t j = 0; j < copy.tensor_count; j++)
            if (!ignored(copy.tensors[j].name))
                wanted += safetensors_at(copy.file, j)->element_count;
        fail_on(weights_check(copy_write(&copy), &geometry, &parameters, &err), &err);
        assert_int_equal(parameters, wanted);
        assert_int_equal(geometry.d_model, i == 0 ? 192 : 80);
        safetensors_close(copy.file);
    }
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct copy copy;
        size_t tried = 0;

        copy_open(&copy, geometry_folders[i]);
        for (size_t j = 0; j < copy.tensor_count; j++) {
            struct tensor_out kept = copy.tensors[j];
            struct geometry geometry;
            struct error err = {0};
            size_t parameters;

            copy.tensors[j] = copy.tensors[copy.tensor_count - 1];
            copy.tensor_count--;
            if (ignored(kept.name)) {
                fail_on(weights_check(copy_write(&copy), &geometry, &parameters, &err), &err);
            } else {
                expect_refused(&copy, kept.name, "missing");
                tried++;
            }
            copy.tensors[copy.tensor_count++] = copy.tensors[j];
            copy.tensors[j] = kept;
        }
        assert_int_equal(tried, i == 0 ? 46 : 39);
        safetensors_close(copy.file);
    }
}

static void every_misshapen_tensor_is_named_with_both_shapes(void **state)
{
    (void)state;
    struct copy copy;

    copy_open(&copy, geometry_folders[1]);
    for (size_t j = 0; j < copy.tensor_count; j++) {
        struct tensor_out *tensor = &copy.tensors[j];
        size_t last = tensor->shape[tensor->rank ? tensor->rank - 1 : 0];

        if (ignored(tensor->name))
            continue;
        tensor->shape[tensor->rank - 1] = last - 1; /* a prefix of the bytes: still a legal file */
        expect_refused(&copy, tensor->name, "shape");
        tensor->shape[tensor->rank - 1] = last;
        tensor->shape[tensor->rank++] = 1;
        expect_refused(&copy, tensor->name, "shape");
        tensor->rank--;
    }
    copy_find(&copy, "stack/mhc_phi_res")->shape[1] = 239;
    expect_refused(&copy, "[3,239,9]", "[3,240,9]");
    safetensors_close(copy.file);
}

static void metadata_that_are_not_a_checkpoints_are_refused(void **state)
{
    (void)state;
    struct copy copy;

    copy_open(&copy, geometry_folders[1]);
    copy.metadata[1].value = "1";
    expect_refused(&copy, "format version '1'", "'2'");
    copy.metadata[1].key = "other";
    expect_refused(&copy, "format version", "'2'");
    copy.metadata[1] = (struct metadata_out){"format_version", "2"};
    copy.metadata[0].value = "{\"d_model\":-1}";
    expect_refused(&copy, "d_model", "config");
    copy.metadata[0].value = "";
    expect_refused(&copy, "config", "metadata");
    copy.metadata[0].key = "configuration";
    expect_refused(&copy, "config", "metadata");
    safetensors_close(copy.file);
}

static void the_given_containers_are_refused_as_a_base_by_what_they_lack(void **state)
{
    (void)state;
    static const char *const files[] = {"empty-metadata", "zero-size-tensor", "space-padded-header",
                                        "bf16-values"};

    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct geometry geometry;
        struct error err = {0};
        size_t parameters;
        char path[128];

        snprintf(path, sizeof(path), FIXTURES "inputs/safetensors/%s.safetensors", files[i]);
        assert_false(weights_check(path, &geometry, &parameters, &err));
        if (!strstr(err.message, "config"))
            fail_msg("%s: %s", files[i], err.message);
    }
}

static void types_numbers_and_scales_that_training_cannot_use_are_refused(void **state)
{
    (void)state;
    struct copy copy;
    struct tensor_out *norm;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = NULL;
    struct error err = {0};
    uint16_t halves[80] = {0};

    copy_open(&copy, geometry_folders[1]);
    norm = copy_find(&copy, "stack/final_norm/scale");
    norm->data = halves;
    norm->type = TENSOR_I16;
    expect_refused(&copy, "stack/final_norm/scale", "I16");
    norm->type = TENSOR_F16;
    halves[79] = 0x7C00; /* infinity */
    assert_false(weights_load(be, copy_write(&copy), NUMERICS_W4A8, NULL, &weights, &err));
    assert_non_null(strstr(err.message, "stack/final_norm/scale"));
    assert_non_null(strstr(err.message, "not finite"));
    assert_int_equal(backend_allocated_bytes(be), 0);
    halves[79] = 0;
    copy.tensors[copy.tensor_count++] =
        (struct tensor_out){"ab_scales/embedding/embedding/a", TENSOR_F16, 1, {1}, halves};
    expect_refused(&copy, "ab_scales/embedding/embedding/a", "not supported");
    safetensors_close(copy.file);
    backend_close(be);
}

static void other_element_types_of_the_same_values_give_the_same_weights(void **state)
{
    (void)state;
    struct copy copy;
    struct tensor_out *kernel;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *plain = bench_weights(be, geometry_folders[1], NUMERICS_W4A8), *wide;
    struct error err = {0};
    size_t count;
    float *values, *first, *second;

    copy_open(&copy, geometry_folders[1]);
    kernel = copy_find(&copy, projection_path(PROJECTION_Q));
    values = fixture_floats(copy.file, "", kernel->name, &count);
    kernel->type = TENSOR_F32;
    kernel->data = values;
    fail_on(weights_load(be, copy_write(&copy), NUMERICS_W4A8, NULL, &wide, &err), &err);
    weights_use_base(wide);
    first = calloc(count, sizeof(float));
    second = calloc(count, sizeof(float));
    backend_download(be, first, plain->layers[0].kernel[PROJECTION_Q], count * sizeof(float));
    backend_download(be, second, wide->layers[0].kernel[PROJECTION_Q], count * sizeof(float));
    assert_memory_equal(first, second, count * sizeof(float));
    free(second);
    free(first);
    free(values);
    weights_free(wide);
    weights_free(plain);
    safetensors_close(copy.file);
    backend_close(be);
}

static void tensors_at_odd_addresses_give_the_same_weights(void **state)
{
    (void)state;
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++) {
        struct copy copy;
        struct backend *be = bench_open(kind);
        struct weights *plain = bench_weights(be, geometry_folders[1], NUMERICS_W4A8), *odd;
        const struct geometry *g = &plain->geometry;
        const size_t engram = g->engram_slots * g->engram_sub;
        size_t in, out;
        struct error err = {0};
        const uint8_t byte = 0;
        float *first, *second;

        copy_open(&copy, geometry_folders[1]);
        copy.tensors[copy.tensor_count++] =
            (struct tensor_out){"a", TENSOR_U8, 1, {1}, &byte}; /* comes before all others */
        fail_on(weights_load(be, copy_write(&copy), NUMERICS_W4A8, NULL, &odd, &err), &err);
        weights_use_base(odd);
        assert_int_equal((uintptr_t)odd->engrams[0].table.values % 2, 1);
        projection_shape(g, PROJECTION_Q, &in, &out);
        first = calloc(in * out, sizeof(float));
        second = calloc(in * out, sizeof(float));
        backend_download(be, first, plain->layers[1].kernel[PROJECTION_Q],
                         in * out * sizeof(float));
        backend_download(be, second, odd->layers[1].kernel[PROJECTION_Q], in * out * sizeof(float));
        assert_memory_equal(first, second, in * out * sizeof(float));
        free(second);
        free(first);
        first = bench_read_table(be, &plain->engrams[0].table, engram);
        second = bench_read_table(be, &odd->engrams[0].table, engram);
        assert_memory_equal(first, second, engram * sizeof(float));
        free(second);
        free(first);
        weights_free(odd);
        weights_free(plain);
        safetensors_close(copy.file);
        backend_close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_checkpoint_passes_and_its_unused_tensors_do_not_count),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(every_misshapen_tensor_is_named_with_both_shapes),
        cmocka_unit_test(metadata_that_are_not_a_checkpoints_are_refused),
        cmocka_unit_test(the_given_containers_are_refused_as_a_base_by_what_they_lack),
        cmocka_unit_test(types_numbers_and_scales_that_training_cannot_use_are_refused),
        cmocka_unit_test(other_element_types_of_the_same_values_give_the_same_weights),
        cmocka_unit_test(tensors_at_odd_addresses_give_the_same_weights),
    };

    return cmocka_run_group_tests(tests, scratch_make_shared, scratch_drop_shared);
}

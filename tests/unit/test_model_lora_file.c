/*
 * Proves that the adapter file is the reference implementation's, byte for byte in its tensors and
 * word for word in its metadata, and that what does not fit the base is refused by name.
 *
 * With NEEDLED_ADAPTERS set, the files written from the recorded adapters are left in that folder:
 * tests/reference/run.sh has the reference implementation read them.
 */
#include "daemon/model/lora.h"
#include "daemon/base/file.h"
#include "tests/support/network.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

/* A base with a place to read adapters for. */
struct bench {
    struct backend *be;
    struct weights *weights;
};

static struct bench bench_new(size_t geometry)
{
    struct bench bench = {.be = bench_open(BACKEND_REF)};

    bench.weights = bench_weights(bench.be, geometry_folders[geometry], NUMERICS_FLOAT32);
    return bench;
}

static void bench_free(struct bench *bench)
{
    weights_free(bench->weights);
    backend_close(bench->be);
}

static struct lora *read_lora(const struct bench *bench, const char *path)
{
    struct lora *lora;
    struct error err = {0};

    fail_on(lora_read(bench->weights, path, &lora, &err), &err);
    return lora;
}

static const char *fixture_path(size_t geometry)
{
    static char path[128];

    snprintf(path, sizeof(path), "%sadapter.safetensors", geometry_folders[geometry]);
    return path;
}

static void a_recorded_adapter_is_read_and_written_again_as_it_was(void **state)
{
    (void)state;
    static const char *const fields[] = {"base", "languages", "pieces", "rank", "scale", "seed"};
    static const uint64_t seeds[GEOMETRY_COUNT] = {0, 3};
    const char *kept = getenv("NEEDLED_ADAPTERS");

    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct bench bench = bench_new(i);
        struct lora *lora = read_lora(&bench, fixture_path(i));
        struct safetensors *wanted = fixture_open(geometry_folders[i], "adapter.safetensors"),
                           *found;
        struct error err = {0};
        const char *path =
            scratch_path(kept ? kept : scratch_shared, i ? "mini.safetensors" : "full.safetensors");

        assert_int_equal(lora->rank, i ? 2 : 4);
        assert_true(lora->scale == 2.0F);
        fail_on(lora_write(lora, path, "base.safetensors", seeds[i], NULL, 0, NULL, NULL, &err),
                &err);
        fail_on(safetensors_open(path, &found, &err), &err);
        assert_int_equal(safetensors_count(found), safetensors_count(wanted));
        for (size_t j = 0; j < safetensors_count(wanted); j++) {
            const struct tensor *a = safetensors_at(found, j), *b = safetensors_at(wanted, j);

            assert_string_equal(a->name, b->name);
            assert_int_equal(a->type, b->type);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->shape, b->shape, b->rank * sizeof(b->shape[0]));
            assert_int_equal(a->size_bytes, b->size_bytes);
            assert_memory_equal(a->data, b->data, b->size_bytes);
        }
        for (size_t j = 0; j < COUNT_OF(fields); j++)
            assert_string_equal(safetensors_metadata(found, fields[j]),
                                safetensors_metadata(wanted, fields[j]));
        safetensors_close(found);
        safetensors_close(wanted);
        lora_free(lora);
        bench_free(&bench);
    }
}

static void the_same_adapter_makes_the_same_bytes(void **state)
{
    (void)state;
    const struct metadata_out extra[] = {{"numerics", "\"w4a8\""}, {"device", "\"cpu\""}};
    struct bench bench = bench_new(1);
    struct lora *lora = read_lora(&bench, fixture_path(1)), *again;
    struct error err = {0};
    char hashes[2][SHA256_HEX_SIZE], *bytes[2];
    uint64_t sizes[2];
    size_t counted[2];

    fail_on(lora_write(lora, scratch_path(scratch_shared, "a"), "needle-3", 3, extra, 2, &sizes[0],
                       hashes[0], &err),
            &err);
    again = read_lora(&bench, scratch_path(scratch_shared, "a"));
    fail_on(lora_write(again, scratch_path(scratch_shared, "b"), "needle-3", 3, extra, 2, &sizes[1],
                       hashes[1], &err),
            &err);
    for (size_t i = 0; i < 2; i++)
        bytes[i] = scratch_read(scratch_path(scratch_shared, i ? "b" : "a"), &counted[i]);
    assert_int_equal(counted[0], counted[1]);
    assert_int_equal(counted[0], sizes[0]);
    assert_memory_equal(bytes[0], bytes[1], counted[0]);
    assert_string_equal(hashes[0], hashes[1]);
    assert_non_null(strstr(bytes[0] + 8, "\"numerics\":\"\\\"w4a8\\\"\""));
    free(bytes[0]);
    free(bytes[1]);
    lora_free(again);
    lora_free(lora);
    bench_free(&bench);
}

static void metadata_are_json_as_python_writes_it(void **state)
{
    (void)state;
    static const struct {
        float alpha;
        size_t rank;
        const char *scale, *base, *base_text;
    } cases[] = {
        {32.0F, 16, "2.0", "needle-3", "\"needle-3\""},
        {0.1F, 4, "0.025", "a \"b\"\\", "\"a \\\"b\\\"\\\\\""},
        {1.0F, 3, "0.3333333333333333", "caf\xc3\xa9", "\"caf\\u00e9\""},
        {1e-7F, 1, "1e-07", "", "\"\""},
    };
    struct bench bench = bench_new(1);

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct lora *lora;
        struct safetensors *file;
        struct error err = {0};

        fail_on(lora_new(bench.weights, cases[i].rank, cases[i].alpha, &lora, &err), &err);
        fail_on(lora_write(lora, scratch_path(scratch_shared, "c"), cases[i].base, UINT64_MAX, NULL,
                           0, NULL, NULL, &err),
                &err);
        fail_on(safetensors_open(scratch_path(scratch_shared, "c"), &file, &err), &err);
        assert_string_equal(safetensors_metadata(file, "scale"), cases[i].scale);
        assert_string_equal(safetensors_metadata(file, "base"), cases[i].base_text);
        assert_string_equal(safetensors_metadata(file, "seed"), "18446744073709551615");
        assert_string_equal(safetensors_metadata(file, "languages"), "null");
        safetensors_close(file);
        lora_free(lora);
        lora = read_lora(&bench, scratch_path(scratch_shared, "c"));
        assert_true(lora->scale == (float)lora_scale(lora));
        assert_true(fabsf(lora->alpha - cases[i].alpha) <= 1e-7F * cases[i].alpha);
        lora_free(lora);
    }
    bench_free(&bench);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

#define TENSOR_MAX 12

struct adapter {
    struct safetensors *file;
    struct tensor_out tensors[TENSOR_MAX];
    size_t tensor_count;
    struct metadata_out metadata[2];
    size_t metadata_count;
};

static struct adapter adapter_open(size_t geometry)
{
    struct adapter adapter = {
        .file = fixture_open(geometry_folders[geometry], "adapter.safetensors"),
        .metadata = {{"scale", "2.0"}, {"rank", geometry ? "2" : "4"}},
        .metadata_count = 2,
    };

    adapter.tensor_count = safetensors_count(adapter.file);
    assert_true(adapter.tensor_count < TENSOR_MAX);
    for (size_t i = 0; i < adapter.tensor_count; i++) {
        const struct tensor *tensor = safetensors_at(adapter.file, i);

        adapter.tensors[i] = (struct tensor_out){
            .name = tensor->name, .type = tensor->type, .rank = tensor->rank, .data = tensor->data};
        memcpy(adapter.tensors[i].shape, tensor->shape, sizeof(tensor->shape));
    }
    return adapter;
}

static void expect_refused(const struct bench *bench, const struct adapter *adapter,
                           const char *first_word, const char *second_word)
{
    const char *path = scratch_path(scratch_shared, "spoiled");
    size_t before = backend_allocated_bytes(bench->be);
    struct lora *lora = NULL;
    struct error err = {0};

    fail_on(safetensors_write(path, adapter->tensors, adapter->tensor_count, adapter->metadata,
                              adapter->metadata_count, NULL, NULL, &err),
            &err);
    if (lora_read(bench->weights, path, &lora, &err))
        fail_msg("an adapter without a sound '%s' was taken", first_word);
    if (err.code != ERR_INVALID || !strstr(err.message, first_word) ||
        !strstr(err.message, second_word))
        fail_msg("no '%s' or '%s' in: %s", first_word, second_word, err.message);
    assert_null(lora);
    assert_int_equal(backend_allocated_bytes(bench->be), before);
}

static void ranks_that_do_not_fit_each_other_are_refused_with_the_layer(void **state)
{
    (void)state;
    struct bench bench = bench_new(1);
    struct safetensors *given =
        fixture_open(FIXTURES "inputs/safetensors/", "adapter-rank-mismatch.safetensors");
    struct adapter adapter = adapter_open(1);

    /* the given file's two tensors, under the names of one of our projections */
    for (size_t i = 0; i < 2; i++) {
        const struct tensor *tensor = safetensors_at(given, i);
        char name[128];

        snprintf(name, sizeof(name), "lora/%s/%c", projection_path(PROJECTION_K), "AB"[i]);
        for (size_t j = 0; j < adapter.tensor_count; j++)
            if (strcmp(adapter.tensors[j].name, name) == 0) {
                adapter.tensors[j].rank = tensor->rank;
                adapter.tensors[j].data = tensor->data;
                memcpy(adapter.tensors[j].shape, tensor->shape, sizeof(tensor->shape));
            }
    }
    expect_refused(&bench, &adapter, projection_path(PROJECTION_K), "A has rank 2, B has rank 3");
    safetensors_close(adapter.file);
    safetensors_close(given);
    bench_free(&bench);
}

static void tensors_that_do_not_fit_the_base_are_refused_by_name(void **state)
{
    (void)state;
    struct bench bench = bench_new(1);
    struct adapter adapter = adapter_open(1);
    struct tensor_out kept = adapter.tensors[0]; /* k_proj's A, [3,80,2] */
    static const float zeros[64];

    adapter.tensors[0].shape[1] = 79;
    expect_refused(&bench, &adapter, kept.name, "[3,80,2]");
    adapter.tensors[0].shape[1] = 80;
    adapter.tensors[0].shape[0] = 2;
    expect_refused(&bench, &adapter, kept.name, "[2,80,2]");
    adapter.tensors[0] = kept;
    adapter.tensors[0].rank = 1;
    expect_refused(&bench, &adapter, "k_proj", "three dimensions");
    adapter.tensors[0] = kept;
    adapter.tensors[0].type = TENSOR_I32;
    expect_refused(&bench, &adapter, kept.name, "I32");
    adapter.tensors[0] = kept;
    adapter.tensors[0].name = "rows";
    expect_refused(&bench, &adapter, "'rows'", "no projection");
    adapter.tensors[0] = kept;
    for (size_t side = 0; side < 2; side++) { /* one projection of another rank */
        adapter.tensors[side].shape[side ? 1 : 2] = 1;
    }
    expect_refused(&bench, &adapter, "out_proj", "rank 2, the projections before it 1");
    adapter.tensors[0].shape[2] = adapter.tensors[1].shape[1] = 2;
    adapter.tensors[adapter.tensor_count] = (struct tensor_out){
        "lora/stack/layers/block/self_attn/gate_proj/kernel/A", TENSOR_F32, 3, {1, 1, 1}, zeros};
    adapter.tensor_count++;
    expect_refused(&bench, &adapter, "gate_proj", "zero in the base");
    adapter.tensor_count -= 2; /* v_proj's B */
    expect_refused(&bench, &adapter, "v_proj/kernel/B", "missing");
    safetensors_close(adapter.file);
    bench_free(&bench);
}

static void numbers_that_are_not_finite_are_refused(void **state)
{
    (void)state;
    struct bench bench = bench_new(1);
    struct adapter adapter = adapter_open(1);
    size_t count = 3 * 80 * 2;
    float *values = calloc(count, sizeof(*values));

    values[count - 1] = NAN;
    adapter.tensors[0].data = values;
    expect_refused(&bench, &adapter, "not finite", "adapter");
    free(values);
    safetensors_close(adapter.file);
    bench_free(&bench);
}

static void metadata_that_contradict_the_tensors_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *scale, *rank, *words[2];
    } cases[] = {
        {"2.0", "3", {"rank 3", "rank 2"}},     {"2.0", "null", {"'rank'", "number"}},
        {"2.0", "[2", {"'rank'", "byte"}},      {"\"2\"", "2", {"'scale'", "number"}},
        {"1e300", "2", {"alpha", "finite"}},    {"1e999", "2", {"'scale'", "adapter"}},
        {"0.0", "2", {"alpha 0", "above 0"}},   {"-2.0", "2", {"alpha -4", "above 0"}},
        {"1e-60", "2", {"alpha 0", "above 0"}}, {NULL, "2", {"'scale'", "no 'scale'"}},
    };
    struct bench bench = bench_new(1);
    struct adapter adapter = adapter_open(1);
    size_t rank = 0;
    double alpha = 0;

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        adapter.metadata[0] = (struct metadata_out){"rank", cases[i].rank};
        adapter.metadata[1] = (struct metadata_out){"scale", cases[i].scale};
        adapter.metadata_count = cases[i].scale ? 2 : 1;
        expect_refused(&bench, &adapter, cases[i].words[0], cases[i].words[1]);
        /* Without the tensors rank 3 is as good as 2. */
        if (strcmp(cases[i].rank, "3") != 0)
            assert_false(lora_inspect(scratch_path(scratch_shared, "spoiled"), &rank, &alpha,
                                      &(struct error){0}));
    }
    safetensors_close(adapter.file);
    bench_free(&bench);
}

static void an_adapter_of_another_base_is_refused(void **state)
{
    (void)state;
    struct bench bench = bench_new(0);
    struct lora *lora = NULL;
    struct error err = {0};

    assert_false(lora_read(bench.weights, fixture_path(1), &lora, &err));
    assert_non_null(strstr(err.message, "gate_proj"));
    assert_non_null(strstr(err.message, fixture_path(1)));
    assert_false(lora_read(bench.weights, FIXTURES "needle3/base.safetensors", &lora, &err));
    assert_non_null(strstr(err.message, "no projection"));
    assert_false(lora_read(bench.weights, FIXTURES "no-such-file", &lora, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    bench_free(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_adapter_is_read_and_written_again_as_it_was),
        cmocka_unit_test(the_same_adapter_makes_the_same_bytes),
        cmocka_unit_test(metadata_are_json_as_python_writes_it),
        cmocka_unit_test(ranks_that_do_not_fit_each_other_are_refused_with_the_layer),
        cmocka_unit_test(tensors_that_do_not_fit_the_base_are_refused_by_name),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(metadata_that_contradict_the_tensors_are_refused),
        cmocka_unit_test(an_adapter_of_another_base_is_refused),
    };

    return cmocka_run_group_tests(tests, scratch_make_shared, scratch_drop_shared);
}

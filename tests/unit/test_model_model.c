/* Proves: a model folder is inspected, planned, opened and closed as one thing, what is wrong with
 * it is named, and the adapter a model writes is read back with the same values. */
#include "tests/support/network.h"

#include "daemon/model/model.h"
#include "daemon/model/tokenizer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEEDLE FIXTURES "needle3"
#define MINI FIXTURES "needle3/mini"

static const struct model_spec spec = {.numerics = NUMERICS_W4A8,
                                       .lora_rank = 4,
                                       .lora_alpha = 8,
                                       .seed = 3,
                                       .limits = {96, 96, true}};

static void copy_file(const char *source, const char *target)
{
    FILE *in = fopen(source, "rb"), *out = fopen(target, "wb");
    char bytes[65536];
    size_t count;

    assert_non_null(in);
    assert_non_null(out);
    while ((count = fread(bytes, 1, sizeof(bytes), in)) > 0)
        assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(fclose(in), 0);
}

struct folder {
    char path[64], base[96], tokenizer[96];
};

/* A model folder of its own; NULL leaves a file out. */
static void folder_init(struct folder *folder, const char *base, const char *tokenizer)
{
    snprintf(folder->path, sizeof(folder->path), "/tmp/needled-model-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->base, sizeof(folder->base), "%s/base.safetensors", folder->path);
    snprintf(folder->tokenizer, sizeof(folder->tokenizer), "%s/tokenizer.model", folder->path);
    if (base)
        copy_file(base, folder->base);
    if (tokenizer)
        copy_file(tokenizer, folder->tokenizer);
}

static void folder_release(struct folder *folder)
{
    (void)unlink(folder->base); /* may have been left out */
    (void)unlink(folder->tokenizer);
    assert_int_equal(rmdir(folder->path), 0);
}

static void a_folder_says_what_its_model_is(void **state)
{
    (void)state;
    struct model_info info = {0};
    struct error err = {0};

    fail_on(model_inspect(MINI, &info, &err), &err);
    assert_int_equal(info.layer_count, 3);
    assert_int_equal(info.d_model, 80);
    assert_int_equal(info.vocab_size, 840);
    assert_int_equal(info.out_vocab, 800);
    assert_int_equal(info.max_seq_len, 512);
    assert_true(info.parameter_count > 840 * 80);
    fail_on(model_inspect(NEEDLE, &info, &err), &err);
    assert_int_equal(info.out_vocab, 1024);
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *base, *tokenizer, *named;
    } cases[] = {{NULL, MINI "/tokenizer.model", "base.safetensors"},
                 {MINI "/base.safetensors", NULL, "tokenizer.model"}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct folder folder;
        struct model_info info = {.d_model = 7};
        struct error err = {0};

        folder_init(&folder, cases[i].base, cases[i].tokenizer);
        assert_false(model_inspect(folder.path, &info, &err));
        assert_true(err.code != ERR_NONE);
        if (!strstr(err.message, cases[i].named))
            fail_msg("'%s' does not name %s", err.message, cases[i].named);
        assert_int_equal(info.d_model, 7);
        folder_release(&folder);
    }
}

static void a_tokenizer_with_more_pieces_than_the_base_has_rows_is_refused(void **state)
{
    (void)state;
    struct folder folder;
    struct tokenizer *tokenizer = NULL;
    struct model_info info;
    struct error err = {0};

    folder_init(&folder, MINI "/base.safetensors", NEEDLE "/tokenizer.model"); /* 840 and 1024 */
    assert_false(model_open_tokenizer(folder.path, &tokenizer, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_non_null(strstr(err.message, "1024"));
    assert_non_null(strstr(err.message, "840"));
    assert_null(tokenizer);
    assert_false(model_inspect(folder.path, &info, &err));
    folder_release(&folder);

    fail_on(model_open_tokenizer(MINI, &tokenizer, &err), &err);
    assert_int_equal(tokenizer_piece_count(tokenizer), 800);
    tokenizer_close(tokenizer);
}

static void a_path_too_long_is_refused(void **state)
{
    (void)state;
    struct model_info info;
    struct error err = {0};
    char *folder = calloc(1, 5001);

    assert_non_null(folder);
    memset(folder, 'a', 5000);
    assert_false(model_inspect(folder, &info, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    free(folder);
}

static void a_plan_covers_what_opening_takes_and_closing_gives_it_back(void **state)
{
    (void)state;
    static const char *const folders[] = {NEEDLE, MINI};
    struct backend *be = bench_open(BACKEND_REF);

    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        const size_t before = backend_allocated_bytes(be);
        struct model_plan plan;
        struct model *model;
        struct error err = {0};

        fail_on(model_plan(folders[i], &spec, &plan, &err), &err);
        fail_on(model_open(be, folders[i], &spec, NULL, &model, &err), &err);
        const size_t taken = backend_allocated_bytes(be) - before;
        const size_t planned = plan.weights_bytes + plan.adapter_bytes + plan.activations_bytes;
        /* a plan that is more than a tenth over would refuse jobs that fit */
        if (taken > planned || planned > taken + taken / 10)
            fail_msg("planned %zu bytes, took %zu", planned, taken);
        model_close(model);
        assert_int_equal(backend_allocated_bytes(be), before);
    }
    backend_close(be);
}

static void groups_that_are_zero_in_the_base_are_named(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    const char *names[PROJECTION_COUNT];
    struct model *model;
    struct error err = {0};

    fail_on(model_open(be, MINI, &spec, NULL, &model, &err), &err);
    assert_int_equal(model_skipped_groups(model, names), 1);
    assert_string_equal(names[0], "stack/layers/block/self_attn/gate_proj/kernel");
    model_close(model);
    fail_on(model_open(be, NEEDLE, &spec, NULL, &model, &err), &err);
    assert_int_equal(model_skipped_groups(model, names), 0);
    model_close(model);
    backend_close(be);
}

static float loss_of(struct model *model, const struct forest *forest)
{
    struct batch_result result;
    struct error err = {0};

    fail_on(model_run(model, NETWORK_EVALUATE, &forest->batch, 1, NULL, &result, &err), &err);
    return (float)(result.loss_sum / result.weight_sum);
}

static void new_values_count_after_a_refresh(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct safetensors *fixture = fixture_open(MINI "/", "grads.safetensors");
    struct forest *forest = forest_from_fixture(fixture);
    struct model *model;
    struct error err = {0};

    fail_on(model_open(be, MINI, &spec, NULL, &model, &err), &err);
    /* B starts at zero: the adapter changes nothing yet, the loss is that of the base */
    const float start = loss_of(model, forest);
    assert_true(fabs(start - fixture_scalar(fixture, "qat/", "full_loss")) <= 4e-3);

    const struct model_values values = model_values(model);
    float *ones = calloc(values.count, sizeof(float));
    assert_non_null(ones);
    for (size_t i = 0; i < values.count; i++)
        ones[i] = 0.02f;
    backend_upload(be, values.values, ones, values.count * sizeof(float));
    assert_true(loss_of(model, forest) == start);
    model_refresh(model);
    assert_true(loss_of(model, forest) != start);
    free(ones);
    model_close(model);
    forest_free(forest);
    safetensors_close(fixture);
    backend_close(be);
}

static void a_written_adapter_is_read_back_with_its_values(void **state)
{
    (void)state;
    const struct metadata_out extra[] = {{"device", "ref"}, {"numerics", "w4a8"}};
    struct backend *be = bench_open(BACKEND_REF);
    struct folder folder;
    struct model *model;
    struct lora *lora;
    struct error err = {0};
    char sha256[65], path[128];
    uint64_t size_bytes;
    struct stat status;

    folder_init(&folder, NULL, NULL);
    snprintf(path, sizeof(path), "%s/adapter.safetensors", folder.path);
    fail_on(model_open(be, MINI, &spec, NULL, &model, &err), &err);
    fail_on(model_write_adapter(model, path, "needle-3", extra, COUNT_OF(extra), &size_bytes,
                                sha256, &err),
            &err);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal((uint64_t)status.st_size, size_bytes);
    assert_int_equal(strlen(sha256), 64);

    struct weights *weights = bench_weights(be, MINI "/", NUMERICS_W4A8);
    fail_on(lora_read(weights, path, &lora, &err), &err);
    const struct model_values values = model_values(model);
    float *written = calloc(values.count, sizeof(float)),
          *read = calloc(values.count, sizeof(float));
    assert_non_null(written);
    assert_non_null(read);
    assert_int_equal(lora->value_count, values.count);
    backend_download(be, written, values.values, values.count * sizeof(float));
    backend_download(be, read, lora->values, values.count * sizeof(float));
    assert_memory_equal(written, read, values.count * sizeof(float));
    free(written);
    free(read);
    lora_free(lora);
    weights_free(weights);

    struct safetensors *file;
    fail_on(safetensors_open(path, &file, &err), &err);
    assert_string_equal(safetensors_metadata(file, "numerics"), "w4a8");
    assert_non_null(strstr(safetensors_metadata(file, "base"), "needle-3"));
    assert_string_equal(safetensors_metadata(file, "seed"), "3");
    safetensors_close(file);
    model_close(model);
    assert_int_equal(unlink(path), 0);
    folder_release(&folder);
    backend_close(be);
}

static void a_base_that_cannot_be_read_leaves_no_device_memory_behind(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    const size_t before = backend_allocated_bytes(be);
    struct model *model = NULL;
    struct error err = {0};

    assert_false(model_open(be, FIXTURES "no-such-folder", &spec, NULL, &model, &err));
    assert_non_null(strstr(err.message, "no-such-folder"));
    assert_null(model);
    assert_int_equal(backend_allocated_bytes(be), before);
    model_close(NULL);
    backend_close(be);
}

static void a_base_that_is_written_to_while_in_use_is_not_read_on(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_CPU);
    struct safetensors *fixture = fixture_open(MINI "/", "forward.safetensors");
    struct forest *forest = forest_from_fixture(fixture);
    static const char *const words[] = {"written to", "written to", "renaming"};

    for (size_t i = 0; i < COUNT_OF(words); i++) {
        const struct timespec earlier[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
        struct folder folder, other;
        struct model *model;
        struct batch_result result;
        struct error err = {0};
        struct stat file;

        folder_init(&folder, MINI "/base.safetensors", MINI "/tokenizer.model");
        folder_init(&other, MINI "/base.safetensors", NULL);
        fail_on(model_open(be, folder.path, &spec, NULL, &model, &err), &err);
        assert_int_equal(rename(other.base, folder.base), 0); /* how it is done: another file */
        fail_on(model_run(model, NETWORK_EVALUATE, &forest->batch, 1, NULL, &result, &err), &err);
        model_close(model);

        fail_on(model_open(be, folder.path, &spec, NULL, &model, &err), &err);
        assert_int_equal(stat(folder.base, &file), 0);
        if (i == 0)
            assert_int_equal(utimensat(AT_FDCWD, folder.base, earlier, 0), 0);
        else
            assert_int_equal(truncate(folder.base, i == 1 ? 4096 : file.st_size + 1), 0);
        assert_false(model_run(model, NETWORK_EVALUATE, &forest->batch, 1, NULL, &result, &err));
        assert_int_equal(err.code, ERR_CORRUPT);
        if (!strstr(err.message, words[i]) || !strstr(err.message, "base"))
            fail_msg("%s", err.message);
        model_close(model);
        folder_release(&other);
        folder_release(&folder);
    }
    forest_free(forest);
    safetensors_close(fixture);
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_says_what_its_model_is),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(a_tokenizer_with_more_pieces_than_the_base_has_rows_is_refused),
        cmocka_unit_test(a_path_too_long_is_refused),
        cmocka_unit_test(a_plan_covers_what_opening_takes_and_closing_gives_it_back),
        cmocka_unit_test(groups_that_are_zero_in_the_base_are_named),
        cmocka_unit_test(new_values_count_after_a_refresh),
        cmocka_unit_test(a_written_adapter_is_read_back_with_its_values),
        cmocka_unit_test(a_base_that_cannot_be_read_leaves_no_device_memory_behind),
        cmocka_unit_test(a_base_that_is_written_to_while_in_use_is_not_read_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

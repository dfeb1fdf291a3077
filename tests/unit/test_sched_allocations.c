/*
 * Proves that where any one allocation fails, or several in a row, the call fails with ERR_NO_MEMORY, or works
 * without it, and leaves nothing half-made.
 */
#include "daemon/sched/datasets.h"

#include "daemon/base/json.h"
#include "daemon/model/safetensors.h"
#include "daemon/model/tokenizer.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/sweep.h"
#include "daemon/sched/warnings.h"
#include "daemon/train/checkpoint.h"
#include "store/files.h"
#include "tests/support/allocations.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/stat.h>

#define MINI "tests/fixtures/needle3/mini"

/* ---- stories ------------------------------------------------------------------------------------------ */

static bool read_and_print_json(void *context, struct error *err)
{
    static const char text[] = "{\"a\":[1,2.5,\"text\",{\"b\":null}],\"c\":true}";
    struct json *json = NULL;
    char *printed = NULL;
    bool ok;

    (void)context;
    ok = json_parse(text, strlen(text), &json, err) && json_print_text(json, &printed, err);
    if (ok)
        assert_string_equal(printed, text);
    free(printed);
    json_free(json);
    return ok;
}

static void json_says_that_there_is_no_memory(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(read_and_print_json, NULL, NULL, 1);
}

static bool open_base(void *context, struct error *err)
{
    struct safetensors *file = NULL;
    bool ok;

    (void)context;
    ok = safetensors_open(MINI "/base.safetensors", &file, err);
    safetensors_close(file);
    return ok;
}

static void a_base_is_opened_whole_or_not_at_all(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(open_base, NULL, NULL, 1);
}

struct uploading {
    char *folder;
    char database[4200], uploads[4200];
    size_t file_count;    /* in the database, when last looked at */
    struct store *shared; /* the same for all uploads; NULL: each opens its own */
};

static bool upload(void *context, struct error *err)
{
    static const char line[] = "{\"query\":\"a\",\"tools\":[{\"name\":\"t\"}],\"answers\":[]}\n";
    const struct upload_terms terms = {.owner = ""};
    struct uploading *uploading = context;
    struct upload *upload = NULL;
    struct store *store = uploading->shared;
    struct file_record file;
    bool ok;

    ok = (store || store_open(uploading->database, false, &store, err)) &&
         upload_open(uploading->folder, "a.jsonl", "fine-tune", &upload, err);
    if (ok && !upload_append(upload, line, strlen(line), err)) {
        upload_abort(upload);
        ok = false;
    }
    ok = ok && upload_finish(upload, store, &terms, &file, NULL, err);
    if (!uploading->shared)
        store_close(store);
    return ok;
}

static size_t count_files(const char *folder)
{
    DIR *open_folder = opendir(folder);
    const struct dirent *entry;
    size_t count = 0;

    assert_non_null(open_folder);
    while ((entry = readdir(open_folder)) != NULL)
        count += entry->d_name[0] != '.';
    (void)closedir(open_folder);
    return count;
}

/* A file for each record, and none besides; a failure has left neither. */
static void check_uploads(void *context, bool ok)
{
    const struct files_filter all = {NULL, NULL};
    const struct store_page page = {.after = "", .limit = 10000};
    struct uploading *uploading = context;
    struct file_record *files = NULL;
    struct store *store = NULL;
    struct error err = {0};
    bool has_more;
    size_t count;

    assert_true(store_open(uploading->database, false, &store, &err));
    assert_true(files_list(store, &all, &page, &files, &count, &has_more, &err));
    assert_int_equal(count, uploading->file_count + ok);
    assert_int_equal(count_files(uploading->uploads), count);
    uploading->file_count = count;
    free(files);
    store_close(store);
}

static void an_upload_is_kept_whole_or_leaves_nothing(void **state)
{
    struct uploading uploading = {0};
    struct store *store = NULL;
    struct error err = {0};

    (void)state;
    if (!allocations_can_fail)
        skip();
    uploading.folder = scratch_new();
    (void)snprintf(uploading.database, sizeof(uploading.database), "%s/needled.db",
                   uploading.folder);
    (void)snprintf(uploading.uploads, sizeof(uploading.uploads), "%s/uploads", uploading.folder);
    assert_int_equal(mkdir(uploading.uploads, 0700), 0);
    assert_true(store_open(uploading.database, true, &store, &err));
    store_close(store);
    allocations_fail_each(upload, check_uploads, &uploading, 1);

    /* Nor does a failure leave a transaction open, in which nothing later could be written: rolling back needs
     * no memory. */
    assert_true(store_open(uploading.database, false, &uploading.shared, &err));
    allocations_in_a_row = 100;
    allocations_fail_each(upload, check_uploads, &uploading, 1);
    allocations_in_a_row = 1;
    store_close(uploading.shared);
    scratch_free(uploading.folder);
}

static void ignore(void *context, const char *text)
{
    (void)context;
    (void)text;
}

static bool write_and_read(void *context, struct error *err)
{
    const char *folder = context;
    struct checkpoint checkpoint = {.step = 3}, read = {0};
    struct checkpoint_file file;
    bool found = false, ok;

    ok = checkpoint_alloc(&checkpoint, 100, err) &&
         checkpoint_write(folder, "identity", &checkpoint, &file, err) &&
         checkpoint_read_newest(folder, "identity", ignore, NULL, &read, &found, err);
    if (ok)
        assert_true(!found || read.step == 3); /* one that there is no memory for is passed over */
    checkpoint_release(&checkpoint);
    checkpoint_release(&read);
    return ok;
}

static void check_no_temporary(void *context, bool ok)
{
    (void)ok;
    assert_true(count_files(context) <= 2); /* it and its digest */
}

static void a_checkpoint_is_written_whole_or_not_at_all(void **state)
{
    char *folder;

    (void)state;
    if (!allocations_can_fail)
        skip();
    folder = scratch_new();
    allocations_fail_each(write_and_read, check_no_temporary, folder, 1);
    scratch_free(folder);
}

/* ---- jobs --------------------------------------------------------------------------------------------- */

/* A member that was lost would be a setting that the job does without. */
static bool expand_sweep(void *context, struct error *err)
{
    static const char *const wanted[] = {
        "{\"model\":\"needle-3\",\"hyperparameters\":{\"n_epochs\":2,\"seed\":7}}",
        "{\"model\":\"needle-3\",\"hyperparameters\":{\"n_epochs\":3,\"seed\":7}}"};
    struct sweep_bodies bodies;
    struct error printing = {0};
    char *text = NULL;
    bool ok;

    if (!sweep_expand(context, &bodies, err))
        return false;
    allocations_fail_at = 0;
    assert_int_equal(bodies.count, COUNT_OF(wanted));
    for (size_t i = 0; i < bodies.count; i++) {
        assert_true(json_print_text(bodies.items[i], &text, &printing));
        assert_string_equal(text, wanted[i]);
        free(text);
    }
    text = NULL;
    ok = json_print_text(bodies.varied, &text, err); /* the sweep is not made without */
    if (ok)
        assert_string_equal(text, "{\"n_epochs\":[2,3]}");
    free(text);
    sweep_bodies_release(&bodies);
    return ok;
}

static void a_sweeps_jobs_have_all_that_was_asked_for(void **state)
{
    static const char body[] =
        "{\"model\":\"needle-3\",\"hyperparameters\":{\"n_epochs\":[2,3],\"seed\":7}}";
    struct json *json = NULL;
    struct error err = {0};

    (void)state;
    if (!allocations_can_fail)
        skip();
    assert_true(json_parse(body, strlen(body), &json, &err));
    allocations_fail_each(expand_sweep, NULL, json, 1);
    json_free(json);
}

/* The array that is kept has what it had, and one more. */
static bool add_warning(void *context, struct error *err)
{
    static const char before[] = "[{\"rule\":\"device\",\"reason\":\"a\"}]";
    struct json *warnings = warnings_read(before);
    char *text = NULL;
    bool ok;

    (void)context;
    ok = warnings_add(warnings, "warmup", "b") || !warnings;
    assert_true(ok);
    ok = json_print_text(warnings, &text, err);
    if (ok)
        assert_string_equal(text, "[{\"rule\":\"device\",\"reason\":\"a\"},"
                                  "{\"rule\":\"warmup\",\"reason\":\"b\"}]");
    free(text);
    json_free(warnings);
    return ok;
}

static void a_warning_takes_no_earlier_one_away(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(add_warning, NULL, NULL, 1);
}

static bool inspect_base(void *context, struct error *err)
{
    struct model_info info;

    (void)context;
    return bases_inspect("tests/fixtures/needle3", "mini", &info, err);
}

static void a_base_that_there_is_no_memory_to_read_is_not_called_bad(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(inspect_base, NULL, NULL, 1);
}

/* ---- the tokenizer, whose library has no way to fail -------------------------------------------- */

static bool load_tokenizer(void *context, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    bool ok;

    (void)context;
    ok = tokenizer_open(MINI "/tokenizer.model", &tokenizer, err);
    if (ok)
        assert_true(tokenizer_piece_count(tokenizer) > 500);
    tokenizer_close(tokenizer);
    return ok;
}

static bool encode_and_decode(void *context, struct error *err)
{
    static const char text[] = "<tool_call>Wake me up at 7:00, \xe6\x97\xa9!</tool_call>";
    const struct tokenizer *tokenizer = context;
    uint32_t *ids = NULL;
    char *back = NULL;
    size_t count = 0, size = 0;
    bool ok;

    ok = tokenizer_encode(tokenizer, text, strlen(text), &ids, &count, err) &&
         tokenizer_decode(tokenizer, ids, count, &back, &size, err);
    if (ok)
        assert_string_equal(back, text);
    free(ids);
    free(back);
    return ok;
}

/* The library's own code sees none of the failures, be it one or as many as there are waits for. */
static void a_tokenizer_says_that_there_is_no_memory(void **state)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    size_t used;

    (void)state;
    if (!allocations_can_fail)
        skip();
    assert_true(tokenizer_open(MINI "/tokenizer.model", &tokenizer, &err));
    used = mallinfo2().uordblks;
    for (allocations_in_a_row = 1; allocations_in_a_row <= 4; allocations_in_a_row += 3) {
        allocations_fail_each(load_tokenizer, NULL, NULL, allocations_in_a_row == 1 ? 1 : 7);
        allocations_fail_each(encode_and_decode, NULL, tokenizer, 1);
    }
    allocations_in_a_row = 1;
    assert_in_range(mallinfo2().uordblks, 0, used + 4096);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_says_that_there_is_no_memory),
        cmocka_unit_test(a_base_is_opened_whole_or_not_at_all),
        cmocka_unit_test(an_upload_is_kept_whole_or_leaves_nothing),
        cmocka_unit_test(a_checkpoint_is_written_whole_or_not_at_all),
        cmocka_unit_test(a_sweeps_jobs_have_all_that_was_asked_for),
        cmocka_unit_test(a_warning_takes_no_earlier_one_away),
        cmocka_unit_test(a_base_that_there_is_no_memory_to_read_is_not_called_bad),
        cmocka_unit_test(a_tokenizer_says_that_there_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves: an upload is whole, hashed and recorded, or refused with its lines and gone without a
 * trace; names given by clients are labels and ids never lead out of our folders. */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/sched/datasets.h"
#include "store/files.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <dirent.h>

struct fixture {
    char *folder;
    struct store *store;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct error err = {0};

    assert_non_null(fixture);
    fixture->folder = scratch_new();
    if (!file_make_folder(scratch_path(fixture->folder, "uploads"), &err) ||
        !store_open(scratch_path(fixture->folder, "needled.db"), true, &fixture->store, &err))
        fail_msg("%s", err.message);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    store_close(fixture->store);
    scratch_free(fixture->folder);
    free(fixture);
    return 0;
}

static size_t file_count(const char *folder)
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

static bool upload(struct fixture *fixture, const char *name, const void *bytes, size_t size,
                   size_t piece, struct file_record *ret_file, struct json **ret_lines,
                   struct error *err)
{
    struct upload *open_upload = NULL;

    if (!upload_open(fixture->folder, name, "fine-tune", &open_upload, err))
        return false;
    for (size_t done = 0; done < size; done += piece) {
        size_t count = size - done < piece ? size - done : piece;

        if (!upload_append(open_upload, (const char *)bytes + done, count, err)) {
            upload_abort(open_upload);
            return false;
        }
    }
    return upload_finish(open_upload, fixture->store, &(struct upload_terms){.owner = ""}, ret_file,
                         ret_lines, err);
}

static const char good[] = "{\"query\":\"a\",\"tools\":[],\"answers\":[]}\r\n"
                           "\n"
                           "{\"query\":\"b\",\"query\":\"c\",\"tools\":[],\"answers\":[]}\r\n\r\n";

static void an_upload_is_stored_byte_for_byte_whatever_its_pieces(void **state)
{
    static const size_t pieces[] = {1, 7, sizeof(good)};
    struct fixture *fixture = *state;

    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        struct file_record file, stored;
        struct error err = {0};
        char path[4096], digest[SHA256_HEX_SIZE], *bytes, *report = NULL;
        size_t size = 0;

        if (!upload(fixture, "a.jsonl", good, strlen(good), pieces[i], &file, NULL, &err))
            fail_msg("%s", err.message);
        assert_true(dataset_path(path, sizeof(path), fixture->folder, file.id, &err));
        bytes = scratch_read(path, &size);
        assert_int_equal(size, strlen(good));
        assert_memory_equal(bytes, good, size);
        free(bytes);
        assert_true(file_sha256(path, digest, &err));
        assert_true(files_get(fixture->store, file.id, &stored, &err));
        assert_string_equal(stored.sha256, digest);
        assert_int_equal(stored.size_bytes, strlen(good));
        assert_string_equal(stored.purpose, "fine-tune");
        assert_true(files_get_report(fixture->store, file.id, &report, &err));
        assert_non_null(strstr(report, "\"strict_count\":1"));
        assert_non_null(strstr(report, "duplicate_key"));
        free(report);
    }
    assert_int_equal(file_count(scratch_path(fixture->folder, "uploads")), COUNT_OF(pieces));
}

static void what_no_rules_accept_is_refused_with_its_lines_and_leaves_nothing(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        int line;
    } cases[] = {
        {"", 0, 0},
        {"[1]\n", 4, 1},
        {"{\"query\":\"a\"}\n{\"query\":\"b\",}\n", 28, 2},
        {"{\"query\":\"a\"}\n{\"query\":\"\xff\"}\n", 27, 2},
        {"\x1f\x8b\x08\x00\x00", 5, 0},
    };
    struct fixture *fixture = *state;
    struct store_page page = {.after = "", .limit = 10};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct file_record file, *files = NULL;
        struct json *lines = NULL;
        struct error err = {0};
        size_t count = 1;
        bool more;

        if (upload(fixture, "a.jsonl", cases[i].bytes, cases[i].size, 5, &file, &lines, &err))
            fail_msg("case %zu was taken", i);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(lines);
        assert_true(json_count(lines) >= 1);
        assert_non_null(strstr(err.message, "file 'a.jsonl': "));
        assert_string_equal(json_text(json_member(json_at(lines, 0), "file")), "a.jsonl");
        if (cases[i].line)
            assert_int_equal((int)json_number(json_member(json_at(lines, 0), "line")),
                             cases[i].line);
        assert_non_null(json_text(json_member(json_at(lines, 0), "reason")));
        json_free(lines);
        assert_int_equal(file_count(scratch_path(fixture->folder, "uploads")), 0);
        assert_true(files_list(fixture->store, &(struct files_filter){0}, &page, &files, &count,
                               &more, &err));
        assert_int_equal(count, 0);
        free(files);
    }
}

static void an_upload_given_up_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct upload *open_upload = NULL;
    struct error err = {0};

    assert_true(upload_open(fixture->folder, "a", "fine-tune", &open_upload, &err));
    assert_true(upload_append(open_upload, good, 10, &err));
    upload_abort(open_upload);
    assert_int_equal(file_count(scratch_path(fixture->folder, "uploads")), 0);
    assert_false(upload_open(fixture->folder, "a", "batch", &open_upload, &err));
    assert_string_equal(err.param, "purpose");
}

static void a_filename_becomes_a_label(void **state)
{
    static const struct {
        const char *given, *label;
    } cases[] = {
        {"data.jsonl", "data.jsonl"},
        {"../../etc/passwd", "passwd"},
        {"C:\\data\\x.jsonl", "x.jsonl"},
        {"a\tb\nc\x7f.jsonl", "abc.jsonl"},
        {"<b>x</b>", "b>"}, /* the part after the last slash, shown as text */
        {"..", "upload"},
        {"", "upload"},
        {"a/", "upload"},
        {"d\xc3\xa9j\xc3\xa0.jsonl", "d\xc3\xa9j\xc3\xa0.jsonl"},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct file_record file;
        struct error err = {0};

        if (!upload(fixture, cases[i].given, good, strlen(good), 64, &file, NULL, &err))
            fail_msg("%s", err.message);
        assert_string_equal(file.filename, cases[i].label);
    }
}

static void ids_and_artifacts_never_lead_out_of_our_folders(void **state)
{
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "a/b",
                                      "../x",
                                      "/etc",
                                      "a b",
                                      "a\n",
                                      ".x",
                                      "checkpoints/",
                                      "checkpoints/a",
                                      "checkpoints/a/../b",
                                      "checkpoints//x",
                                      "checkpoints/../needled.db",
                                      "checkpoints/a/.x"};
    char path[256];
    struct error err = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        if (dataset_path(path, sizeof(path), "/s", bad[i], &err) ||
            artifact_path(path, sizeof(path), "/s", bad[i], &err))
            fail_msg("'%s' became '%s'", bad[i], path);
    }
    assert_true(dataset_path(path, sizeof(path), "/s", "file-A1_b", &err));
    assert_string_equal(path, "/s/uploads/file-A1_b");
    assert_true(artifact_path(path, sizeof(path), "/s", "ftjob-1.safetensors", &err));
    assert_string_equal(path, "/s/artifacts/ftjob-1.safetensors");
    assert_true(
        artifact_path(path, sizeof(path), "/s", "checkpoints/ftjob-1/epoch-3.safetensors", &err));
    assert_string_equal(path, "/s/checkpoints/ftjob-1/epoch-3.safetensors");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_upload_is_stored_byte_for_byte_whatever_its_pieces),
        TEST(what_no_rules_accept_is_refused_with_its_lines_and_leaves_nothing),
        TEST(an_upload_given_up_leaves_nothing),
        TEST(a_filename_becomes_a_label),
        TEST(ids_and_artifacts_never_lead_out_of_our_folders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves: a database is not made, and not taken for a new one, where what is beside it tells of an earlier one. */
#include "daemon/sched/losses.h"

#include "store/inspect.h"
#include "store/store.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char *folder;
    const char *database;
    struct store *store;
};

static struct error fault;

static int set_up(void **state)
{
    static const char *const names[] = {"uploads", "checkpoints", "artifacts"};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->folder = scratch_new();
    fixture->database = strdup(scratch_path(fixture->folder, "needled.db"));
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_int_equal(mkdir(scratch_path(fixture->folder, names[i]), 0700), 0);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    store_close(fixture->store);
    scratch_free(fixture->folder);
    free((char *)fixture->database);
    free(fixture);
    return 0;
}

static void leave(const struct fixture *fixture, const char *name)
{
    scratch_write(scratch_path(fixture->folder, name), "x", 1);
}

static void assert_refused(bool ok, const char *words)
{
    assert_false(ok);
    assert_int_equal(fault.code, ERR_CORRUPT);
    if (!strstr(fault.message, words) || !strstr(fault.message, "--restore FILE; to begin anew"))
        fail_msg("%s", fault.message);
}

static void an_empty_folder_gets_a_new_database(void **state)
{
    struct fixture *fixture = *state;

    leave(fixture, "uploads/notes.txt"); /* nothing of ours */
    leave(fixture, "uploads/file-1.tmp");
    assert_true(losses_check_new(fixture->folder, fixture->database, &fault));
    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    assert_true(losses_check(fixture->folder, fixture->store, &fault));
}

static void what_an_earlier_one_named_forbids_a_new_one(void **state)
{
    static const struct {
        const char *name, *words;
    } cases[] = {
        {"uploads/file-1", "uploads of an earlier one are there: 1"},
        {"checkpoints/ftjob-1", "folders of its jobs: 1"},
        {"artifacts/ftjob-1.safetensors", "adapters: 1"},
        {"needled.db-wal", "its needled.db-wal is there"},
        {"needled.db-shm", "its needled.db-shm is there"},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        leave(fixture, cases[i].name);
        assert_refused(losses_check_new(fixture->folder, fixture->database, &fault),
                       cases[i].words);
        assert_int_equal(unlink(scratch_path(fixture->folder, cases[i].name)), 0);
    }
    leave(fixture, "uploads/file-1");
    leave(fixture, "needled.db"); /* what is there is another's to judge */
    assert_true(losses_check_new(fixture->folder, fixture->database, &fault));
}

static void an_empty_database_beside_the_files_of_jobs_is_refused(void **state)
{
    struct fixture *fixture = *state;

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    leave(fixture, "artifacts/ftjob-1.safetensors");
    assert_refused(losses_check(fixture->folder, fixture->store, &fault),
                   "knows of no file and no job");
    assert_true(losses_allow(fixture->store, &fault)); /* somebody wanted it so */
    assert_true(losses_check(fixture->folder, fixture->store, &fault));
    assert_false(losses_check(fixture->folder, fixture->store, &fault)); /* that once */
}

static void an_empty_database_is_refused_before_anything_is_written(void **state)
{
    struct fixture *fixture = *state;
    size_t size, size_after;
    char *before, *after;

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    store_close(fixture->store);
    fixture->store = NULL;
    assert_true(losses_check_new(fixture->folder, fixture->database, &fault)); /* a new one */
    leave(fixture, "artifacts/ftjob-1.safetensors");
    before = scratch_read(fixture->database, &size);
    assert_refused(losses_check_new(fixture->folder, fixture->database, &fault),
                   "knows of no file and no job");
    after = scratch_read(fixture->database, &size_after);
    assert_int_equal(size, size_after);
    assert_memory_equal(before, after, size);
    assert_int_not_equal(access(scratch_path(fixture->folder, "needled.db-shm"), F_OK), 0);
    free(before);
    free(after);
    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    assert_true(losses_allow(fixture->store, &fault)); /* somebody wanted it so */
    assert_true(losses_check_new(fixture->folder, fixture->database, &fault));
}

/* Killed between the file and its record: nothing is lost that anybody was told of. */
static void an_upload_alone_is_no_loss(void **state)
{
    struct fixture *fixture = *state;

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    leave(fixture, "uploads/file-1");
    assert_true(losses_check(fixture->folder, fixture->store, &fault));
}

static void change(struct store *store, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_true(losses_allow(store, &fault)); /* a transaction that is in the log alone */
}

static void copy(const struct fixture *fixture, const char *side, size_t size_max)
{
    char from[4200], to[4200], *bytes;
    size_t size = 0;

    (void)snprintf(from, sizeof(from), "%s%s", fixture->database, side);
    (void)snprintf(to, sizeof(to), "%s/copy.db%s", fixture->folder, side);
    bytes = scratch_read(from, &size);
    scratch_write(to, bytes, size < size_max ? size : size_max);
    free(bytes);
}

/* As kill -9 leaves it, with so much of the log. */
static bool lost_log_with(const struct fixture *fixture, size_t log_bytes)
{
    struct store *store = NULL;
    bool lost;

    copy(fixture, "", SIZE_MAX);
    copy(fixture, "-shm", SIZE_MAX);
    if (log_bytes > 0)
        copy(fixture, "-wal", log_bytes);
    /* A first look leaves the log and its index as they are. */
    (void)inspect_is_bare(scratch_path(fixture->folder, "copy.db"), "none");
    assert_true(store_open(scratch_path(fixture->folder, "copy.db"), true, &store, &fault));
    lost = store_lost_log(store);
    assert_int_equal(losses_check(fixture->folder, store, &fault), !lost);
    store_close(store);
    return lost;
}

/* The same of a log that holds those bytes. */
static bool lost_log_in(const struct fixture *fixture, const char *bytes, size_t size,
                        bool with_index)
{
    const char *path = scratch_path(fixture->folder, "copy.db");
    struct inspection found;

    copy(fixture, "", SIZE_MAX);
    (void)unlink(scratch_path(fixture->folder, "copy.db-shm"));
    if (with_index)
        copy(fixture, "-shm", SIZE_MAX);
    scratch_write(scratch_path(fixture->folder, "copy.db-wal"), bytes, size);
    assert_true(inspect_file(path, "", &found, &fault));
    return found.log_is_lost;
}

static void a_log_that_was_cut_or_lost_is_known_by_its_index(void **state)
{
    struct fixture *fixture = *state;
    struct stat about;

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    assert_true(losses_allow(fixture->store, &fault)); /* a change that is in the log alone */
    assert_int_equal(stat(scratch_path(fixture->folder, "needled.db-wal"), &about), 0);
    assert_true(about.st_size > 4096);
    leave(fixture, "uploads/file-1");
    assert_false(lost_log_with(fixture, SIZE_MAX));
    assert_true(lost_log_with(fixture, 0));
    assert_true(lost_log_with(fixture, 32));
    assert_true(lost_log_with(fixture, (size_t)about.st_size - 1));
}

/* SQLite takes a log up to the damage, and says nothing of what stood behind it. */
static void a_log_with_a_flipped_byte_is_told_with_and_without_its_index(void **state)
{
    static const size_t frame = 24 + 4096;
    const struct {
        size_t offset;
        bool is_lost, without_is_lost;
    } cases[] = {
        {32 + frame + 100, true, true},    /* a page, */
        {32 + 2 * frame + 5, true, true},  /* a frame's header, */
        {32 + 2 * frame + 17, true, true}, /* its sums, */
        {32 + 2 * frame + 9, true, true},  /* its salts, */
        {10, true, false},                 /* the log's header: without an index, no log */
    };
    struct fixture *fixture = *state;
    size_t size = 0;
    char *bytes;

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    change(fixture->store, 4);
    bytes = scratch_read(scratch_path(fixture->folder, "needled.db-wal"), &size);
    assert_true(size > 32 + 4 * frame && (size - 32) % frame == 0);
    assert_false(lost_log_in(fixture, bytes, size, true));
    assert_false(lost_log_in(fixture, bytes, size, false));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        bytes[cases[i].offset] ^= 0x55;
        assert_int_equal(lost_log_in(fixture, bytes, size, true), cases[i].is_lost);
        assert_int_equal(lost_log_in(fixture, bytes, size, false), cases[i].without_is_lost);
        bytes[cases[i].offset] ^= 0x55;
    }
    bytes[size - 10] ^= 0x55; /* the last one may never have been whole: only the index knows */
    assert_true(lost_log_in(fixture, bytes, size, true));
    assert_false(lost_log_in(fixture, bytes, size, false));
    free(bytes);
}

static void what_stands_in_the_place_of_a_side_file_is_named(void **state)
{
    static const char *const sides[] = {"copy.db-wal", "copy.db-shm", "copy.db-journal"};
    static const unsigned char journal[512] = {0xd9, 0xd5, 0x05, 0xf9, 0x20,
                                               0xa1, 0x63, 0xd7, 0xff};
    struct fixture *fixture = *state;
    struct inspection found;
    char words[64];

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    store_close(fixture->store); /* all of it is in the one file now */
    fixture->store = NULL;
    copy(fixture, "", SIZE_MAX);
    for (size_t i = 0; i < COUNT_OF(sides); i++) {
        const char *side = scratch_path(fixture->folder, sides[i]);

        (void)snprintf(words, sizeof(words), "/%s' is ", sides[i]);
        for (int kind = 0; kind < 3; kind++) {
            assert_int_equal(kind == 0   ? mkdir(side, 0700)
                             : kind == 1 ? mkfifo(side, 0600)
                                         : symlink("elsewhere", side),
                             0);
            assert_false(
                inspect_file(scratch_path(fixture->folder, "copy.db"), "", &found, &fault));
            assert_int_equal(fault.code, ERR_CORRUPT);
            if (!strstr(fault.message, words) ||
                !strstr(fault.message, kind == 2 ? "a symbolic link" : "not a regular file"))
                fail_msg("%s", fault.message);
            assert_int_equal(remove(side), 0);
        }
    }
    scratch_write(scratch_path(fixture->folder, sides[0]), "", 0);
    scratch_write(scratch_path(fixture->folder, sides[2]), journal, sizeof(journal));
    assert_false(inspect_file(scratch_path(fixture->folder, "copy.db"), "", &found, &fault));
    assert_int_equal(fault.code, ERR_CORRUPT);
    if (!strstr(fault.message, "has a journal beside it"))
        fail_msg("%s", fault.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_empty_folder_gets_a_new_database, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_an_earlier_one_named_forbids_a_new_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_empty_database_beside_the_files_of_jobs_is_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_upload_alone_is_no_loss, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_log_that_was_cut_or_lost_is_known_by_its_index, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_log_with_a_flipped_byte_is_told_with_and_without_its_index, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_database_is_refused_before_anything_is_written,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_stands_in_the_place_of_a_side_file_is_named, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

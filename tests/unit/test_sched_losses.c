/* Proves: a database is not made, and not taken for a new one, where what is beside it tells of an earlier one. */
#include "daemon/sched/losses.h"

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

/* Killed between the file and its record: nothing is lost that anybody was told of. */
static void an_upload_alone_is_no_loss(void **state)
{
    struct fixture *fixture = *state;

    assert_true(store_open(fixture->database, true, &fixture->store, &fault));
    leave(fixture, "uploads/file-1");
    assert_true(losses_check(fixture->folder, fixture->store, &fault));
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
    assert_true(store_open(scratch_path(fixture->folder, "copy.db"), true, &store, &fault));
    lost = store_lost_log(store);
    assert_int_equal(losses_check(fixture->folder, store, &fault), !lost);
    store_close(store);
    return lost;
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

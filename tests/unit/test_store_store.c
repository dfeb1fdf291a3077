/* Proves: a database is made whole, comes back as it was, and whatever is not ours is refused by
 * name and keeps every byte; a process killed in mid-transaction leaves a readable one. */
#include "store/files.h"
#include "store/jobs.h"
#include "store/migrations.h"
#include "store/sql.h"
#include "store/store.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int set_up(void **state)
{
    *state = scratch_new();
    return 0;
}

static int tear_down(void **state)
{
    scratch_free(*state);
    return 0;
}

static struct store *open_store(const char *path)
{
    struct store *store = NULL;
    struct error err = {0};

    if (!store_open(path, true, &store, &err))
        fail_msg("%s", err.message);
    return store;
}

static void insert_file(struct store *store, const char *id)
{
    struct file_record file = {.purpose = "fine-tune", .filename = "a.jsonl", .size_bytes = 3};
    struct error err = {0};

    (void)snprintf(file.id, sizeof(file.id), "%s", id);
    if (!files_insert(store, &file, "{\"lines\":1}", &err))
        fail_msg("%s", err.message);
}

static int ask_int(struct store *store, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int number;

    assert_int_equal(sqlite3_prepare_v2(store->db, text, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    number = sqlite3_column_int(statement, 0);
    (void)sqlite3_finalize(statement);
    return number;
}

static void a_new_database_has_the_promised_settings_and_comes_back(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path);
    struct file_record file = {0};
    struct error err = {0};
    char *report = NULL;
    sqlite3_stmt *statement = NULL;

    insert_file(store, "file-1");
    assert_int_equal(ask_int(store, "PRAGMA synchronous"), 2); /* FULL */
    assert_int_equal(ask_int(store, "PRAGMA foreign_keys"), 1);
    assert_int_equal(ask_int(store, "PRAGMA user_version"), MIGRATION_COUNT);
    assert_int_equal(ask_int(store, "PRAGMA application_id"), MIGRATION_APPLICATION_ID);
    assert_int_equal(sqlite3_prepare_v2(store->db, "PRAGMA journal_mode", -1, &statement, NULL), 0);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(statement, 0), "wal");
    (void)sqlite3_finalize(statement);
    assert_true(store_ping(store, &err));
    store_close(store);

    store = open_store(path);
    assert_true(files_get(store, "file-1", &file, &err));
    assert_string_equal(file.filename, "a.jsonl");
    assert_true(files_get_report(store, "file-1", &report, &err));
    assert_string_equal(report, "{\"lines\":1}");
    free(report);
    assert_false(files_get(store, "file-2", &file, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "file-2"));
    store_close(store);
}

static void expect_refused(const char *path, const char *name, const char *word)
{
    struct store *store = NULL;
    struct error err = {0};
    size_t size_before = 0, size_after = 0;
    char *before = scratch_read(path, &size_before);
    char *after;

    if (store_open(path, true, &store, &err))
        fail_msg("%s was taken", name);
    if (err.code != ERR_CORRUPT || !strstr(err.message, path) || !strstr(err.message, word) ||
        !strstr(err.message, "untouched"))
        fail_msg("%s: code %d, %s", name, err.code, err.message);
    after = scratch_read(path, &size_after);
    if (size_before != size_after || memcmp(before, after, size_before) != 0)
        fail_msg("%s was changed", name);
    free(before);
    free(after);
}

static void what_is_not_our_database_is_refused_and_untouched(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    const char *foreign = scratch_path(*state, "foreign.db");
    const char *link = scratch_path(*state, "link.db");
    struct store *store;
    sqlite3 *db = NULL;
    size_t size = 0;
    char *bytes, mark[64];

    scratch_write(foreign, "", 0);
    expect_refused(foreign, "an empty file", "not a database");
    scratch_write(foreign, "these are notes, no database\n", 29);
    expect_refused(foreign, "a text", "not a database");
    assert_int_equal(unlink(foreign), 0);
    assert_int_equal(sqlite3_open(foreign, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE jobs (id)", NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    expect_refused(foreign, "another program's database", "another program");
    assert_int_equal(sqlite3_open(foreign, &db), SQLITE_OK);
    (void)snprintf(mark, sizeof(mark), "PRAGMA application_id = %d", MIGRATION_APPLICATION_ID);
    assert_int_equal(sqlite3_exec(db, mark, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(db);
    expect_refused(foreign, "one that bears our mark", "no version of ours");

    store = open_store(path);
    for (int i = 0; i < 200; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "file-%d", i);
        insert_file(store, id);
    }
    store_close(store);
    bytes = scratch_read(path, &size);
    scratch_write(foreign, bytes, size / 2);
    expect_refused(foreign, "a database cut in half", "damaged");
    memset(bytes + 4096, 0xa5, size - 4096 < 16384 ? size - 4096 : 16384);
    scratch_write(foreign, bytes, size);
    expect_refused(foreign, "a database with garbage pages", "damaged");
    free(bytes);

    assert_int_equal(symlink(path, link), 0);
    expect_refused(link, "a symbolic link", "symbolic link");
}

static void a_newer_database_is_refused_and_untouched(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path);

    assert_int_equal(sqlite3_exec(store->db, "PRAGMA user_version = 99", NULL, NULL, NULL), 0);
    store_close(store);
    expect_refused(path, "version 99", "newer program");
}

static void a_folder_that_is_missing_is_named(void **state)
{
    const char *path = scratch_path(*state, "nowhere/needled.db");
    struct store *store = NULL;
    struct error err = {0};

    assert_false(store_open(path, true, &store, &err));
    assert_non_null(strstr(err.message, path));
}

/* The child writes without end; it is killed, in all likelihood inside a transaction. */
static pid_t start_writer(const char *path, int *ret_ready)
{
    int pipe_ends[2];
    pid_t child;

    assert_int_equal(pipe(pipe_ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct store *store = NULL;
        struct job_record job = {.id = "ftjob-1"};
        struct event_draft event = {.type = "message", .message = "created"};
        struct error err = {0};

        if (!store_open(path, true, &store, &err) || !jobs_insert(store, &job, &event, &err))
            _exit(1);
        for (;;) {
            struct event_draft events[] = {event, event, event};

            if (!events_append(store, job.id, events, 3, 1, 1, 0.5, &err) ||
                write(pipe_ends[1], "x", 1) != 1)
                _exit(1);
        }
    }
    (void)close(pipe_ends[1]); /* the child's */
    *ret_ready = pipe_ends[0];
    return child;
}

static void a_process_killed_while_it_writes_leaves_a_readable_database(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct event_record *events = NULL;
    struct error err = {0};
    struct store *store;
    size_t count = 0;
    char byte;
    int ready, status;
    pid_t child = start_writer(path, &ready);
    size_t told = 0;

    for (; told < 20; told++)
        assert_int_equal(read(ready, &byte, 1), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    while (read(ready, &byte, 1) == 1)
        told++;
    (void)close(ready); /* only read */

    store = open_store(path);
    assert_true(events_since(store, "ftjob-1", 0, 1000000, &events, &count, &err));
    /* What was told is there, and transactions are whole: one event at first, then threes. */
    assert_true(count >= 1 + 3 * told);
    assert_int_equal((count - 1) % 3, 0);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(events[i].number, i + 1);
    events_free(events, count);
    store_close(store);
}

static void a_failed_transaction_leaves_nothing_and_the_store_usable(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path);
    struct job_record job = {.id = "ftjob-1"};
    struct error err = {0};
    struct event_draft broken = {.type = "message", .message = NULL}; /* NOT NULL refuses it */
    struct job_record found = {0};

    assert_false(jobs_insert(store, &job, &broken, &err));
    assert_false(jobs_get(store, "ftjob-1", &found, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_true(jobs_insert(store, &job, NULL, &err));
    assert_false(jobs_insert(store, &job, NULL, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    store_close(store);
}

static void a_full_disk_is_said_in_these_words(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path);
    struct file_record file = {.id = "file-x"};
    struct error err = {0};
    char text[64];
    bool ok = true;

    (void)snprintf(text, sizeof(text), "PRAGMA max_page_count = %d",
                   ask_int(store, "PRAGMA page_count") + 2);
    assert_int_equal(sqlite3_exec(store->db, text, NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < 1000 && ok; i++) {
        (void)snprintf(file.id, sizeof(file.id), "file-%d", i);
        ok = files_insert(store, &file, NULL, &err);
    }
    assert_false(ok);
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_non_null(strstr(err.message, "disk full"));
    assert_true(files_get(store, "file-0", &file, &err)); /* reading goes on */
    assert_int_equal(sqlite3_exec(store->db, "PRAGMA max_page_count = 100000", NULL, NULL, NULL),
                     SQLITE_OK);
    insert_file(store, "file-again");
    store_close(store);
}

static void a_limit_of_files_sizes_is_a_full_disk(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path);
    struct file_record file = {.id = "file-0"};
    struct error err = {0};
    struct rlimit limit;
    bool ok = true;

    assert_true(files_insert(store, &file, NULL, &err));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit low = {.rlim_cur = 256 * 1024, .rlim_max = limit.rlim_max};

    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    for (int i = 1; i < 1000 && ok; i++) {
        (void)snprintf(file.id, sizeof(file.id), "file-%d", i);
        ok = files_insert(store, &file, NULL, &err);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_false(ok);
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_string_equal(err.word, ERROR_DISK_FULL);
    assert_non_null(strstr(err.message, "file size limit"));
    assert_true(files_get(store, "file-0", &file, &err));
    insert_file(store, "file-again");
    store_close(store);
}

static void a_file_too_many_open_is_no_fault_of_the_database(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path), *other = NULL;
    struct error err = {0};
    struct rlimit before, none;
    bool opened;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    opened = store_open(path, false, &other, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(opened);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_string_equal(err.word, ERROR_OPEN_FILES);
    assert_non_null(strstr(err.message, "Too many open files"));
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_database_has_the_promised_settings_and_comes_back,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_our_database_is_refused_and_untouched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_newer_database_is_refused_and_untouched, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_is_missing_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_too_many_open_is_no_fault_of_the_database, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_process_killed_while_it_writes_leaves_a_readable_database,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_transaction_leaves_nothing_and_the_store_usable,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_said_in_these_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_limit_of_files_sizes_is_a_full_disk, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

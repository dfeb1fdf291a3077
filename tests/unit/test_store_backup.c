/* Proves: a database of an earlier version is brought up to date with a copy beside it, or stays as it was;
 * a backup is of one moment while others write; it comes back, also over a database that is there or
 * damaged, and what is no backup changes nothing. */
#include "store/backup.h"
#include "store/files.h"
#include "store/jobs.h"
#include "store/migrations.h"
#include "store/sql.h"
#include "tests/support/database.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
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

    CHECK(store_open(path, true, &store, &fault));
    return store;
}

static bool exists(const char *folder, const char *name)
{
    return access(scratch_path(folder, name), F_OK) == 0;
}

/* How many files of a folder begin so. */
static size_t count_files(const char *folder, const char *beginning)
{
    const struct dirent *entry;
    DIR *listing = opendir(folder);
    size_t count = 0;

    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL)
        count += strncmp(entry->d_name, beginning, strlen(beginning)) == 0;
    (void)closedir(listing); /* only read */
    return count;
}

static void insert_job(struct store *store, const char *id)
{
    struct job_record job = {.base_model = "needle-3", .created_unix_s = 1000};
    const struct event_draft event = {.type = "message", .message = "created"};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    CHECK(jobs_insert(store, &job, &event, &fault));
}

static bool has_job(struct store *store, const char *id)
{
    struct job_record job = {0};
    struct error err = {0};
    bool found = jobs_get(store, id, &job, &err);

    job_record_release(&job);
    assert_true(found || err.code == ERR_NOT_FOUND);
    return found;
}

/* ---- migrations --------------------------------------------------------------------------------- */

static void run(sqlite3 *db, const char *text)
{
    char *message = NULL;

    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%.80s: %s", text, message);
}

/* As the program of that version has left it, with a job and further statements. */
static void make_old(const char *path, int version, const char *more)
{
    char text[128];
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    run(db, "PRAGMA journal_mode = WAL");
    for (int i = 0; i < version; i++)
        run(db, migrations[i]);
    run(db, "INSERT INTO jobs (id, state, base_model, training_file, validation_file, suffix, seed,"
            " device_wanted, device_used, numerics, state_reason, created_unix_s, started_unix_s,"
            " finished_unix_s, total_steps, completed_steps, trained_tokens, fine_tuned_model,"
            " error_code, error_param, error_message, attempt_count) VALUES ('ftjob-old', 'queued',"
            " 'm', '', '', '', 1, 'auto', '', 'w4a8', '', 1, 0, 0, 0, 0, 0, '', '', '', '', 0)");
    run(db, more);
    (void)snprintf(text, sizeof(text), "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   MIGRATION_APPLICATION_ID, version);
    run(db, text);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int version_of(const char *path)
{
    unsigned char *bytes;
    size_t size = 0;
    int version;

    bytes = (unsigned char *)scratch_read(path, &size);
    assert_true(size > 64);
    version = bytes[62] << 8 | bytes[63];
    free(bytes);
    return version;
}

static void every_earlier_version_is_brought_up_to_date_with_a_copy(void **state)
{
    for (int version = 1; version < MIGRATION_COUNT; version++) {
        char name[64], copy[128];
        const char *path;
        struct stat info;
        struct store *store;

        (void)snprintf(name, sizeof(name), "from-%d.db", version);
        (void)snprintf(copy, sizeof(copy), "%s.before-v%d", name, MIGRATION_COUNT);
        path = scratch_path(*state, name);
        make_old(path, version, "");
        store = open_store(path);
        assert_true(has_job(store, "ftjob-old"));
        assert_non_null(strstr(store_opening_note(store), "before-v"));
        insert_job(store, "ftjob-new");
        store_close(store);
        assert_int_equal(version_of(path), MIGRATION_COUNT);
        assert_int_equal(version_of(scratch_path(*state, copy)), version);
        assert_int_equal(stat(scratch_path(*state, copy), &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);

        store = open_store(path); /* nothing is left to do */
        assert_string_equal(store_opening_note(store), "");
        store_close(store);
    }
}

static void the_copies_of_the_last_two_versions_stay(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    char name[64];

    for (int version = 1; version < MIGRATION_COUNT; version++) {
        (void)snprintf(name, sizeof(name), "needled.db.before-v%d", version);
        scratch_write(scratch_path(*state, name), "old", 3);
    }
    make_old(path, MIGRATION_COUNT - 1, "");
    store_close(open_store(path));
    assert_int_equal(count_files(*state, "needled.db.before-v"), 2);
    (void)snprintf(name, sizeof(name), "needled.db.before-v%d", MIGRATION_COUNT - 1);
    assert_true(exists(*state, name));
}

static void a_migration_that_fails_leaves_the_database_as_it_was(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = NULL;
    struct error err = {0};
    size_t size_before = 0, size_after = 0;
    char *before, *after;

    /* The last step's first table is there already; those before it run. */
    make_old(path, 1, "CREATE TABLE gone (x)");
    before = scratch_read(path, &size_before);
    assert_false(store_open(path, true, &store, &err));
    assert_non_null(strstr(err.message, "from version 1"));
    assert_non_null(strstr(err.message, "left as it was"));
    after = scratch_read(path, &size_after);
    assert_int_equal(size_before, size_after);
    assert_memory_equal(before, after, size_before);
    free(before);
    free(after);
    assert_int_equal(version_of(path), 1);
}

static void a_copy_that_cannot_be_written_stops_the_migration(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = NULL;
    struct error err = {0};
    char name[64];

    make_old(path, MIGRATION_COUNT - 1, "");
    (void)snprintf(name, sizeof(name), "needled.db.before-v%d.tmp", MIGRATION_COUNT);
    assert_int_equal(mkdir(scratch_path(*state, name), 0700), 0);
    assert_false(store_open(path, true, &store, &err));
    assert_int_equal(version_of(path), MIGRATION_COUNT - 1);
    assert_int_equal(rmdir(scratch_path(*state, name)), 0);
    store_close(open_store(path));
    assert_int_equal(version_of(path), MIGRATION_COUNT);
}

/* ---- looking ------------------------------------------------------------------------------------ */

/* Garbage over all pages but the first, with a log beside it or without. */
static void nothing_is_made_beside_a_damaged_database(void **state)
{
    for (int with_log = 0; with_log < 2; with_log++) {
        const char *path = scratch_path(*state, with_log ? "b.db" : "a.db");
        const char *log = scratch_path(*state, with_log ? "b.db-wal" : "a.db-wal");
        struct store *store = open_store(path);
        struct error err = {0};
        size_t size = 0, size_after = 0, count;
        char *bytes, *after;

        insert_job(store, "ftjob-1");
        store_close(store);
        bytes = scratch_read(path, &size);
        memset(bytes + 4096, 0xa5, size - 4096);
        scratch_write(path, bytes, size);
        if (with_log)
            scratch_write(log, "", 0);
        count = count_files(*state, "");
        assert_false(store_open(path, true, &store, &err));
        assert_int_equal(err.code, ERR_CORRUPT);
        assert_non_null(strstr(err.message, "needled --restore"));
        assert_int_equal(count_files(*state, ""), count);
        after = scratch_read(path, &size_after);
        assert_int_equal(size, size_after);
        assert_memory_equal(bytes, after, size);
        free(bytes);
        free(after);
    }
}

static void rows_that_name_nothing_are_told_and_do_no_harm(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    struct store *store = open_store(path);

    run(store->db, "PRAGMA foreign_keys = OFF; INSERT INTO events (job_id, number, created_unix_s,"
                   " level, type, message) VALUES ('ftjob-none', 1, 1, 0, 'message', 'm')");
    store_close(store);
    store = open_store(path);
    assert_non_null(strstr(store_opening_note(store), "gone: 1"));
    store_close(store);
}

/* ---- backups ------------------------------------------------------------------------------------ */

struct writing {
    const char *path;
    atomic_bool stop;
    atomic_int count; /* jobs that were told to be kept */
};

/* Each job and its event are one transaction. */
static void *write_on(void *context)
{
    struct writing *writing = context;
    struct store *store = open_store(writing->path);

    while (!atomic_load(&writing->stop)) {
        char id[32];

        (void)snprintf(id, sizeof(id), "ftjob-%d", atomic_load(&writing->count));
        insert_job(store, id);
        (void)atomic_fetch_add(&writing->count, 1);
    }
    store_close(store);
    return NULL;
}

static int64_t ask(struct store *store, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int64_t number;

    assert_int_equal(sqlite3_prepare_v2(store->db, text, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return number;
}

static void a_backup_is_of_one_moment_while_others_write(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    const char *copy = scratch_path(*state, "copy.db");
    struct store *store = open_store(path);
    struct writing writing = {.path = path};
    struct stat info;
    pthread_t writer;

    assert_int_equal(pthread_create(&writer, NULL, write_on, &writing), 0);
    for (int round = 0; round < 5; round++) {
        const int sooner = atomic_load(&writing.count);
        struct store *found;
        int64_t count;

        CHECK(backup_write(store, copy, &fault)); /* over the one before */
        assert_int_equal(stat(copy, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        found = open_store(copy);
        count = ask(found, "SELECT count(*) FROM jobs");
        assert_in_range(count, sooner, atomic_load(&writing.count) + 1);
        assert_int_equal(ask(found, "SELECT count(*) FROM events"), count); /* of each one */
        store_close(found);
    }
    atomic_store(&writing.stop, true);
    (void)pthread_join(writer, NULL);
    store_close(store);
    assert_false(exists(*state, "copy.db.tmp"));
}

static void a_backup_comes_back_over_what_is_there(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    const char *copy = scratch_path(*state, "copy.db");
    struct store *store = open_store(path);
    char aside[BACKUP_ASIDE_SIZE] = "?", name[128];

    insert_job(store, "ftjob-1");
    CHECK(backup_write(store, copy, &fault));
    insert_job(store, "ftjob-2");
    store_close(store);

    CHECK(backup_restore(copy, path, aside, &fault));
    store = open_store(path);
    assert_true(has_job(store, "ftjob-1"));
    assert_false(has_job(store, "ftjob-2"));
    store_close(store);
    (void)snprintf(name, sizeof(name), "needled.db%s", aside);
    store = open_store(scratch_path(*state, name));
    assert_true(has_job(store, "ftjob-2"));
    store_close(store);

    /* Again at once: nothing that was kept is lost. */
    CHECK(backup_restore(copy, path, aside, &fault));
    assert_int_equal(count_files(*state, "needled.db.replaced-"), 2);

    /* Into a folder that has none. */
    assert_int_equal(mkdir(scratch_path(*state, "empty"), 0700), 0);
    path = scratch_path(*state, "empty/needled.db");
    CHECK(backup_restore(copy, path, aside, &fault));
    assert_string_equal(aside, "");
    store = open_store(path);
    assert_true(has_job(store, "ftjob-1"));
    store_close(store);
}

/* A killed daemon's log holds what was told: it goes aside with its database, and not to the new one. */
static void the_log_of_a_killed_daemon_goes_aside_with_its_database(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    const char *copy = scratch_path(*state, "copy.db");
    const char *left = scratch_path(*state, "left.db"), *left_log;
    struct store *store = open_store(path);
    char aside[BACKUP_ASIDE_SIZE] = "", name[128];
    size_t size = 0, log_size = 0;
    char *bytes, *log;

    CHECK(backup_write(store, copy, &fault));
    insert_job(store, "ftjob-late");
    bytes = scratch_read(path, &size);
    log = scratch_read(scratch_path(*state, "needled.db-wal"), &log_size);
    assert_true(log_size > 0);
    store_close(store);
    left_log = scratch_path(*state, "left.db-wal");
    scratch_write(left, bytes, size);
    scratch_write(left_log, log, log_size);
    free(bytes);
    free(log);

    CHECK(backup_restore(copy, left, aside, &fault));
    store = open_store(left);
    assert_false(has_job(store, "ftjob-late"));
    store_close(store);
    (void)snprintf(name, sizeof(name), "left.db%s", aside);
    store = open_store(scratch_path(*state, name));
    assert_true(has_job(store, "ftjob-late"));
    store_close(store);
}

static void what_is_no_backup_changes_nothing(void **state)
{
    const char *path = scratch_path(*state, "needled.db");
    const char *copy = scratch_path(*state, "copy.db");
    struct store *store = open_store(path);
    char aside[BACKUP_ASIDE_SIZE] = "?";
    struct error err = {0};
    size_t size = 0, count;
    char *bytes;

    insert_job(store, "ftjob-1");
    CHECK(backup_write(store, copy, &fault));
    store_close(store);
    count = count_files(*state, "");
    assert_false(backup_restore(scratch_path(*state, "none.db"), path, aside, &err));
    bytes = scratch_read(copy, &size);
    bytes[63] = 99; /* its version */
    scratch_write(copy, bytes, size);
    assert_false(backup_restore(copy, path, aside, &err));
    assert_non_null(strstr(err.message, "version 99"));
    scratch_write(copy, bytes, size / 2);
    free(bytes);
    assert_false(backup_restore(copy, path, aside, &err));
    scratch_write(copy, "text", 4);
    assert_false(backup_restore(copy, path, aside, &err));
    assert_non_null(strstr(err.message, "copy.db"));
    assert_int_equal(count_files(*state, ""), count);
    assert_string_equal(aside, "?");
    store = open_store(path);
    assert_true(has_job(store, "ftjob-1"));
    store_close(store);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(every_earlier_version_is_brought_up_to_date_with_a_copy),
        CASE(the_copies_of_the_last_two_versions_stay),
        CASE(a_migration_that_fails_leaves_the_database_as_it_was),
        CASE(a_copy_that_cannot_be_written_stops_the_migration),
        CASE(nothing_is_made_beside_a_damaged_database),
        CASE(rows_that_name_nothing_are_told_and_do_no_harm),
        CASE(a_backup_is_of_one_moment_while_others_write),
        CASE(a_backup_comes_back_over_what_is_there),
        CASE(the_log_of_a_killed_daemon_goes_aside_with_its_database),
        CASE(what_is_no_backup_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

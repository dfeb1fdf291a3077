/*
 * Proves that where memory runs out a database is called neither damaged nor another program's, and that
 * a write is kept whole or not at all and leaves the connection fit for the next one.
 */
#include "store/inspect.h"
#include "store/jobs.h"
#include "store/migrations.h"
#include "store/settings.h"
#include "tests/support/allocations.h"
#include "tests/support/database.h"

#include <unistd.h>

#define JOBS 60 /* more than one page of the table */

static void insert_jobs(struct store *store)
{
    const struct event_draft event = {.type = "state", .message = "queued"};

    for (int i = 0; i < JOBS; i++) {
        struct job_record job = {.base_model = "needle-3", .created_unix_s = 1000 + i};

        (void)snprintf(job.id, sizeof(job.id), "ftjob-%d", i);
        CHECK(jobs_insert(store, &job, &event, &fault));
    }
}

/* ---- a look before the opening -------------------------------------------------------------------------- */

/* What a start makes of it: damage and a foreign file end the daemon for good, the rest is tried again. */
static bool say_what_may_pass(bool ok, struct error *err)
{
    if (!ok && err->code == ERR_IO)
        err->code = ERR_NO_MEMORY;
    return ok;
}

static bool look(void *context, struct error *err)
{
    const struct database *database = context;
    struct inspection found = {0};
    const bool ok = inspect_file(database->path, "advice", &found, err);

    if (ok) {
        assert_int_equal(found.version, MIGRATION_COUNT);
        assert_true(found.complete);
        assert_int_equal(found.dangling_count, 0);
    }
    return say_what_may_pass(ok, err);
}

static void check_nothing_beside(void *context, bool ok)
{
    const struct database *database = context;

    (void)ok;
    assert_int_not_equal(access(scratch_path(database->folder, "needled.db-wal"), F_OK), 0);
    assert_int_not_equal(access(scratch_path(database->folder, "needled.db-shm"), F_OK), 0);
}

static bool open_and_close(void *context, struct error *err)
{
    const struct database *database = context;
    struct store *store = NULL;
    const bool ok = store_open(database->path, true, &store, err);

    store_close(store);
    return say_what_may_pass(ok, err);
}

static void check_all_jobs(void *context, bool ok)
{
    const struct database *database = context;
    const struct jobs_filter all = {0};
    struct store *store = NULL;
    int64_t count = 0;

    (void)ok;
    CHECK(store_open(database->path, true, &store, &fault));
    CHECK(jobs_count(store, &all, &count, &fault));
    assert_int_equal(count, JOBS);
    store_close(store);
}

static void a_database_that_there_is_no_memory_to_read_is_called_no_other_thing(void **state)
{
    struct database *database = *state;

    if (!allocations_can_fail)
        skip();
    insert_jobs(database->store);
    store_close(database->store);
    database->store = NULL;
    for (allocations_in_a_row = 1; allocations_in_a_row <= 100; allocations_in_a_row += 99)
        allocations_fail_each(look, check_nothing_beside, database, 1);
    allocations_in_a_row = 1;
    allocations_fail_each(open_and_close, check_all_jobs, database, 7);
}

/* ---- through one connection, which lives on ------------------------------------------------------------ */

struct inserting {
    struct store *store;
    char id[STORE_ID_SIZE];
    int round;
};

static bool insert_one(void *context, struct error *err)
{
    static const struct event_draft event = {.type = "state", .message = "queued"};
    struct inserting *inserting = context;
    struct job_record job = {.base_model = "needle-3", .created_unix_s = 1000};

    (void)snprintf(inserting->id, sizeof(inserting->id), "ftjob-%d", ++inserting->round);
    (void)snprintf(job.id, sizeof(job.id), "%s", inserting->id);
    return jobs_insert(inserting->store, &job, &event, err);
}

/* The job is there with its event or neither is, and the connection takes the next write. */
static void check_one(void *context, bool ok)
{
    const struct inserting *inserting = context;
    struct event_record *events = NULL;
    struct job_record job = {0};
    struct error err = {0};
    char before[SETTING_VALUE_SIZE];
    size_t count = 0;

    assert_int_equal(jobs_get(inserting->store, inserting->id, &job, &err), ok);
    if (ok)
        job_record_release(&job);
    CHECK(events_since(inserting->store, inserting->id, 0, 10, &events, &count, &fault));
    assert_int_equal(count, ok);
    events_free(events, count);
    CHECK(settings_exchange(inserting->store, "last", inserting->id, before, &fault));
}

/* All of them or a failure: never fewer. */
static bool list_all(void *context, struct error *err)
{
    const struct jobs_filter wanted = {.states = ",validating_files,"};
    const struct store_page page = {.after = "", .limit = 2 * JOBS};
    const struct inserting *inserting = context;
    struct job_record *jobs = NULL;
    size_t count = 0;
    bool has_more = false;

    if (!jobs_list(inserting->store, &wanted, &page, &jobs, &count, &has_more, err))
        return false;
    assert_int_equal(count, JOBS);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(jobs[i].base_model, "needle-3");
        job_record_release(&jobs[i]);
    }
    free(jobs);
    return true;
}

static void a_write_is_kept_whole_or_not_at_all_and_the_next_one_works(void **state)
{
    const struct database *database = *state;
    struct inserting inserting = {.store = database->store};

    if (!allocations_can_fail)
        skip();
    for (allocations_in_a_row = 1; allocations_in_a_row <= 100; allocations_in_a_row += 99)
        allocations_fail_each(insert_one, check_one, &inserting, 1);
    allocations_in_a_row = 1;
}

static void a_listing_has_all_or_says_that_there_is_no_memory(void **state)
{
    const struct database *database = *state;
    struct inserting inserting = {.store = database->store};

    if (!allocations_can_fail)
        skip();
    insert_jobs(database->store);
    allocations_fail_each(list_all, NULL, &inserting, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, database_set_up, database_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_database_that_there_is_no_memory_to_read_is_called_no_other_thing),
        TEST(a_write_is_kept_whole_or_not_at_all_and_the_next_one_works),
        TEST(a_listing_has_all_or_says_that_there_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

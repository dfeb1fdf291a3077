/* Proves: a finished job keeps so many of its metrics, evenly and with their numbers, and all its other events;
 * whoever pages or streams on from what is gone goes on at its place; the log stays short while readers
 * never pause; a job costs what is said. */
#include "store/upkeep.h"
#include "store/deliveries.h"
#include "store/events.h"
#include "store/files.h"
#include "store/jobs.h"
#include "store/sql.h"
#include "store/wal.h"
#include "store/webhooks.h"
#include "tests/support/database.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define BATCH 500
#define READERS 4
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOG_EVENTS 30000 /* these look at other things */
#else
#define LOG_EVENTS 100000
#endif

static const char metrics_json[] =
    "{\"step\":123456,\"total_steps\":1000000,\"epoch\":1.234567,\"train_loss\":0.123456789,"
    "\"train_mean_token_accuracy\":0.987654321,\"learning_rate\":0.00012345678,"
    "\"grad_norm\":1.23456789,\"tokens\":12345,\"tokens_per_second\":12345.6,"
    "\"elapsed_ms\":1234567}";

static int64_t ask(struct store *store, const char *text)
{
    sqlite3_stmt *statement = NULL;
    int64_t number;

    if (sqlite3_prepare_v2(store->db, text, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(store->db));
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return number;
}

static void append(struct store *store, const char *id, const char *type, int64_t count)
{
    struct event_draft drafts[BATCH];

    for (size_t i = 0; i < BATCH; i++)
        drafts[i] = (struct event_draft){
            .type = type, .message = "step 123456: loss 0.1235", .data_json = metrics_json};
    for (; count > 0; count -= BATCH)
        CHECK(events_append(store, id, drafts, count < BATCH ? (size_t)count : BATCH, 1, 1, 0.5,
                            &fault));
}

static void begin_job(struct store *store, const char *id)
{
    struct job_record job = {.base_model = "needle-3", .created_unix_s = 1000};
    const struct event_draft event = {.type = "message", .message = "created"};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    CHECK(jobs_insert(store, &job, &event, &fault));
    CHECK(jobs_move(store, id, JOB_VALIDATING_FILES, JOB_QUEUED, NULL, NULL, 0, &fault));
    CHECK(jobs_move(store, id, JOB_QUEUED, JOB_RUNNING, NULL, NULL, 0, &fault));
}

static void end_job(struct store *store, const char *id, bool with_result)
{
    struct file_record file = {.purpose = "fine-tune-results"};
    struct job_change change = JOB_CHANGE_NONE;
    const struct event_draft event = {.type = "done", .message = "over"};

    (void)snprintf(file.id, sizeof(file.id), "file-%s", id);
    change.result_file = with_result ? &file : NULL;
    CHECK(jobs_move(store, id, JOB_RUNNING, JOB_SUCCEEDED, &change, &event, 1, &fault));
}

static void thin(struct store *store, int64_t metrics_max, int64_t until)
{
    struct upkeep upkeep = {0};
    bool more = true;

    for (int turns = 0; more; turns++) {
        CHECK(upkeep_thin(store, &upkeep, metrics_max, until, &more, &fault));
        assert_true(turns < 1000);
    }
}

static struct event_record *events_of(struct store *store, const char *id, size_t *ret_count)
{
    struct event_record *events = NULL;

    CHECK(events_since(store, id, 0, 1000000, &events, ret_count, &fault));
    return events;
}

/* ---- thinning ----------------------------------------------------------------------------------- */

static void metrics_of_a_finished_job_are_thinned_evenly(void **state)
{
    struct database *database = *state;
    struct store *store = database->store;
    struct event_record *events;
    size_t count = 0, metrics = 0, others = 0;
    int64_t before = 0, widest = 0;

    begin_job(store, "ftjob-1");
    for (int i = 0; i < 12; i++) { /* over several steps of thinning */
        append(store, "ftjob-1", "metrics", 1000);
        append(store, "ftjob-1", "validation", 1);
    }
    end_job(store, "ftjob-1", true);
    thin(store, 100, INT64_MAX);

    events = events_of(store, "ftjob-1", &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(events[i].type, "metrics") != 0) {
            others++;
            continue;
        }
        if (before > 0 && events[i].number - before > widest)
            widest = events[i].number - before;
        before = events[i].number;
        metrics++;
    }
    assert_in_range(metrics, 95, 100);
    assert_int_equal(others, 1 + 12 + 1);
    assert_in_range(widest, 1, 2 * 12012 / 99);
    assert_int_equal(events[1].number, 2); /* the first step, */
    assert_string_equal(events[1].type, "metrics");
    assert_int_equal(before, 1 + 12 * 1001 - 1); /* and the last */
    assert_string_equal(events[count - 1].type, "done");
    events_free(events, count);

    thin(store, 100, INT64_MAX); /* again: nothing more */
    assert_int_equal(ask(store, "SELECT count(*) FROM events"), (int64_t)count);
    thin(store, 10, INT64_MAX); /* fewer are wanted now */
    assert_in_range(ask(store, "SELECT count(*) FROM events WHERE type = 'metrics'"), 9, 10);
}

static void metrics_that_are_needed_stay(void **state)
{
    struct database *database = *state;
    struct store *store = database->store;

    begin_job(store, "ftjob-running");
    append(store, "ftjob-running", "metrics", 100);
    begin_job(store, "ftjob-plain"); /* its steps are in no file */
    append(store, "ftjob-plain", "metrics", 100);
    end_job(store, "ftjob-plain", false);
    begin_job(store, "ftjob-few");
    append(store, "ftjob-few", "metrics", 10);
    end_job(store, "ftjob-few", true);
    begin_job(store, "ftjob-late");
    append(store, "ftjob-late", "metrics", 100);
    end_job(store, "ftjob-late", true);
    thin(store, 10, 1); /* none has ended so long ago */
    assert_int_equal(ask(store, "SELECT count(*) FROM events WHERE type = 'metrics'"), 310);
    thin(store, 10, INT64_MAX);
    assert_in_range(ask(store, "SELECT count(*) FROM events WHERE type = 'metrics'"), 219, 220);
    assert_int_equal(ask(store, "SELECT count(*) FROM events WHERE type = 'metrics' AND job_id IN"
                                " ('ftjob-running', 'ftjob-plain')"),
                     200);
}

/* ---- going on from what is gone ----------------------------------------------------------------- */

static void an_event_that_is_gone_keeps_its_place(void **state)
{
    struct database *database = *state;
    struct store *store = database->store;
    struct event_record *events, *found = NULL;
    struct error err = {0};
    size_t count = 0, kept = 0, found_count = 0;
    int64_t number = 0;

    begin_job(store, "ftjob-other");
    begin_job(store, "ftjob-1");
    append(store, "ftjob-1", "metrics", 200);
    end_job(store, "ftjob-1", true);
    events = events_of(store, "ftjob-1", &count);
    thin(store, 10, INT64_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct events_filter filter = {"ftjob-1", ""};
        struct store_page page = {.limit = 1};
        char id[32], text[128];
        bool more = false;

        (void)snprintf(id, sizeof(id), "ftevent-%lld", (long long)events[i].row);
        CHECK(events_resolve(store, "ftjob-1", id, &number, &fault));
        (void)snprintf(text, sizeof(text), "SELECT count(*) FROM events WHERE row = %lld",
                       (long long)events[i].row);
        kept += (size_t)ask(store, text);

        /* A stream's next one is newer, a page's next one older: the nearest there is. */
        CHECK(events_since(store, "ftjob-1", number, 1, &found, &found_count, &fault));
        (void)snprintf(text, sizeof(text),
                       "SELECT coalesce(min(number), 0) FROM events WHERE job_id = 'ftjob-1' AND"
                       " row > %lld",
                       (long long)events[i].row);
        assert_int_equal(found_count == 1 ? found[0].number : 0, ask(store, text));
        events_free(found, found_count);
        page.after = id;
        CHECK(events_list(store, &filter, &page, &found, &found_count, &more, &fault));
        (void)snprintf(text, sizeof(text),
                       "SELECT coalesce(max(number), 0) FROM events WHERE job_id = 'ftjob-1' AND"
                       " row < %lld",
                       (long long)events[i].row);
        assert_int_equal(found_count == 1 ? found[0].number : 0, ask(store, text));
        events_free(found, found_count);
    }
    assert_in_range(kept, 11, 13); /* most of them were gone */
    events_free(events, count);
    assert_false(events_resolve(store, "ftjob-1", "ftevent-1", &number, &err)); /* another job's */
    assert_false(events_resolve(store, "ftjob-1", "ftevent-100000", &number, &err));
}

/* As a program does that deletes each file of a list while it reads on. */
static void a_list_can_be_emptied_while_it_is_paged(void **state)
{
    struct database *database = *state;
    const struct files_filter all = {NULL, NULL};

    for (int ascending = 0; ascending < 2; ascending++) {
        struct store_page page = {.after = "", .limit = 3, .ascending = ascending};
        struct file_record file = {.purpose = "fine-tune"};
        char after[STORE_ID_SIZE] = "";
        size_t deleted = 0;
        bool more = true;

        for (int i = 0; i < 20; i++) {
            (void)snprintf(file.id, sizeof(file.id), "file-%d", i);
            file.created_unix_s = 1000 + i / 5;
            CHECK(files_insert(database->store, &file, NULL, &fault));
        }
        while (more) {
            struct file_record *files = NULL;
            size_t count = 0;

            page.after = after;
            CHECK(files_list(database->store, &all, &page, &files, &count, &more, &fault));
            for (size_t i = 0; i < count; i++) {
                CHECK(files_delete(database->store, files[i].id, &fault));
                (void)snprintf(after, sizeof(after), "%s", files[i].id);
                deleted++;
            }
            free(files);
        }
        assert_int_equal(deleted, 20);
    }
}

static void places_of_the_deleted_are_forgotten(void **state)
{
    struct database *database = *state;
    struct store_page page = {.after = "we-1", .limit = 3};
    struct webhook_record webhook = {.id = "we-1", .url = "http://a", .types = ",a,"};
    struct webhook_record *webhooks = NULL;
    struct error err = {0};
    size_t count = 0;
    bool more = false;

    CHECK(webhooks_insert(database->store, &webhook, 10, &fault));
    CHECK(webhooks_delete(database->store, "we-1", &fault));
    CHECK(upkeep_forget(database->store, 1000, &fault));
    CHECK(webhooks_list(database->store, NULL, &page, &webhooks, &count, &more, &fault));
    assert_int_equal(count, 0);
    CHECK(upkeep_forget(database->store, INT64_MAX, &fault));
    assert_false(webhooks_list(database->store, NULL, &page, &webhooks, &count, &more, &err));
    assert_string_equal(err.param, "after");
}

static void deliveries_do_not_wait_for_ever_for_a_webhook_that_is_off(void **state)
{
    struct database *database = *state;
    struct store *store = database->store;
    bool changed = false;

    for (int i = 0; i < 2; i++) {
        struct webhook_record webhook = {
            .url = "http://a", .types = ",fine_tuning.job.succeeded,", .all_jobs = true};

        (void)snprintf(webhook.id, sizeof(webhook.id), "we-%d", i);
        CHECK(webhooks_insert(store, &webhook, 10, &fault));
    }
    begin_job(store, "ftjob-1");
    end_job(store, "ftjob-1", false);
    CHECK(webhooks_switch_off(store, "we-0", "http://a", &changed, &fault));
    assert_int_equal(ask(store, "SELECT count(*) FROM deliveries"), 2);
    CHECK(deliveries_sweep(store, 1000, &fault)); /* both are newer */
    assert_int_equal(ask(store, "SELECT count(*) FROM deliveries"), 2);
    CHECK(deliveries_sweep(store, INT64_MAX, &fault));
    assert_int_equal(ask(store, "SELECT count(*) FROM deliveries WHERE webhook_id = 'we-1'"), 1);
    assert_int_equal(ask(store, "SELECT count(*) FROM deliveries"), 1);
}

/* Whoever sees that the receiver is gone finds its webhook off. */
static void a_receiver_that_is_gone_is_kept_with_its_webhook_off_or_not_at_all(void **state)
{
    struct database *database = *state;
    struct store *store = database->store;
    struct webhook_record webhook = {.id = "we-0",
                                     .url = "http://a",
                                     .types = ",fine_tuning.job.succeeded,",
                                     .all_jobs = true,
                                     .enabled = true};
    struct delivery_record *deliveries = NULL;
    size_t count = 0;
    bool more, switched_off = false;
    struct error err = {0};

    CHECK(webhooks_insert(store, &webhook, 10, &fault));
    begin_job(store, "ftjob-1");
    end_job(store, "ftjob-1", false);
    CHECK(deliveries_list(store, "we-0", 10, &deliveries, &count, &more, &fault));
    assert_int_equal(count, 1);
    deliveries[0].last_status = 410;
    assert_int_equal(sqlite3_exec(store->db,
                                  "CREATE TEMP TRIGGER refuse BEFORE UPDATE OF enabled ON webhooks"
                                  " BEGIN SELECT raise(FAIL, 'refused'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_false(deliveries_update_gone(store, &deliveries[0], "http://a", &switched_off, &err));
    assert_int_equal(ask(store, "SELECT last_status FROM deliveries"), 0);
    assert_int_equal(sqlite3_exec(store->db, "DROP TRIGGER refuse", NULL, NULL, NULL), SQLITE_OK);
    CHECK(deliveries_update_gone(store, &deliveries[0], "http://a", &switched_off, &fault));
    assert_true(switched_off);
    assert_int_equal(ask(store, "SELECT last_status FROM deliveries"), 410);
    assert_int_equal(ask(store, "SELECT enabled FROM webhooks"), 0);
    delivery_release(&deliveries[0]);
    free(deliveries);
}

/* ---- sizes -------------------------------------------------------------------------------------- */

struct reading {
    const char *path;
    atomic_bool stop;
    atomic_size_t event_count;
    atomic_int failure_count;
};

/* One read follows the other: at no moment is nobody reading. */
static void *read_on(void *context)
{
    struct reading *reading = context;
    struct store *store = NULL;
    struct error err = {0};
    int64_t after = 0;

    if (!store_open(reading->path, false, &store, &err))
        (void)atomic_fetch_add(&reading->failure_count, 1);
    while (store && !atomic_load(&reading->stop)) {
        struct event_record *events = NULL;
        size_t count = 0;

        if (!events_since(store, "ftjob-1", after, 64, &events, &count, &err)) {
            (void)atomic_fetch_add(&reading->failure_count, 1);
            break;
        }
        after = count > 0 ? events[count - 1].number : 0; /* at the end: from the beginning */
        (void)atomic_fetch_add(&reading->event_count, count);
        events_free(events, count);
    }
    store_close(store);
    return NULL;
}

static void the_log_stays_short_while_readers_never_pause(void **state)
{
    struct database *database = *state;
    struct reading reading = {.path = database->path};
    pthread_t readers[READERS];
    char log[4200];
    struct stat info;
    int64_t largest = 0;

    (void)snprintf(log, sizeof(log), "%s-wal", database->path);
    begin_job(database->store, "ftjob-1");
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, &reading), 0);
    for (int written = 0; written < LOG_EVENTS; written += BATCH) {
        append(database->store, "ftjob-1", "metrics", BATCH);
        assert_int_equal(stat(log, &info), 0);
        largest = info.st_size > largest ? info.st_size : largest;
    }
    atomic_store(&reading.stop, true);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i], NULL), 0);
    assert_int_equal(atomic_load(&reading.failure_count), 0);
    assert_true(atomic_load(&reading.event_count) > 0);
    if (largest > 2 * WAL_SOFT_BYTES) /* on a busy machine it may take several tries */
        fail_msg("the log had %lld bytes", (long long)largest);
}

/* A reader that stands still holds the log open; once it goes, the next commit cuts it. */
static void the_log_is_cut_once_a_long_read_has_ended(void **state)
{
    struct database *database = *state;
    sqlite3_stmt *statement = NULL;
    struct store *reader = NULL;
    char log[4200];
    struct stat info;

    (void)snprintf(log, sizeof(log), "%s-wal", database->path);
    begin_job(database->store, "ftjob-1");
    CHECK(store_open(database->path, false, &reader, &fault));
    assert_int_equal(sqlite3_prepare_v2(reader->db, "SELECT id FROM jobs", -1, &statement, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    for (int i = 0; i < 400; i++) { /* of which half do */
        append(database->store, "ftjob-1", "metrics", BATCH);
        assert_int_equal(stat(log, &info), 0);
        if (info.st_size > WAL_SOFT_BYTES + ((int64_t)1 << 20))
            break;
    }
    assert_true(info.st_size > WAL_SOFT_BYTES);
    (void)sqlite3_finalize(statement);
    database->store->log_wanted_pages = 0; /* else after a few more */
    append(database->store, "ftjob-1", "metrics", 1);
    assert_int_equal(stat(log, &info), 0);
    assert_true(info.st_size < WAL_SOFT_BYTES);
    store_close(reader);
}

/* The figures of upkeep.h. */
static void a_job_costs_what_is_said(void **state)
{
    struct database *database = *state;
    struct store *store = database->store;
    static char plan[600], hyper[300];
    int64_t before, rows, events;
    char id[32];

    memset(plan, 'p', sizeof(plan) - 1);
    memset(hyper, 'h', sizeof(hyper) - 1);
    before = ask(store, "SELECT page_count * 4096 FROM pragma_page_count");
    for (int i = 0; i < 500; i++) {
        struct job_record job = {.base_model = "needle-3",
                                 .created_unix_s = 1000,
                                 .plan_json = plan,
                                 .hyperparameters_json = hyper};

        (void)snprintf(job.id, sizeof(job.id), "ftjob-%024d", i);
        CHECK(jobs_insert(store, &job, NULL, &fault));
    }
    rows = ask(store, "SELECT page_count * 4096 FROM pragma_page_count");
    for (int i = 0; i < 20; i++) {
        (void)snprintf(id, sizeof(id), "ftjob-%024d", i);
        append(store, id, "metrics", 500);
    }
    events = ask(store, "SELECT page_count * 4096 FROM pragma_page_count");
    if ((rows - before) / 500 > 2000 || (events - rows) / 10000 > 550)
        fail_msg("%lld bytes a job, %lld an event", (long long)(rows - before) / 500,
                 (long long)(events - rows) / 10000);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, database_set_up, database_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(metrics_of_a_finished_job_are_thinned_evenly),
        CASE(metrics_that_are_needed_stay),
        CASE(an_event_that_is_gone_keeps_its_place),
        CASE(a_list_can_be_emptied_while_it_is_paged),
        CASE(places_of_the_deleted_are_forgotten),
        CASE(deliveries_do_not_wait_for_ever_for_a_webhook_that_is_off),
        CASE(a_receiver_that_is_gone_is_kept_with_its_webhook_off_or_not_at_all),
        CASE(the_log_stays_short_while_readers_never_pause),
        CASE(the_log_is_cut_once_a_long_read_has_ended),
        CASE(a_job_costs_what_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

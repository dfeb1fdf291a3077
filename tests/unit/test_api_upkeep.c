/* Proves that the server thins what the database keeps of a job that ended long ago, and that whoever goes on
 * from an event that is there no more goes on at its place; and that one backup is made at a time. */
#include "tests/support/api_daemon.h"

#include "api/stores.h"
#include "daemon/base/json.h"

#include <time.h>

#define KEPT 20
#define STEPS 200
#define PATIENCE_S 120

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.metrics_kept = KEPT});
    return 0;
}

static void must(bool ok, const struct error *err)
{
    api_daemon_must(ok, err);
}

static void make_job(void)
{
    struct job_record job = {.id = "ftjob-1", .base_model = "needle-3", .created_unix_s = 1000};
    struct file_record file = {.id = "file-steps", .purpose = "fine-tune-results"};
    struct job_change change = JOB_CHANGE_NONE;
    const struct event_draft done = {.type = "done", .message = "over"};
    struct event_draft steps[STEPS];
    struct error err = {0};

    for (size_t i = 0; i < STEPS; i++)
        steps[i] = (struct event_draft){
            .type = "metrics", .message = "a step", .data_json = "{\"step\":1}"};
    change.result_file = &file;
    must(jobs_insert(d.store, &job, NULL, &err), &err);
    must(jobs_move(d.store, job.id, JOB_VALIDATING_FILES, JOB_QUEUED, NULL, NULL, 0, &err), &err);
    must(jobs_move(d.store, job.id, JOB_QUEUED, JOB_RUNNING, NULL, NULL, 0, &err), &err);
    must(events_append(d.store, job.id, steps, STEPS, 1, 1, 0.5, &err), &err);
    must(jobs_move(d.store, job.id, JOB_RUNNING, JOB_SUCCEEDED, &change, &done, 1, &err), &err);
}

static size_t page(const char *path, char *ret_last, size_t capacity)
{
    struct web_answer answer;
    struct json *root = NULL;
    size_t count = 0;

    web_call(d.port, "GET", path, &answer);
    if (answer.status != 200)
        fail_msg("%s: %d %s", path, answer.status, answer.body);
    assert_true(json_parse(answer.body, strlen(answer.body), &root, NULL));
    count = json_count(json_member(root, "data"));
    if (ret_last && count > 0)
        (void)snprintf(ret_last, capacity, "%s", json_text(json_member(root, "last_id")));
    json_free(root);
    web_release(&answer);
    return count;
}

static void a_job_that_ended_long_ago_is_thinned(void **state)
{
    static const char all[] = "/v1/fine_tuning/jobs/ftjob-1/events?limit=1000";
    const struct timespec pause = {.tv_nsec = 50000000};
    const time_t end = time(NULL) + PATIENCE_S;
    char middle[64] = "", path[256];

    (void)state;
    make_job();
    assert_int_equal(page("/v1/fine_tuning/jobs/ftjob-1/events?limit=90", middle, sizeof(middle)),
                     90);
    assert_int_equal(page(all, NULL, 0), STEPS + 1);
    api_daemon_change(&d, "UPDATE jobs SET finished_unix_s = finished_unix_s - 3700");
    while (page(all, NULL, 0) > KEPT + 1) {
        assert_true(time(NULL) < end);
        (void)nanosleep(&pause, NULL);
    }
    assert_in_range(page(all, NULL, 0), KEPT - 1, KEPT + 1);

    /* The page after the 90 newest holds about as much of the rest as there was: 111 of 201. */
    (void)snprintf(path, sizeof(path), "%s&after=%s", all, middle);
    assert_in_range(page(path, NULL, 0), 9, 13);
}

static void one_backup_is_made_at_a_time(void **state)
{
    struct stores *stores = stores_new(d.database);
    struct web_answer answer;
    struct error err = {0};

    (void)state;
    assert_non_null(stores);
    must(stores_begin_copy(stores, &err), &err);
    assert_false(stores_begin_copy(stores, &err));
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    stores_end_copy(stores);
    must(stores_begin_copy(stores, &err), &err);
    stores_end_copy(stores);
    stores_free(stores);

    for (int i = 0; i < 2; i++) { /* the one before has ended, whether it went well or not */
        web_call(d.port, "GET", "/v1/backup", &answer);
        assert_int_equal(answer.status, 200);
        assert_int_equal(strncmp(answer.body, "SQLite format 3", 15), 0);
        assert_string_equal(web_header(&answer, "Content-Type"), "application/vnd.sqlite3");
        web_release(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_ended_long_ago_is_thinned),
        cmocka_unit_test(one_backup_is_made_at_a_time),
    };

    return cmocka_run_group_tests(tests, open_it, api_daemon_tear_down);
}

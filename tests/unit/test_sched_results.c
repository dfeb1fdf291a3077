/* Proves: a job that succeeds leaves its steps as plain CSV with the numbers of its events, a step that was
 * made twice counts once, what was not computed is empty, and other ends leave no such file. */
#include "daemon/base/file.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/results.h"
#include "tests/support/bench.h"
#include "tests/support/scratch.h"

#include <unistd.h>

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

static int set_up(void **state)
{
    *state = bench_new();
    return 0;
}

static int tear_down(void **state)
{
    bench_free(*state);
    return 0;
}

/* The text of a stored file, for the caller to free. */
static char *read_file(struct bench *bench, const char *id, struct file_record *ret_file)
{
    char path[1024], sha256[SHA256_HEX_SIZE];
    size_t size = 0;
    char *text;

    CHECK(files_get(bench->store, id, ret_file, &fault));
    CHECK(dataset_path(path, sizeof(path), bench->state, id, &fault));
    CHECK(file_sha256(path, sha256, &fault));
    text = scratch_read(path, &size);
    assert_int_equal(size, ret_file->size_bytes);
    assert_string_equal(sha256, ret_file->sha256);
    text = realloc(text, size + 1);
    assert_non_null(text);
    text[size] = '\0';
    return text;
}

static void a_job_that_succeeds_leaves_its_steps(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE], *text, *line, *rest;
    struct file_record file;
    struct job_record job;
    size_t rows = 0;

    bench_submit_small(bench, bench_upload_lines(bench, 12),
                       "'n_epochs':2,'batch_size':4,'val_split':0.25", id);
    assert_int_equal(bench_wait(bench, id, JOB_STATE_COUNT), JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_string_not_equal(job.result_file, "");
    text = read_file(bench, job.result_file, &file);
    assert_string_equal(file.purpose, "fine-tune-results");
    assert_int_equal(file.line_count, 7);
    rest = text;
    line = strsep(&rest, "\n");
    assert_string_equal(line,
                        "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy,"
                        "train_mean_token_accuracy,validation_mean_token_accuracy,full_valid_loss,"
                        "full_valid_mean_token_accuracy");
    while ((line = strsep(&rest, "\n")) && *line) {
        char *cells = line, *cell[16] = {0};
        size_t count = 0;
        bool epoch_ends = ++rows % 3 == 0;

        while (count < COUNT_OF(cell) && (cell[count] = strsep(&cells, ",")))
            count++;
        assert_int_equal(count, 9);
        assert_int_equal(strtoul(cell[0], NULL, 10), rows);
        assert_true(cell[1][0] && cell[2][0]);
        assert_string_equal(cell[2], cell[5]); /* two names of one number */
        assert_true(!cell[3][0] && !cell[4][0] && !cell[6][0]);
        assert_int_equal(cell[7][0] != '\0', epoch_ends);
        assert_int_equal(cell[8][0] != '\0', epoch_ends);
        if (rows == 6)
            assert_true(strtod(cell[1], NULL) == job.last_train_loss);
    }
    assert_int_equal(rows, 6);
    free(text);
    job_record_release(&job);
}

static void other_ends_leave_none(void **state)
{
    struct bench *bench = *state;
    char failed[STORE_ID_SIZE], cancelled[STORE_ID_SIZE];
    const char *const ids[] = {failed, cancelled};

    hold_steps(3);
    bench_submit_small(bench, bench_upload_lines(bench, 40), "'n_epochs':50,'batch_size':2",
                       cancelled);
    bench_wait_event(bench, cancelled, "metrics", 0);
    CHECK(scheduler_cancel(bench->scheduler, cancelled, &fault));
    hold_let_go();
    bench_submit_small(bench, bench_upload_lines(bench, 4), "'max_len':3", failed);
    assert_int_equal(bench_wait(bench, failed, JOB_STATE_COUNT), JOB_FAILED);
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        struct job_record job;

        bench_get(bench, ids[i], &job);
        assert_string_equal(job.result_file, "");
        job_record_release(&job);
    }
}

static void add_step(struct bench *bench, const char *job, const char *type, const char *data)
{
    const struct event_draft event = {EVENT_INFO, type, "x", data, 0};

    CHECK(events_append(bench->store, job, &event, 1, -1, 0, 0, &fault));
}

static void a_step_made_twice_counts_once_and_what_is_no_number_is_empty(void **state)
{
    static const char wanted[] = "1,1.5,0.25,,,0.25,,,\n"
                                 "2,1.0,,,,,,0.5,0.75\n"
                                 "10,0.0001,1.0,,,1.0,,,\n"
                                 "11,,,,,,,2.25,\n";
    struct bench *bench = *state;
    struct job_record job = {.id = "ftjob-Ab3", .base_model = "b", .device_wanted = "none"};
    struct file_record file, again;
    char path[1024], *text;
    size_t size = 0;

    bench_stop(bench); /* nobody else looks at the job */
    CHECK(jobs_insert(bench->store, &job, NULL, &fault));
    add_step(bench, job.id, "metrics",
             "{\"step\":1,\"train_loss\":9,\"train_mean_token_accuracy\":0}");
    add_step(bench, job.id, "metrics", "{\"step\":2,\"train_loss\":null}");
    add_step(bench, job.id, "message", "{\"step\":3,\"train_loss\":7}");
    add_step(bench, job.id, "metrics",
             "{\"step\":10,\"train_loss\":0.0001,\"train_mean_token_accuracy\":1}");
    add_step(bench, job.id, "metrics",
             "{\"step\":1,\"train_loss\":1.5,\"train_mean_token_accuracy\":0.25}");
    add_step(bench, job.id, "validation",
             "{\"step\":2,\"train_loss\":1,\"full_valid_loss\":0.5,"
             "\"full_valid_mean_token_accuracy\":0.75}");
    add_step(bench, job.id, "validation", "{\"step\":11,\"full_valid_loss\":2.25}");
    CHECK(results_write(bench->state, bench->store, &job, &file, &fault));
    CHECK(results_write(bench->state, bench->store, &job, &again, &fault));
    assert_string_equal(file.id, "file-Ab3");
    assert_string_equal(again.sha256, file.sha256);
    CHECK(dataset_path(path, sizeof(path), bench->state, file.id, &fault));
    text = scratch_read(path, &size);
    assert_int_equal(size, strlen(RESULTS_HEADER) + strlen(wanted));
    assert_memory_equal(text, RESULTS_HEADER, strlen(RESULTS_HEADER));
    assert_memory_equal(text + strlen(RESULTS_HEADER), wanted, strlen(wanted));
    free(text);
    results_remove(bench->state, &file);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_job_of_many_steps_is_written_in_pieces(void **state)
{
    struct bench *bench = *state;
    struct job_record job = {.id = "ftjob-many", .base_model = "b", .device_wanted = "none"};
    struct file_record file;
    struct error err = {0};
    char path[1024], *text, *at, *rest;
    size_t size = 0, rows = 0;

    bench_stop(bench);
    CHECK(jobs_insert(bench->store, &job, NULL, &fault));
    for (int step = 1; step <= 4000; step++) {
        char data[128];

        (void)snprintf(data, sizeof(data),
                       "{\"step\":%d,\"train_loss\":0.12345678901234567,"
                       "\"train_mean_token_accuracy\":0.3333333333333333}",
                       step);
        add_step(bench, job.id, "metrics", data);
    }
    CHECK(results_write(bench->state, bench->store, &job, &file, &fault));
    assert_int_equal(file.line_count, 4001);
    CHECK(dataset_path(path, sizeof(path), bench->state, file.id, &fault));
    text = scratch_read(path, &size);
    rest = text + strlen(RESULTS_HEADER);
    while (rest < text + size) {
        char wanted[128];

        (void)snprintf(wanted, sizeof(wanted),
                       "%zu,0.12345678901234566,0.3333333333333333,,,0.3333333333333333,,,\n",
                       ++rows);
        at = rest;
        rest += strlen(wanted);
        assert_memory_equal(at, wanted, strlen(wanted));
    }
    assert_int_equal(rows, 4000);
    free(text);
    assert_false(results_write("/nowhere", bench->store, &job, &file, &err));
    assert_non_null(strstr(err.message, "/nowhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(a_job_that_succeeds_leaves_its_steps),
        TEST(other_ends_leave_none),
        TEST(a_step_made_twice_counts_once_and_what_is_no_number_is_empty),
        TEST(a_job_of_many_steps_is_written_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves: where it is set, several jobs run on one device at once, each with the result it would have
 * alone, through a cancel of one of them, a stop and a start. */
#include "store/models.h"
#include "tests/support/bench.h"

#define LONG "'n_epochs':50,'batch_size':1" /* of 40 lines: nobody waits for its end */
#define SHORT "'n_epochs':1,'batch_size':4" /* 3 steps of 12 lines */

static int set_up(void **state)
{
    struct bench *bench = bench_new();

    /* Starts again with room for two, and a thread for each whatever this machine has. */
    bench_stop(bench);
    bench->options.jobs_per_device = 2;
    bench->devices.items[0].thread_count = 2;
    bench_start(bench);
    *state = bench;
    return 0;
}

static int tear_down(void **state)
{
    bench_free(*state);
    return 0;
}

static void check_state(struct bench *bench, const char *id, enum job_state state,
                        const char *reason)
{
    struct job_record job;

    bench_get(bench, id, &job);
    assert_int_equal(job.state, state);
    assert_string_equal(job.state_reason, reason);
    job_record_release(&job);
}

static void start_two(struct bench *bench, char ids[2][STORE_ID_SIZE])
{
    const char *file = bench_upload_lines(bench, 40);

    hold_steps(3);
    for (size_t i = 0; i < 2; i++) {
        bench_submit_small(bench, file, LONG, ids[i]);
        bench_wait_event(bench, ids[i], "metrics", 0);
    }
    for (size_t i = 0; i < 2; i++)
        check_state(bench, ids[i], JOB_RUNNING, "");
}

static void cancel(struct bench *bench, const char *id)
{
    struct error err = {0};

    if (!scheduler_cancel(bench->scheduler, id, &err))
        fail_msg("%s", err.message);
}

static void two_jobs_run_at_once_and_a_third_takes_the_place_of_one(void **state)
{
    struct bench *bench = *state;
    char ids[2][STORE_ID_SIZE], third[STORE_ID_SIZE];

    start_two(bench, ids);
    bench_submit_small(bench, bench_upload_lines(bench, 12), SHORT, third);
    bench_wait(bench, third, JOB_QUEUED);
    bench_wait_reason(bench, third, "waits for a device: cpu:0 is busy");
    cancel(bench, ids[1]);
    hold_let_go();
    bench_wait(bench, third, JOB_SUCCEEDED);
    check_state(bench, ids[0], JOB_RUNNING, "");
    cancel(bench, ids[0]);
}

static void both_go_on_after_a_stop(void **state)
{
    struct bench *bench = *state;
    char ids[2][STORE_ID_SIZE];

    start_two(bench, ids);
    bench_stop(bench);
    for (size_t i = 0; i < 2; i++)
        check_state(bench, ids[i], JOB_QUEUED, "");
    hold_let_go();
    bench_start(bench);
    for (size_t i = 0; i < 2; i++)
        (void)bench_wait_event(bench, ids[i], "metrics",
                               bench_wait_event(bench, ids[i], "state", 0));
    for (size_t i = 0; i < 2; i++) {
        bench_wait(bench, ids[i], JOB_RUNNING);
        cancel(bench, ids[i]);
        assert_int_equal(bench_count_events(bench, ids[i], NULL, "The daemon stopped"), 1);
    }
}

static void a_job_beside_another_ends_as_it_does_alone(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, 12);
    struct model_record models[3];
    struct error err = {0};
    char ids[3][STORE_ID_SIZE];

    bench_submit_small(bench, file, SHORT, ids[0]);
    bench_wait(bench, ids[0], JOB_SUCCEEDED);
    for (size_t i = 1; i < 3; i++)
        bench_submit_small(bench, file, SHORT, ids[i]);
    for (size_t i = 0; i < 3; i++) {
        struct job_record job;

        bench_wait(bench, ids[i], JOB_SUCCEEDED);
        bench_get(bench, ids[i], &job);
        if (!models_get(bench->store, job.fine_tuned_model, &models[i], &err))
            fail_msg("%s", err.message);
        job_record_release(&job);
        assert_string_equal(models[i].sha256, models[0].sha256);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_jobs_run_at_once_and_a_third_takes_the_place_of_one),
        TEST(both_go_on_after_a_stop),
        TEST(a_job_beside_another_ends_as_it_does_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

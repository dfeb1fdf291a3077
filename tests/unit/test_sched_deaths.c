/*
 * deaths: which jobs the daemon's death is held against, when they are failed, and who runs alone.
 */
#include "daemon/sched/deaths.h"

#include "daemon/base/file.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/place.h"
#include "store/settings.h"
#include "tests/support/machine.h"

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

static int set_up(void **state)
{
    struct machine *machine = machine_new(2, 2);

    machine->options.crash_limit = 2;
    *state = machine;
    return 0;
}

static int tear_down(void **state)
{
    machine_free(*state);
    return 0;
}

/* A run of the job that has made so many steps, and kept a checkpoint at kept_step (-1: none). */
static void work(struct machine *machine, const char *id, int64_t step, int64_t kept_step)
{
    char folder[LIMIT_PATH_BYTES];
    struct train_job job = {.checkpoint_folder = folder, .checkpoint_interval_ns = 1000};
    struct place place;
    bool cleared;

    CHECK(jobfiles_find_checkpoints(machine->folder, id, folder, sizeof(folder), &fault));
    CHECK(file_make_folder(folder, &fault));
    CHECK(place_begin(&place, machine->store, id, &job, &fault));
    if (kept_step >= 0)
        CHECK(place_keep(&place, kept_step, 100, &cleared, &fault));
    place_note(&place, step);
    place_end(&place);
}

static void run_and_die(struct machine *machine, const char *id, int64_t step, int64_t kept_step)
{
    assert_string_equal(machine_take(machine, CPU), id);
    work(machine, id, step, kept_step);
    machine_restart(machine);
}

static struct attempt_record attempt_of(struct machine *machine, const char *id)
{
    struct attempt_record attempt;

    CHECK(attempts_get(machine->store, id, &attempt, &fault));
    return attempt;
}

static void check_failed(struct machine *machine, const char *id, const char *words)
{
    const struct job_record job = machine_get(machine, id);

    assert_int_equal(job.state, JOB_FAILED);
    assert_string_equal(job.error_code, "daemon_died");
    if (!strstr(job.error_message, words))
        fail_msg("'%s' is not in '%s'", words, job.error_message);
}

static void two_deaths_before_the_first_step_fail_the_job(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    machine_restart(machine);
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    assert_int_equal(machine_count_events(machine, "a", "(attempt 1, after step 0)"), 1);
    assert_string_equal(machine_take(machine, CPU), "a");
    machine_restart(machine);
    check_failed(machine, "a", "died 2 times in a row in the same place");
    assert_int_equal(machine_get(machine, "a").attempt_count, 2);
    machine_add_job(machine, "b", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "b"); /* the queue moves on */
}

static void two_deaths_at_one_step_fail_the_job_and_name_it(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    run_and_die(machine, "a", 57, -1);
    assert_int_equal(attempt_of(machine, "a").death_step, 57);
    run_and_die(machine, "a", 57, -1);
    check_failed(machine, "a", "(attempt 2, after step 57)");
}

static void deaths_far_from_one_another_are_not_counted_together(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    for (int64_t step = 10; step < 100; step += 10) {
        run_and_die(machine, "a", step, -1);
        assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
        assert_int_equal(attempt_of(machine, "a").death_count, 1);
    }
    run_and_die(machine, "a", 90 + DEATHS_NEAR, -1);
    check_failed(machine, "a", "in the same place");
}

/* Slow steps, killed from outside each time after a few. */
static void a_checkpoint_beyond_the_place_is_progress(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    run_and_die(machine, "a", 10, 9);
    for (int64_t step = 11; step < 30; step++) {
        run_and_die(machine, "a", step, step);
        assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    }
    run_and_die(machine, "a", 29, 28); /* but not one before it */
    check_failed(machine, "a", "in the same place");
}

static void a_stop_in_order_ends_the_suspicion(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    run_and_die(machine, "a", 10, -1);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_true(machine_end(machine, CPU, "a", OUTCOME_STOPPED, NULL));
    assert_int_equal(attempt_of(machine, "a").death_count, 0);
    run_and_die(machine, "a", 10, -1);
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
}

static void a_power_cut_is_held_against_no_job(void **state)
{
    struct machine *machine = *state;
    char before[SETTING_VALUE_SIZE];

    machine_add_job(machine, "a", "cpu", NULL);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(machine_take(machine, CPU), "a");
        CHECK(settings_exchange(machine->store, "machine", "0 of-before", before, &fault));
        machine_restart(machine);
        assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    }
    assert_int_equal(attempt_of(machine, "a").death_count, 0);
    assert_int_equal(machine_count_events(machine, "a", "The machine restarted while the job ran"),
                     5);
}

static void without_a_limit_a_job_is_started_for_ever(void **state)
{
    struct machine *machine = *state;

    machine->options.crash_limit = 0;
    machine_add_job(machine, "a", "cpu", NULL);
    for (int i = 0; i < 10; i++)
        run_and_die(machine, "a", 3, -1);
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    assert_int_equal(attempt_of(machine, "a").death_count, 10);
}

/* Of two that ran it is never known which of them did it, until one of them runs without the other. */
static void suspected_jobs_run_one_at_a_time(void **state)
{
    struct machine *machine = *state;
    const size_t other_slot = CPU + 1;

    machine_add_job(machine, "a", "cpu", NULL);
    machine_add_job(machine, "b", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_string_equal(machine_take(machine, other_slot), "b");
    machine_restart(machine);
    machine_add_job(machine, "c", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_string_equal(machine_take(machine, other_slot), "c");
    assert_non_null(strstr(machine_get(machine, "b").state_reason, "waits for job a to get on"));
    machine_restart(machine);
    check_failed(machine, "a", "in the same place");
    assert_int_equal(attempt_of(machine, "c").death_count, 0); /* it stood beside a suspect */
    assert_int_equal(machine_get(machine, "c").state, JOB_QUEUED);
    assert_string_equal(machine_take(machine, CPU), "b");
    assert_string_equal(machine_take(machine, other_slot), "c");
}

static void a_suspected_job_that_gets_on_lets_the_others_run(void **state)
{
    struct machine *machine = *state;
    const size_t other_slot = CPU + 1;

    machine_add_job(machine, "a", "cpu", NULL);
    machine_add_job(machine, "b", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_string_equal(machine_take(machine, other_slot), "b");
    machine_restart(machine);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_string_equal(machine_take(machine, other_slot), "");
    work(machine, "a", 1, 1);
    assert_string_equal(machine_take(machine, other_slot), "b");
}

static void a_suspected_job_keeps_checkpoints_sooner(void **state)
{
    struct machine *machine = *state;
    struct train_job job = {.checkpoint_folder = machine->folder,
                            .checkpoint_interval_ns = 1000 * DEATHS_HURRY};
    struct place place;

    machine_add_job(machine, "a", "cpu", NULL);
    CHECK(place_begin(&place, machine->store, "a", &job, &fault));
    place_end(&place);
    assert_false(job.checkpoint_soon);
    run_and_die(machine, "a", 5, -1);
    CHECK(place_begin(&place, machine->store, "a", &job, &fault));
    place_end(&place);
    assert_true(job.checkpoint_soon);
    assert_int_equal(job.checkpoint_interval_ns, 1000);
}

static void submit(struct machine *machine, const char *id)
{
    struct job_record job = {.base_model = "needle-3", .numerics = "w4a8", .created_unix_s = 1};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    CHECK(queue_submit(machine->queue, &job, &fault));
}

static void files_that_kill_their_reader_twice_fail_the_job(void **state)
{
    struct machine *machine = *state;
    char id[] = "a";

    submit(machine, id);
    CHECK(deaths_begin_reading(machine->queue, id, &fault));
    machine_restart(machine);
    assert_int_equal(machine_get(machine, id).state, JOB_VALIDATING_FILES);
    assert_int_equal(machine_count_events(machine, id, "while the job's files were read; they are"),
                     1);
    CHECK(deaths_begin_reading(machine->queue, id, &fault));
    machine_restart(machine);
    check_failed(machine, id, "while the job's files were read");
    assert_string_equal(machine_get(machine, id).error_param, "training_file");
}

static void files_that_were_read_or_left_in_order_are_not_suspected(void **state)
{
    struct machine *machine = *state;
    struct queue_verdict verdict = {.job_id = "a"};
    char id[] = "a", other[] = "b";

    submit(machine, id);
    CHECK(deaths_begin_reading(machine->queue, id, &fault));
    CHECK(queue_judge(machine->queue, &verdict, &fault));
    submit(machine, other);
    CHECK(deaths_begin_reading(machine->queue, other, &fault));
    CHECK(queue_stop(machine->queue, NULL, &fault));
    assert_false(deaths_begin_reading(machine->queue, other, &fault));
    assert_int_equal(fault.code, ERR_CANCELLED);
    machine_restart(machine);
    assert_int_equal(attempt_of(machine, id).death_count, 0);
    assert_int_equal(attempt_of(machine, other).death_count, 0);
    assert_int_equal(machine_count_events(machine, other, "daemon ended"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_deaths_before_the_first_step_fail_the_job),
        TEST(two_deaths_at_one_step_fail_the_job_and_name_it),
        TEST(deaths_far_from_one_another_are_not_counted_together),
        TEST(a_checkpoint_beyond_the_place_is_progress),
        TEST(a_stop_in_order_ends_the_suspicion),
        TEST(a_power_cut_is_held_against_no_job),
        TEST(without_a_limit_a_job_is_started_for_ever),
        TEST(suspected_jobs_run_one_at_a_time),
        TEST(a_suspected_job_that_gets_on_lets_the_others_run),
        TEST(a_suspected_job_keeps_checkpoints_sooner),
        TEST(files_that_kill_their_reader_twice_fail_the_job),
        TEST(files_that_were_read_or_left_in_order_are_not_suspected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

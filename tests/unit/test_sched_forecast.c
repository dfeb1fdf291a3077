/* Proves: what is said of a job's place, its start and its end, by the rule of forecast.h: from measured
 * rates and steps, a device a job, and unknown where something is not known. */
#include "daemon/base/clock.h"
#include "daemon/sched/estimate.h"
#include "daemon/sched/forecast.h"
#include "daemon/sched/request.h"
#include "store/rates.h"
#include "tests/support/machine.h"

#define PLAN "{\"training_data\":{\"tokens\":1000}}"
#define HYPER "{\"n_epochs\":2,\"val_split\":0.5,\"lora_rank\":8}"
#define TOLERANCE_S 1 /* a second may begin between two looks at the clock */

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

static int set_up(void **state)
{
    *state = machine_new(1, 1);
    return 0;
}

static int tear_down(void **state)
{
    machine_free(*state);
    return 0;
}

/* 1000 tokens, half of them held out, twice: 1000. */
static void add(struct machine *machine, const char *id, const char *device)
{
    char hyper[] = HYPER;
    struct job_record job = {.base_model = "needle-3",
                             .numerics = "w4a8",
                             .created_unix_s = 1,
                             .hyperparameters_json = hyper};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    (void)snprintf(job.device_wanted, sizeof(job.device_wanted), "%s", device);
    machine_add_record(machine, &job, PLAN);
}

static void set_rate(struct machine *machine, const char *device, double tokens_per_second)
{
    struct hyperparameters hyper;
    struct rate_record rate;

    CHECK(request_hyper_parse(HYPER, &hyper, &fault));
    estimate_rate_key(device, "needle-3", &hyper, &rate);
    rate.tokens_per_second = tokens_per_second;
    CHECK(rates_set(machine->store, &rate, &fault));
}

/* A step that the slot's job made so many seconds ago. */
static void make_step(struct machine *machine, size_t slot, int64_t number, int64_t total,
                      double ago_s, double seconds)
{
    const struct slot_step step = {.number = number,
                                   .total = total,
                                   .seconds = seconds,
                                   .at_ns = clock_monotonic_ns() - (int64_t)(ago_s * 1e9)};

    slots_note_step(&machine->queue->slots, slot, &step);
}

static struct job_outlook look(struct machine *machine, const char *id)
{
    struct job_outlook outlook;
    struct job_record job;

    CHECK(jobs_get(machine->store, id, &job, &fault));
    CHECK(forecast_jobs(machine->queue, machine->store, &job, 1, &outlook, &fault));
    job_record_release(&job);
    return outlook;
}

static void check_start(struct machine *machine, const char *id, int64_t position, double in_s)
{
    const struct job_outlook outlook = look(machine, id);
    const double wait_s = (double)(outlook.start_unix_s - clock_unix_s());

    assert_int_equal(outlook.finish_unix_s, 0);
    if (outlook.queue_position != position || wait_s < in_s - TOLERANCE_S ||
        wait_s > in_s + TOLERANCE_S)
        fail_msg("%s: place %d, in %g s; not place %d, in %g s", id, (int)outlook.queue_position,
                 wait_s, (int)position, in_s);
}

static void check_unknown(struct machine *machine, const char *id, int64_t position)
{
    const struct job_outlook outlook = look(machine, id);

    assert_int_equal(outlook.queue_position, position);
    assert_int_equal(outlook.start_unix_s, 0);
}

static void each_starts_when_those_before_it_on_the_device_have_ended(void **state)
{
    struct machine *machine = *state;

    set_rate(machine, "cpu:0", 10); /* 100 s a job */
    add(machine, "a", "cpu");
    add(machine, "b", "cpu");
    add(machine, "c", "cpu");
    check_start(machine, "a", 1, 0);
    check_start(machine, "b", 2, 100);
    check_start(machine, "c", 3, 200);
    assert_string_equal(machine_take(machine, CPU), "a");
    make_step(machine, CPU, 1, 41, 10, 3);
    make_step(machine, CPU, 11, 41, 0, 0.5); /* a second a step, with what is between them */
    assert_int_equal(look(machine, "a").queue_position, 0);
    assert_int_equal(look(machine, "a").start_unix_s, 0);
    assert_in_range(look(machine, "a").finish_unix_s, clock_unix_s() + 29, clock_unix_s() + 30);
    check_start(machine, "b", 1, 30);
    check_start(machine, "c", 2, 130);
}

static void the_first_step_tells_the_end_alone(void **state)
{
    struct machine *machine = *state;

    add(machine, "a", "cpu");
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_int_equal(look(machine, "a").finish_unix_s, 0); /* nothing is known yet */
    make_step(machine, CPU, 1, 11, 4, 5);
    assert_in_range(look(machine, "a").finish_unix_s, clock_unix_s() + 45, clock_unix_s() + 46);
    make_step(machine, CPU, 1, 11, 1000, 5); /* later than was thought: any moment */
    assert_in_range(look(machine, "a").finish_unix_s, clock_unix_s() - 1, clock_unix_s());
}

static void each_is_expected_on_the_device_that_comes_free_first(void **state)
{
    struct machine *machine = *state;

    set_rate(machine, "cuda:0", 20); /* 50 s */
    set_rate(machine, "cuda:1", 10); /* 100 s */
    set_rate(machine, "cpu:0", 100); /* 10 s, but auto is for a GPU */
    add(machine, "a", "cuda:1");
    add(machine, "b", "auto");
    add(machine, "c", "auto");
    add(machine, "d", "cuda:1");
    add(machine, "e", "cpu");
    check_start(machine, "a", 1, 0);
    check_start(machine, "b", 2, 0);
    check_start(machine, "c", 3, 50);
    check_start(machine, "d", 4, 100);
    check_start(machine, "e", 5, 0);
}

static void what_is_not_known_is_not_said(void **state)
{
    struct machine *machine = *state;

    add(machine, "a", "cpu"); /* no job has ended there: nothing is known of its end */
    add(machine, "b", "cpu");
    add(machine, "c", "cuda");
    check_start(machine, "a", 1, 0);
    check_unknown(machine, "b", 2);
    check_start(machine, "c", 3, 0);
    assert_string_equal(machine_take(machine, CPU), "a"); /* before its first step */
    check_unknown(machine, "b", 1);
    machine_set_service(machine, GPU0, "it is too hot");
    machine_set_service(machine, GPU1, "it is too hot");
    check_unknown(machine, "c", 2);
}

static void a_job_kept_from_a_free_device_has_no_start_and_holds_up_nobody(void **state)
{
    struct machine *machine = *state;
    char hyper[] = HYPER;
    struct job_record job = {.id = "a",
                             .base_model = "needle-3",
                             .device_wanted = "cpu",
                             .created_unix_s = 1,
                             .hyperparameters_json = hyper};

    machine_add_record(machine, &job, "{\"disk_bytes\":1000000000000000}");
    add(machine, "b", "cpu");
    check_unknown(machine, "a", 1);
    check_start(machine, "b", 2, 0);
}

static void a_part_that_was_made_is_not_counted_again(void **state)
{
    struct machine *machine = *state;
    struct job_change change = JOB_CHANGE_NONE;

    set_rate(machine, "cpu:0", 10);
    add(machine, "a", "cpu");
    add(machine, "b", "cpu");
    change.total_steps = 10;
    change.completed_steps = 4;
    CHECK(jobs_update(machine->store, "a", &change, NULL, 0, &fault));
    check_start(machine, "b", 2, 60);
}

static void a_job_that_ended_has_no_place(void **state)
{
    struct machine *machine = *state;
    char id[] = "a";

    add(machine, "a", "cpu");
    CHECK(queue_cancel(machine->queue, id, &fault));
    assert_int_equal(look(machine, "a").queue_position, 0);
    assert_int_equal(look(machine, "a").start_unix_s, 0);
    assert_int_equal(look(machine, "a").finish_unix_s, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_starts_when_those_before_it_on_the_device_have_ended),
        TEST(the_first_step_tells_the_end_alone),
        TEST(each_is_expected_on_the_device_that_comes_free_first),
        TEST(what_is_not_known_is_not_said),
        TEST(a_job_kept_from_a_free_device_has_no_start_and_holds_up_nobody),
        TEST(a_part_that_was_made_is_not_counted_again),
        TEST(a_job_that_ended_has_no_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

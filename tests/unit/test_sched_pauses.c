/* Proves: each state answers a pause and a resume as pauses.h says, a paused job goes on at its step to
 * the result of an unbroken run, also over a restart, and no job is ever on two workers. */
#include "daemon/base/file.h"
#include "daemon/sched/pauses.h"
#include "store/models.h"
#include "tests/support/bench.h"
#include "tests/support/machine.h"

#include <stdatomic.h>

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

/* ---- decisions, without threads ----------------------------------------------------------------- */

static int set_up_machine(void **state)
{
    *state = machine_new(2, 2);
    return 0;
}

static int tear_down_machine(void **state)
{
    machine_free(*state);
    return 0;
}

static char *job(const char *id)
{
    static char text[STORE_ID_SIZE]; /* mailbox functions take what is not const */

    (void)snprintf(text, sizeof(text), "%s", id);
    return text;
}

static void each_state_has_its_answer(void **state)
{
    static const struct {
        const char *id;
        enum job_state before;
        bool pauses, resumes;
        enum job_state paused, resumed; /* after each, from before */
    } cases[] = {
        {"validating", JOB_VALIDATING_FILES, false, true, JOB_VALIDATING_FILES,
         JOB_VALIDATING_FILES},
        {"queued", JOB_QUEUED, true, true, JOB_PAUSED, JOB_QUEUED},
        {"running", JOB_RUNNING, true, true, JOB_PAUSED, JOB_QUEUED},
        {"succeeded", JOB_SUCCEEDED, false, false, JOB_SUCCEEDED, JOB_SUCCEEDED},
        {"failed", JOB_FAILED, false, false, JOB_FAILED, JOB_FAILED},
        {"cancelled", JOB_CANCELLED, false, false, JOB_CANCELLED, JOB_CANCELLED},
    };
    struct machine *machine = *state;
    struct job_record raw = {.id = "validating", .base_model = "b", .device_wanted = "cpu"};
    struct error err;

    for (size_t i = 1; i < COUNT_OF(cases); i++) {
        machine_add_job(machine, cases[i].id, "cpu", NULL);
        if (cases[i].before != JOB_QUEUED && cases[i].before != JOB_CANCELLED)
            CHECK(jobs_move(machine->store, cases[i].id, JOB_QUEUED, JOB_RUNNING, NULL, NULL, 0,
                            &fault));
        if (job_state_is_final(cases[i].before))
            CHECK(jobs_move(machine->store, cases[i].id,
                            cases[i].before == JOB_CANCELLED ? JOB_QUEUED : JOB_RUNNING,
                            cases[i].before, NULL, NULL, 0, &fault));
    }
    CHECK(jobs_insert(machine->store, &raw, NULL, &fault));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t events;

        err = (struct error){0};
        assert_int_equal(machine_get(machine, cases[i].id).state, cases[i].before);
        if (pauses_pause(machine->queue, job(cases[i].id), &err) != cases[i].pauses)
            fail_msg("pause %s: %s", cases[i].id, err.message);
        assert_int_equal(err.code, cases[i].pauses ? ERR_NONE : ERR_CONFLICT);
        assert_int_equal(machine_get(machine, cases[i].id).state, cases[i].paused);
        events = machine_count_events(machine, cases[i].id, "");
        if (cases[i].pauses) { /* again: nothing to do, nothing to tell */
            CHECK(pauses_pause(machine->queue, job(cases[i].id), &fault));
            assert_int_equal(machine_count_events(machine, cases[i].id, ""), events);
        }
        err = (struct error){0};
        if (pauses_resume(machine->queue, job(cases[i].id), &err) != cases[i].resumes)
            fail_msg("resume %s: %s", cases[i].id, err.message);
        assert_int_equal(err.code, cases[i].resumes ? ERR_NONE : ERR_CONFLICT);
        assert_int_equal(machine_get(machine, cases[i].id).state, cases[i].resumed);
        events = machine_count_events(machine, cases[i].id, "");
        if (cases[i].resumes) {
            CHECK(pauses_resume(machine->queue, job(cases[i].id), &fault));
            assert_int_equal(machine_count_events(machine, cases[i].id, ""), events);
        }
    }
    err = (struct error){0};
    assert_false(pauses_pause(machine->queue, job("none"), &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_false(pauses_resume(machine->queue, job("none"), &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void a_paused_job_is_passed_over_and_keeps_its_place(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cuda:0", NULL);
    machine_add_job(machine, "b", "cuda:0", NULL);
    CHECK(pauses_pause(machine->queue, job("a"), &fault));
    assert_string_equal(machine_take(machine, machine->queue->slots.count - 1), "");
    assert_string_equal(machine_get(machine, "a").state_reason, "");
    CHECK(pauses_resume(machine->queue, job("a"), &fault));
    for (size_t slot = 0; slot < machine->queue->slots.count; slot++) {
        if (slots_device(&machine->queue->slots, slot) != &machine->devices.items[GPU0])
            continue;
        assert_string_equal(machine_take(machine, slot), "a");
        break;
    }
}

/* What ends while a pause is on its way changes nothing: the job stays as the answer said. */
static void an_end_after_a_pause_changes_nothing(void **state)
{
    static const enum outcome_kind kinds[] = {OUTCOME_SUCCEEDED, OUTCOME_FAILED, OUTCOME_STOPPED,
                                              OUTCOME_DEVICE_FAULT};
    static const struct error why = {.code = ERR_INVALID, .message = "x"};
    struct machine *machine = *state;

    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        char id[STORE_ID_SIZE];

        (void)snprintf(id, sizeof(id), "job-%zu", i);
        machine_add_job(machine, id, "cpu", NULL);
        assert_string_equal(machine_take(machine, CPU), id);
        CHECK(pauses_pause(machine->queue, job(id), &fault));
        assert_true(atomic_load(&machine->queue->slots.items[CPU].stop));
        assert_false(atomic_load(&machine->queue->slots.items[CPU].cancelled)); /* it is kept */
        assert_false(machine_end(machine, CPU, id, kinds[i], &why));
        assert_int_equal(machine_get(machine, id).state, JOB_PAUSED);
        machine_set_service(machine, CPU, NULL);
    }
}

static void resumed_in_haste_a_job_waits_until_it_has_left_its_worker(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    CHECK(pauses_pause(machine->queue, job("a"), &fault));
    CHECK(pauses_resume(machine->queue, job("a"), &fault));
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    assert_string_equal(machine_take(machine, CPU + 1), ""); /* the same device's other slot */
    assert_false(machine_end(machine, CPU, "a", OUTCOME_STOPPED, NULL));
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    assert_string_equal(machine_take(machine, CPU + 1), "a");
}

/* ---- whole jobs --------------------------------------------------------------------------------- */

#define LONG "'n_epochs':3,'batch_size':4"

static int set_up_bench(void **state)
{
    *state = bench_new();
    return 0;
}

static int tear_down_bench(void **state)
{
    bench_free(*state);
    return 0;
}

static void model_of(struct bench *bench, const char *id, char ret_sha256[SHA256_HEX_SIZE])
{
    struct job_record record;
    struct model_record model;

    bench_get(bench, id, &record);
    CHECK(models_get(bench->store, record.fine_tuned_model, &model, &fault));
    assert_int_equal(record.completed_steps, record.total_steps);
    (void)snprintf(ret_sha256, SHA256_HEX_SIZE, "%s", model.sha256);
    job_record_release(&record);
}

static void paused_and_resumed_a_job_ends_as_an_unbroken_one(void **state)
{
    struct bench *bench = *state;
    char file[STORE_ID_SIZE], whole[STORE_ID_SIZE], broken[STORE_ID_SIZE], next[STORE_ID_SIZE];
    char wanted[SHA256_HEX_SIZE], found[SHA256_HEX_SIZE];
    struct job_record record;

    (void)snprintf(file, sizeof(file), "%s", bench_upload_lines(bench, 40));
    bench_submit_small(bench, file, LONG, whole);
    assert_int_equal(bench_wait(bench, whole, JOB_STATE_COUNT), JOB_SUCCEEDED);
    hold_steps(3);
    bench_submit_small(bench, file, LONG, broken);
    bench_wait_event(bench, broken, "metrics", 0);
    CHECK(scheduler_pause(bench->scheduler, broken, &fault));
    hold_let_go();
    bench_get(bench, broken, &record); /* committed before the answer */
    assert_int_equal(record.state, JOB_PAUSED);
    assert_true(record.completed_steps < record.total_steps);
    job_record_release(&record);

    bench_submit_small(bench, file, "'n_epochs':1", next); /* the device is free for others */
    assert_int_equal(bench_wait(bench, next, JOB_STATE_COUNT), JOB_SUCCEEDED);
    bench_stop(bench);
    bench_start(bench);
    bench_get(bench, broken, &record);
    assert_int_equal(record.state, JOB_PAUSED); /* a restart does not resume it */
    job_record_release(&record);
    CHECK(scheduler_resume(bench->scheduler, broken, &fault));
    assert_int_equal(bench_wait(bench, broken, JOB_STATE_COUNT), JOB_SUCCEEDED);
    assert_int_equal(bench_count_events(bench, broken, "state", "was paused"), 1);
    assert_int_equal(bench_count_events(bench, broken, "state", "was resumed"), 1);
    assert_int_equal(bench_count_events(bench, broken, NULL, "goes on after step"), 1);
    assert_int_equal(bench_count_events(bench, broken, "metrics", ""),
                     bench_count_events(bench, whole, "metrics", "")); /* each step once */
    model_of(bench, whole, wanted);
    model_of(bench, broken, found);
    assert_string_equal(found, wanted);
}

static void paused_and_resumed_in_haste_it_still_ends_well(void **state)
{
    struct bench *bench = *state;
    char file[STORE_ID_SIZE], whole[STORE_ID_SIZE], broken[STORE_ID_SIZE];
    char wanted[SHA256_HEX_SIZE], found[SHA256_HEX_SIZE];

    (void)snprintf(file, sizeof(file), "%s", bench_upload_lines(bench, 40));
    bench_submit_small(bench, file, LONG, whole);
    assert_int_equal(bench_wait(bench, whole, JOB_STATE_COUNT), JOB_SUCCEEDED);
    bench_submit_small(bench, file, LONG, broken);
    for (int64_t seen = 0; seen < 8;) {
        struct error err = {0};

        seen = bench_wait_event(bench, broken, "metrics", seen);
        if (!scheduler_pause(bench->scheduler, broken, &err) ||
            !scheduler_resume(bench->scheduler, broken, &err)) {
            assert_int_equal(err.code, ERR_CONFLICT); /* it has ended */
            break;
        }
    }
    assert_int_equal(bench_wait(bench, broken, JOB_STATE_COUNT), JOB_SUCCEEDED);
    model_of(bench, whole, wanted);
    model_of(bench, broken, found);
    assert_string_equal(found, wanted);
}

static void a_paused_job_can_be_cancelled(void **state)
{
    struct bench *bench = *state;
    char file[STORE_ID_SIZE], id[STORE_ID_SIZE];
    struct error err = {0};

    (void)snprintf(file, sizeof(file), "%s", bench_upload_lines(bench, 40));
    hold_steps(3);
    bench_submit_small(bench, file, LONG, id);
    bench_wait_event(bench, id, "metrics", 0);
    CHECK(scheduler_pause(bench->scheduler, id, &fault));
    CHECK(scheduler_cancel(bench->scheduler, id, &fault));
    hold_let_go();
    assert_int_equal(bench_wait(bench, id, JOB_STATE_COUNT), JOB_CANCELLED);
    assert_false(scheduler_resume(bench->scheduler, id, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_false(scheduler_pause(bench->scheduler, "ftjob-none", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define DECISION(name) cmocka_unit_test_setup_teardown(name, set_up_machine, tear_down_machine)
        DECISION(each_state_has_its_answer),
        DECISION(a_paused_job_is_passed_over_and_keeps_its_place),
        DECISION(an_end_after_a_pause_changes_nothing),
        DECISION(resumed_in_haste_a_job_waits_until_it_has_left_its_worker),
#define WHOLE(name) cmocka_unit_test_setup_teardown(name, set_up_bench, tear_down_bench)
        WHOLE(paused_and_resumed_a_job_ends_as_an_unbroken_one),
        WHOLE(paused_and_resumed_in_haste_it_still_ends_well),
        WHOLE(a_paused_job_can_be_cancelled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves: which device gets which job, why others wait, what a failing device does to its job, and
 * that an end that comes after a cancel changes nothing. No thread runs here: see machine.h. */
#include "daemon/sched/recorder.h"
#include "daemon/sched/waiting.h"
#include "store/models.h"
#include "tests/support/machine.h"

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

static void jobs_are_taken_oldest_first_and_once(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "auto", NULL);
    machine_add_job(machine, "b", "auto", NULL);
    machine_add_job(machine, "c", "auto", NULL);
    assert_string_equal(machine_take(machine, GPU0), "a");
    assert_string_equal(machine_take(machine, GPU1), "b");
    assert_true(machine_end(machine, GPU0, "a", OUTCOME_SUCCEEDED, NULL));
    assert_string_equal(machine_take(machine, GPU0), "c");
    assert_string_equal(machine_take(machine, GPU1), "");
    assert_string_equal(machine_get(machine, "a").fine_tuned_model, "ft:a");
    assert_int_equal(machine_get(machine, "c").attempt_count, 1);
    assert_string_equal(machine_get(machine, "c").device_used, "cuda:0");
}

static void auto_waits_for_a_busy_gpu_and_says_so(void **state)
{
    struct machine *machine = *state;

    machine_set_service(machine, GPU1, "it fell off the bus");
    machine_add_job(machine, "a", "auto", NULL);
    assert_string_equal(machine_take(machine, GPU0), "a");
    machine_add_job(machine, "b", "auto", NULL);
    assert_string_equal(machine_take(machine, CPU), "");
    assert_non_null(strstr(machine_get(machine, "b").state_reason, "cuda:0 is busy"));
    assert_non_null(strstr(machine_get(machine, "b").state_reason, "it fell off the bus"));
    assert_true(
        machine_end(machine, GPU0, "a", OUTCOME_FAILED, &(struct error){.code = ERR_INVALID}));
    assert_string_equal(machine_get(machine, "b").state_reason, "");
    assert_string_equal(machine_take(machine, GPU0), "b");
}

static void the_processor_steps_in_with_a_warning_when_no_gpu_is_healthy(void **state)
{
    struct machine *machine = *state;

    machine_set_service(machine, GPU0, "it fell off the bus, says /opt/driver/a.so");
    machine_set_service(machine, GPU1, "it is too hot");
    machine_add_job(machine, "a", "auto", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_int_equal(machine_count_events(machine, "a", "it fell off the bus, says a.so"), 1);
    assert_int_equal(machine_count_events(machine, "a", "/opt"), 0);
    assert_int_equal(machine_count_events(machine, "a", "not on a GPU"), 1);
}

/* The loader's words have the file's whole path. */
static void why_a_platform_is_missing_is_told_without_the_machines_folders(void **state)
{
    struct machine *machine = *state;
    struct devices *devices = &machine->devices;
    struct error err = {0};

    devices->missing[0] = (struct missing_platform){
        .name = "cuda", .reason = "it does not load: /opt/secret/needled-cuda.so: no symbol x"};
    devices->missing_count = 1;
    machine_set_service(machine, GPU0, "it is too hot");
    machine_set_service(machine, GPU1, "it is too hot");
    machine_add_job(machine, "a", "auto", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_int_equal(machine_count_events(machine, "a", ": needled-cuda.so: no symbol x"), 1);
    assert_int_equal(machine_count_events(machine, "a", "/opt"), 0);
    assert_false(devices_check_wanted(devices, "cuda:7", &err));
    assert_non_null(strstr(err.message, "needled-cuda.so: no symbol x"));
    assert_null(strstr(err.message, "/opt"));
}

static void a_named_device_is_waited_for(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cuda:1", NULL);
    machine_add_job(machine, "b", "cpu", NULL);
    assert_string_equal(machine_take(machine, GPU0), "");
    assert_string_equal(machine_take(machine, CPU), "b");
    assert_int_equal(machine_count_events(machine, "b", "not on a GPU"),
                     0); /* as it was asked for */
    machine_set_service(machine, GPU1, "it is too hot");
    assert_string_equal(machine_take(machine, GPU1), "");
    assert_string_equal(machine_get(machine, "a").state_reason,
                        "cuda:1 is out of service: it is too hot");
    assert_int_equal(machine_count_events(machine, "a", "The job waits: cuda:1 is out of service"),
                     1);
    assert_int_equal(machine_count_events(machine, "a", "waits for a device"),
                     0); /* a turn is no news */
    machine_set_service(machine, GPU1, NULL);
    assert_string_equal(machine_take(machine, GPU1), "a");
}

static void many_that_wait_for_another_device_block_nobody(void **state)
{
    struct machine *machine = *state;
    char id[STORE_ID_SIZE];

    machine_set_service(machine, GPU1, "it is too hot");
    for (size_t i = 0; i < WAITING_LOOKED_AT + 4; i++) {
        (void)snprintf(id, sizeof(id), "hot-%zu", i);
        machine_add_job(machine, id, "cuda:1", NULL);
    }
    machine_add_job(machine, "last", "cpu", NULL);
    assert_string_equal(machine_take(machine, GPU0), "");
    assert_string_equal(machine_take(machine, CPU), "last");
}

static void a_full_disk_keeps_a_job_waiting_with_its_reason(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", "{\"disk_bytes\":1000000000000000}");
    machine_add_job(machine, "b", "cpu", "{\"disk_bytes\":1000}");
    assert_string_equal(machine_take(machine, CPU), "b"); /* it does not stop the others */
    assert_non_null(strstr(machine_get(machine, "a").state_reason, "disk full"));
    assert_string_equal(machine_take(machine, CPU), "");
    assert_int_equal(machine_count_events(machine, "a", "The job waits: disk full"),
                     1); /* told once */
}

static void a_job_that_can_open_no_more_files_is_queued_again_however_often(void **state)
{
    static const struct error why = {.code = ERR_UNAVAILABLE,
                                     .word = ERROR_OPEN_FILES,
                                     .message = "create 'epoch-1': Too many open files"};
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    for (int i = 0; i < 2 * QUEUE_FAULTS_MAX; i++) {
        assert_string_equal(machine_take(machine, CPU), "a");
        assert_true(machine_end(machine, CPU, "a", OUTCOME_DISK_FAULT, &why));
        assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    }
    assert_int_equal(machine_count_events(machine, "a", "No more files can be opened (create"),
                     2 * QUEUE_FAULTS_MAX);
    assert_int_equal(machine_get(machine, "a").fault_count, 0);
}

static void a_device_that_fails_gives_its_job_back_and_leaves_service(void **state)
{
    static const struct error why = {.code = ERR_DEVICE, .message = "it fell off the bus"};
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cuda", NULL);
    assert_string_equal(machine_take(machine, GPU0), "a");
    assert_true(machine_end(machine, GPU0, "a", OUTCOME_DEVICE_FAULT, &why));
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    assert_int_equal(machine_get(machine, "a").fault_count, 1);
    assert_int_equal(machine_count_events(machine, "a", "cuda:0 failed and is out of service"), 1);
    assert_int_equal(slots_devices_in_service(&machine->queue->slots), 2);
    assert_string_equal(machine_take(machine, GPU0), "");
    assert_string_equal(machine_take(machine, GPU1), "a");
    assert_true(machine_end(machine, GPU1, "a", OUTCOME_DEVICE_FAULT, &why));
    machine_set_service(machine, GPU0, NULL);
    assert_string_equal(machine_take(machine, GPU0), "a");
    assert_true(machine_end(machine, GPU0, "a", OUTCOME_DEVICE_FAULT, &why));
    assert_int_equal(machine_get(machine, "a").state, JOB_FAILED);
    assert_string_equal(machine_get(machine, "a").error_code, "device");
    assert_int_equal(machine_count_events(machine, "a", "The job has ended: failed"), 1);
}

static void an_end_after_a_cancel_changes_nothing(void **state)
{
    static const enum outcome_kind kinds[] = {OUTCOME_SUCCEEDED, OUTCOME_FAILED, OUTCOME_STOPPED,
                                              OUTCOME_CANCELLED, OUTCOME_DEVICE_FAULT};
    static const struct error why = {.code = ERR_INVALID, .message = "x"};
    struct machine *machine = *state;

    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct model_record model;
        struct error err = {0};
        char id[STORE_ID_SIZE], model_id[64];
        size_t before;

        (void)snprintf(id, sizeof(id), "job-%zu", i);
        machine_add_job(machine, id, "cpu", NULL);
        assert_string_equal(machine_take(machine, CPU), id);
        assert_false(
            atomic_load(&machine->queue->slots.items[CPU].stop)); /* nothing is left over */
        CHECK(queue_cancel(machine->queue, id, &fault));
        assert_true(atomic_load(&machine->queue->slots.items[CPU].stop));
        assert_true(atomic_load(&machine->queue->slots.items[CPU].cancelled));
        before = machine_count_events(machine, id, "");
        assert_false(machine_end(machine, CPU, id, kinds[i], &why));
        assert_int_equal(machine_get(machine, id).state, JOB_CANCELLED);
        assert_int_equal(machine_count_events(machine, id, ""), before);
        (void)snprintf(model_id, sizeof(model_id), "ft:%s", id);
        assert_false(models_get(machine->store, model_id, &model, &err));
        machine_set_service(machine, CPU, NULL);
    }
}

static void nothing_is_taken_once_the_daemon_stops(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    CHECK(queue_stop(machine->queue, NULL, &fault));
    assert_string_equal(machine_take(machine, CPU), "");
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
}

static void jobs_found_running_at_the_start_are_queued_again(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cpu", NULL);
    machine_add_job(machine, "b", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    machine_restart(machine);
    assert_int_equal(machine_get(machine, "a").state, JOB_QUEUED);
    assert_int_equal(machine_count_events(machine, "a", "The daemon ended while the job ran"), 1);
    assert_string_equal(machine_take(machine, CPU), "a"); /* still before the younger one */
}

static void recorded_events_come_in_order_and_stop_with_the_job(void **state)
{
    struct machine *machine = *state;
    struct recorder *recorder = NULL;
    struct recorder_progress progress = {.train_loss = 1.5};
    struct event_record *events = NULL;
    atomic_bool stop = false;
    size_t count = 0;
    char wanted[32];

    machine_add_job(machine, "a", "cpu", NULL);
    assert_string_equal(machine_take(machine, CPU), "a");
    CHECK(recorder_open(machine->database, NULL, machine->options.feed, &recorder, &fault));
    recorder_begin(recorder, "a", &stop);
    for (int i = 0; i < 1000; i++) { /* more than it holds at once */
        progress.completed_steps = i + 1;
        assert_true(recorder_add(recorder, EVENT_INFO, "metrics", NULL, &progress, "step %d", i));
    }
    recorder_drain(recorder);
    assert_int_equal(machine_get(machine, "a").completed_steps, 1000);
    CHECK(events_since(machine->store, "a", 0, 10000, &events, &count, &fault));
    assert_true(count >= 1000);
    for (size_t i = 0; i < 1000; i++) {
        (void)snprintf(wanted, sizeof(wanted), "step %zu", i);
        assert_string_equal(events[count - 1000 + i].message, wanted);
    }
    events_free(events, count);
    CHECK(queue_cancel(machine->queue, (void *)(uintptr_t) "a", &fault));
    assert_true(recorder_add(recorder, EVENT_INFO, "metrics", NULL, &progress, "too late"));
    recorder_close(recorder);
    assert_int_equal(machine_count_events(machine, "a", "too late"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(jobs_are_taken_oldest_first_and_once),
        TEST(auto_waits_for_a_busy_gpu_and_says_so),
        TEST(the_processor_steps_in_with_a_warning_when_no_gpu_is_healthy),
        TEST(why_a_platform_is_missing_is_told_without_the_machines_folders),
        TEST(a_named_device_is_waited_for),
        TEST(many_that_wait_for_another_device_block_nobody),
        TEST(a_full_disk_keeps_a_job_waiting_with_its_reason),
        TEST(a_job_that_can_open_no_more_files_is_queued_again_however_often),
        TEST(a_device_that_fails_gives_its_job_back_and_leaves_service),
        TEST(an_end_after_a_cancel_changes_nothing),
        TEST(nothing_is_taken_once_the_daemon_stops),
        TEST(jobs_found_running_at_the_start_are_queued_again),
        TEST(recorded_events_come_in_order_and_stop_with_the_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

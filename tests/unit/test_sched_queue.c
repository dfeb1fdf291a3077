/* Proves: which device gets which job, why others wait, what a failing device does to its job, and
 * that an end that comes after a cancel changes nothing. No thread runs here: the functions of the
 * scheduler's thread are called one by one, on a machine with two GPUs that exist only here. */
#include "daemon/base/json.h"
#include "daemon/sched/events.h"
#include "daemon/sched/queue.h"
#include "daemon/sched/recorder.h"
#include "store/models.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>

enum { CPU, GPU0, GPU1 };

struct fixture {
    char *folder;
    char database[4096];
    struct devices devices;
    struct scheduler_options options;
    struct mailbox *mailbox;
    struct queue *queue;
    struct store *store;
};

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

static void add_device(struct devices *devices, enum backend_kind kind, int index)
{
    struct device *device = &devices->items[devices->count++];

    *device = (struct device){.kind = kind, .index = index, .thread_count = 1};
    (void)snprintf(device->id, sizeof(device->id), "%s:%d", backend_name(kind), index);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->folder = scratch_new();
    (void)snprintf(fixture->database, sizeof(fixture->database), "%s/needled.db", fixture->folder);
    CHECK(store_open(fixture->database, true, &fixture->store, &fault));
    add_device(&fixture->devices, BACKEND_CPU, 0);
    add_device(&fixture->devices, BACKEND_CUDA, 0);
    add_device(&fixture->devices, BACKEND_CUDA, 1);
    fixture->options = (struct scheduler_options){.state_folder = fixture->folder,
                                                  .models_folder = fixture->folder,
                                                  .database_path = fixture->database,
                                                  .devices = &fixture->devices,
                                                  .feed = events_feed_new()};
    fixture->mailbox = mailbox_new();
    CHECK(queue_open(&fixture->options, fixture->mailbox, &fixture->queue, &fault));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    queue_close(fixture->queue);
    mailbox_free(fixture->mailbox);
    events_feed_free(fixture->options.feed);
    store_close(fixture->store);
    scratch_free(fixture->folder);
    free(fixture);
    return 0;
}

/* Created and found good. */
static void add_job(struct fixture *fixture, const char *id, const char *device, const char *plan)
{
    struct job_record job = {.base_model = "needle-3", .numerics = "w4a8", .created_unix_s = 1};
    struct queue_verdict verdict = {.job_id = id, .plan_json = plan};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    (void)snprintf(job.device_wanted, sizeof(job.device_wanted), "%s", device);
    CHECK(queue_submit(fixture->queue, &job, &fault));
    CHECK(queue_judge(fixture->queue, &verdict, &fault));
}

/* Which job the device takes, "" none. */
static const char *take(struct fixture *fixture, size_t slot)
{
    static char id[STORE_ID_SIZE];
    struct queue_claim claim = {.slot = slot};

    CHECK(queue_take(fixture->queue, &claim, &fault));
    (void)snprintf(id, sizeof(id), "%s", claim.found ? claim.job.id : "");
    if (claim.found)
        job_record_release(&claim.job);
    return id;
}

static bool end(struct fixture *fixture, size_t slot, const char *id, enum outcome_kind kind,
                const struct error *why)
{
    struct model_record model = {.valid_loss = NAN};
    struct queue_outcome outcome = {.slot = slot,
                                    .job_id = id,
                                    .kind = kind,
                                    .fault = why,
                                    .steps = 5,
                                    .models = &model,
                                    .model_count = 1};

    (void)snprintf(model.id, sizeof(model.id), "ft:%s", id);
    (void)snprintf(model.job_id, sizeof(model.job_id), "%s", id);
    CHECK(queue_end(fixture->queue, &outcome, &fault));
    return outcome.kept;
}

static void set_service(struct fixture *fixture, size_t slot, const char *reason)
{
    struct queue_fault service = {slot, reason};

    CHECK(queue_set_service(fixture->queue, &service, &fault));
}

static struct job_record get(struct fixture *fixture, const char *id)
{
    struct job_record job;

    CHECK(jobs_get(fixture->store, id, &job, &fault));
    job_record_release(&job);
    return job; /* its texts are gone, its values stay */
}

static size_t count_events(struct fixture *fixture, const char *id, const char *word)
{
    struct event_record *events = NULL;
    size_t count = 0, found = 0;

    CHECK(events_since(fixture->store, id, 0, 1000, &events, &count, &fault));
    for (size_t i = 0; i < count; i++)
        found += strstr(events[i].message, word) != NULL;
    events_free(events, count);
    return found;
}

static void jobs_are_taken_oldest_first_and_once(void **state)
{
    struct fixture *fixture = *state;

    add_job(fixture, "a", "auto", NULL);
    add_job(fixture, "b", "auto", NULL);
    add_job(fixture, "c", "auto", NULL);
    assert_string_equal(take(fixture, GPU0), "a");
    assert_string_equal(take(fixture, GPU1), "b");
    assert_true(end(fixture, GPU0, "a", OUTCOME_SUCCEEDED, NULL));
    assert_string_equal(take(fixture, GPU0), "c");
    assert_string_equal(take(fixture, GPU1), "");
    assert_string_equal(get(fixture, "a").fine_tuned_model, "ft:a");
    assert_int_equal(get(fixture, "c").attempt_count, 1);
    assert_string_equal(get(fixture, "c").device_used, "cuda:0");
}

static void auto_waits_for_a_busy_gpu_and_says_so(void **state)
{
    struct fixture *fixture = *state;

    set_service(fixture, GPU1, "it fell off the bus");
    add_job(fixture, "a", "auto", NULL);
    assert_string_equal(take(fixture, GPU0), "a");
    add_job(fixture, "b", "auto", NULL);
    assert_string_equal(take(fixture, CPU), "");
    assert_non_null(strstr(get(fixture, "b").state_reason, "cuda:0 is busy"));
    assert_non_null(strstr(get(fixture, "b").state_reason, "it fell off the bus"));
    assert_true(end(fixture, GPU0, "a", OUTCOME_FAILED, &(struct error){.code = ERR_INVALID}));
    assert_string_equal(get(fixture, "b").state_reason, "");
    assert_string_equal(take(fixture, GPU0), "b");
}

static void the_processor_steps_in_with_a_warning_when_no_gpu_is_healthy(void **state)
{
    struct fixture *fixture = *state;

    set_service(fixture, GPU0, "it fell off the bus");
    set_service(fixture, GPU1, "it is too hot");
    add_job(fixture, "a", "auto", NULL);
    assert_string_equal(take(fixture, CPU), "a");
    assert_int_equal(count_events(fixture, "a", "it fell off the bus"), 1);
    assert_int_equal(count_events(fixture, "a", "not on a GPU"), 1);
}

static void a_named_device_is_waited_for(void **state)
{
    struct fixture *fixture = *state;

    add_job(fixture, "a", "cuda:1", NULL);
    add_job(fixture, "b", "cpu", NULL);
    assert_string_equal(take(fixture, GPU0), "");
    assert_string_equal(take(fixture, CPU), "b");
    assert_int_equal(count_events(fixture, "b", "not on a GPU"), 0); /* as it was asked for */
    set_service(fixture, GPU1, "it is too hot");
    assert_string_equal(take(fixture, GPU1), "");
    assert_string_equal(get(fixture, "a").state_reason, "cuda:1 is out of service: it is too hot");
    assert_int_equal(count_events(fixture, "a", "The job waits: cuda:1 is out of service"), 1);
    assert_int_equal(count_events(fixture, "a", "waits for a device"), 0); /* a turn is no news */
    set_service(fixture, GPU1, NULL);
    assert_string_equal(take(fixture, GPU1), "a");
}

static void a_full_disk_keeps_a_job_waiting_with_its_reason(void **state)
{
    struct fixture *fixture = *state;

    add_job(fixture, "a", "cpu", "{\"disk_bytes\":1000000000000000}");
    add_job(fixture, "b", "cpu", "{\"disk_bytes\":1000}");
    assert_string_equal(take(fixture, CPU), "b"); /* it does not stop the others */
    assert_non_null(strstr(get(fixture, "a").state_reason, "disk full"));
    assert_string_equal(take(fixture, CPU), "");
    assert_int_equal(count_events(fixture, "a", "The job waits: disk full"), 1); /* told once */
}

static void a_device_that_fails_gives_its_job_back_and_leaves_service(void **state)
{
    static const struct error why = {.code = ERR_DEVICE, .message = "it fell off the bus"};
    struct fixture *fixture = *state;

    add_job(fixture, "a", "cuda", NULL);
    assert_string_equal(take(fixture, GPU0), "a");
    assert_true(end(fixture, GPU0, "a", OUTCOME_DEVICE_FAULT, &why));
    assert_int_equal(get(fixture, "a").state, JOB_QUEUED);
    assert_int_equal(get(fixture, "a").fault_count, 1);
    assert_int_equal(count_events(fixture, "a", "cuda:0 failed and is out of service"), 1);
    assert_int_equal(slots_devices_in_service(&fixture->queue->slots), 2);
    assert_string_equal(take(fixture, GPU0), "");
    assert_string_equal(take(fixture, GPU1), "a");
    assert_true(end(fixture, GPU1, "a", OUTCOME_DEVICE_FAULT, &why));
    set_service(fixture, GPU0, NULL);
    assert_string_equal(take(fixture, GPU0), "a");
    assert_true(end(fixture, GPU0, "a", OUTCOME_DEVICE_FAULT, &why));
    assert_int_equal(get(fixture, "a").state, JOB_FAILED);
    assert_string_equal(get(fixture, "a").error_code, "device");
    assert_int_equal(count_events(fixture, "a", "The job has ended: failed"), 1);
}

static void an_end_after_a_cancel_changes_nothing(void **state)
{
    static const enum outcome_kind kinds[] = {OUTCOME_SUCCEEDED, OUTCOME_FAILED, OUTCOME_STOPPED,
                                              OUTCOME_CANCELLED, OUTCOME_DEVICE_FAULT};
    static const struct error why = {.code = ERR_INVALID, .message = "x"};
    struct fixture *fixture = *state;

    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct model_record model;
        struct error err = {0};
        char id[STORE_ID_SIZE], model_id[64];
        size_t before;

        (void)snprintf(id, sizeof(id), "job-%zu", i);
        add_job(fixture, id, "cpu", NULL);
        assert_string_equal(take(fixture, CPU), id);
        assert_false(
            atomic_load(&fixture->queue->slots.items[CPU].stop)); /* nothing is left over */
        CHECK(queue_cancel(fixture->queue, id, &fault));
        assert_true(atomic_load(&fixture->queue->slots.items[CPU].stop));
        assert_true(atomic_load(&fixture->queue->slots.items[CPU].cancelled));
        before = count_events(fixture, id, "");
        assert_false(end(fixture, CPU, id, kinds[i], &why));
        assert_int_equal(get(fixture, id).state, JOB_CANCELLED);
        assert_int_equal(count_events(fixture, id, ""), before);
        (void)snprintf(model_id, sizeof(model_id), "ft:%s", id);
        assert_false(models_get(fixture->store, model_id, &model, &err));
        set_service(fixture, CPU, NULL);
    }
}

static void nothing_is_taken_once_the_daemon_stops(void **state)
{
    struct fixture *fixture = *state;

    add_job(fixture, "a", "cpu", NULL);
    CHECK(queue_stop(fixture->queue, NULL, &fault));
    assert_string_equal(take(fixture, CPU), "");
    assert_int_equal(get(fixture, "a").state, JOB_QUEUED);
}

static void jobs_found_running_at_the_start_are_queued_again(void **state)
{
    struct fixture *fixture = *state;

    add_job(fixture, "a", "cpu", NULL);
    add_job(fixture, "b", "cpu", NULL);
    assert_string_equal(take(fixture, CPU), "a");
    queue_close(fixture->queue);
    fixture->queue = NULL;
    CHECK(queue_open(&fixture->options, fixture->mailbox, &fixture->queue, &fault));
    assert_int_equal(get(fixture, "a").state, JOB_QUEUED);
    assert_int_equal(count_events(fixture, "a", "The daemon ended while the job ran"), 1);
    assert_string_equal(take(fixture, CPU), "a"); /* still before the younger one */
}

static void recorded_events_come_in_order_and_stop_with_the_job(void **state)
{
    struct fixture *fixture = *state;
    struct recorder *recorder = NULL;
    struct recorder_progress progress = {.train_loss = 1.5};
    struct event_record *events = NULL;
    atomic_bool stop = false;
    size_t count = 0;
    char wanted[32];

    add_job(fixture, "a", "cpu", NULL);
    assert_string_equal(take(fixture, CPU), "a");
    CHECK(recorder_open(fixture->database, fixture->options.feed, &recorder, &fault));
    recorder_begin(recorder, "a", &stop);
    for (int i = 0; i < 1000; i++) { /* more than it holds at once */
        progress.completed_steps = i + 1;
        recorder_add(recorder, EVENT_INFO, "metrics", NULL, &progress, "step %d", i);
    }
    recorder_drain(recorder);
    assert_int_equal(get(fixture, "a").completed_steps, 1000);
    CHECK(events_since(fixture->store, "a", 0, 10000, &events, &count, &fault));
    assert_true(count >= 1000);
    for (size_t i = 0; i < 1000; i++) {
        (void)snprintf(wanted, sizeof(wanted), "step %zu", i);
        assert_string_equal(events[count - 1000 + i].message, wanted);
    }
    events_free(events, count);
    CHECK(queue_cancel(fixture->queue, (void *)(uintptr_t) "a", &fault));
    recorder_add(recorder, EVENT_INFO, "metrics", NULL, &progress, "too late");
    recorder_close(recorder);
    assert_int_equal(count_events(fixture, "a", "too late"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(jobs_are_taken_oldest_first_and_once),
        TEST(auto_waits_for_a_busy_gpu_and_says_so),
        TEST(the_processor_steps_in_with_a_warning_when_no_gpu_is_healthy),
        TEST(a_named_device_is_waited_for),
        TEST(a_full_disk_keeps_a_job_waiting_with_its_reason),
        TEST(a_device_that_fails_gives_its_job_back_and_leaves_service),
        TEST(an_end_after_a_cancel_changes_nothing),
        TEST(nothing_is_taken_once_the_daemon_stops),
        TEST(jobs_found_running_at_the_start_are_queued_again),
        TEST(recorded_events_come_in_order_and_stop_with_the_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves: the rule of placement.h. A job takes a device where its memory is free, waits for one that
 * could hold it, passes over one that never can, and is failed before it takes a device when none ever
 * can; several jobs share a device, and count what the others are still going to take. */
#include "daemon/base/json.h"
#include "tests/support/machine.h"

#include <inttypes.h>
#include <sys/statvfs.h>

#define GB ((uint64_t)1000000000)
/* Of 8 GB a plan may have 7.5. */
#define NEEDS(least, wanted, base)                                                                 \
    "{\"memory_needs\":{\"least_bytes\":" least ",\"wanted_bytes\":" wanted                        \
    ",\"base_bytes\":" base "}}"
#define NEEDS_3_GB NEEDS("3000000000", "3000000000", "0")

static int set_up(void **state)
{
    *state = machine_new(1, 1);
    for (size_t i = 0; i < MACHINE_DEVICE_COUNT; i++)
        machine_total_bytes[i] = machine_free_bytes[i] = 8 * GB;
    return 0;
}

/* Two slots each: 0 and 1 are the processor's, 2 and 3 cuda:0's, 4 and 5 cuda:1's. */
enum { CPU_A, CPU_B, GPU0_A, GPU0_B, GPU1_A, GPU1_B };

static int set_up_shared(void **state)
{
    *state = machine_new(2, 4);
    for (size_t i = 0; i < MACHINE_DEVICE_COUNT; i++)
        machine_total_bytes[i] = machine_free_bytes[i] = 8 * GB;
    return 0;
}

static int tear_down(void **state)
{
    machine_free(*state);
    return 0;
}

static void check_reason(struct machine *machine, const char *id, const char *wanted)
{
    assert_string_equal(machine_get(machine, id).state_reason, wanted);
}

/* What the record holds of warnings, for the caller to free(). */
static char *warnings_of(struct machine *machine, const char *id)
{
    struct job_record job;
    struct error err = {0};
    char *text;

    if (!jobs_get(machine->store, id, &job, &err))
        fail_msg("%s", err.message);
    text = job.warnings_json;
    job.warnings_json = NULL;
    job_record_release(&job);
    assert_non_null(text);
    return text;
}

/* ---- waiting ----------------------------------------------------------------------------------------- */

static void auto_waits_for_a_card_whose_memory_is_taken(void **state)
{
    struct machine *machine = *state;

    machine_set_service(machine, GPU1, "it is too hot");
    machine_free_bytes[GPU0] = 16 * GB / 10;
    machine_add_job(machine, "a", "auto", NEEDS_3_GB);
    assert_string_equal(machine_take(machine, GPU0), "");
    assert_string_equal(machine_take(machine, CPU), ""); /* though it is idle, and the job fits */
    check_reason(machine, "a",
                 "waits for a device: cuda:0: needs 3.0 GB, 1.5 GB free of 7.5 GB; "
                 "cuda:1 is out of service: it is too hot");
    machine_free_bytes[GPU0] = 16 * GB / 5; /* 3 GB of it for plans */
    assert_string_equal(machine_take(machine, GPU0), "a");
    check_reason(machine, "a", "");
}

static void a_named_card_whose_memory_is_taken_is_waited_for(void **state)
{
    struct machine *machine = *state;

    machine_free_bytes[GPU0] = GB;
    machine_add_job(machine, "a", "cuda:0", NEEDS_3_GB);
    check_reason(machine, "a", "waits for cuda:0: needs 3.0 GB, 0.9 GB free of 7.5 GB");
    for (size_t i = 0; i < MACHINE_DEVICE_COUNT; i++)
        assert_string_equal(machine_take(machine, i), "");
    machine_free_bytes[GPU0] = 2 * GB;
    assert_string_equal(machine_take(machine, GPU0), "");
    check_reason(machine, "a", "waits for cuda:0: needs 3.0 GB, 1.9 GB free of 7.5 GB");
    assert_int_equal(machine_count_events(machine, "a", "The job waits for cuda:0: needs"), 1);
    machine_free_bytes[GPU0] = 4 * GB;
    assert_string_equal(machine_take(machine, GPU0), "a");
}

static void a_platform_gives_the_card_that_has_room(void **state)
{
    struct machine *machine = *state;

    machine_free_bytes[GPU0] = GB;
    machine_add_job(machine, "a", "cuda", NEEDS_3_GB);
    check_reason(machine, "a", ""); /* cuda:1 is about to take it */
    assert_string_equal(machine_take(machine, GPU0), "");
    assert_string_equal(machine_take(machine, GPU1), "a");
}

static void one_that_waits_does_not_stop_the_others(void **state)
{
    struct machine *machine = *state;

    machine_free_bytes[GPU0] = GB;
    machine_add_job(machine, "large", "cuda:0", NEEDS_3_GB);
    machine_add_job(machine, "small", "cuda:0", NEEDS("500000000", "500000000", "0"));
    assert_string_equal(machine_take(machine, GPU0), "small");
    check_reason(machine, "large", "waits for a device: cuda:0 is busy");
}

static void what_cannot_be_told_counts_as_fitting(void **state)
{
    struct machine *machine = *state;

    machine_free_bytes[GPU0] = 0;
    machine_add_job(machine, "a", "cuda:0", NEEDS_3_GB);
    assert_string_equal(machine_take(machine, GPU0), "a");
    machine_free_bytes[GPU1] = 1;
    machine_add_job(machine, "b", "cuda:1", "{\"disk_bytes\":1}"); /* of an older version */
    assert_string_equal(machine_take(machine, GPU1), "b");
}

/* ---- disk ---- */

/* A job's needs of so many thousandths of what is free on the disk. */
static const char *part_of_disk(const char *folder, uint64_t thousandths)
{
    static char plans[4][64];
    static size_t next;
    char *plan = plans[next++ % COUNT_OF(plans)];
    struct statvfs about;

    assert_int_equal(statvfs(folder, &about), 0);
    (void)snprintf(plan, sizeof(plans[0]), "{\"disk_bytes\":%" PRIu64 "}",
                   (uint64_t)about.f_bavail * about.f_frsize / 1000 * thousandths);
    return plan;
}

static void what_a_running_job_still_writes_is_not_given_to_the_next(void **state)
{
    struct machine *machine = *state;
    const char *folder = machine->options.state_folder;
    struct error why = {0};

    machine_add_job(machine, "a", "cuda:0", part_of_disk(folder, 600));
    machine_add_job(machine, "b", "cuda:1", part_of_disk(folder, 600));
    machine_add_job(machine, "c", "cpu", part_of_disk(folder, 100));
    assert_string_equal(machine_take(machine, GPU0), "a");
    assert_string_equal(machine_take(machine, GPU1), "");
    assert_non_null(
        strstr(machine_get(machine, "b").state_reason, "for what running jobs still write"));
    assert_string_equal(machine_take(machine, CPU), "c"); /* there is room for this one */
    (void)error_set(&why, ERR_INTERNAL, "it was a test");
    assert_true(machine_end(machine, GPU0, "a", OUTCOME_FAILED, &why));
    assert_string_equal(machine_take(machine, GPU1), "b");
}

/* ---- never ------------------------------------------------------------------------------------------- */

static void a_job_too_large_for_the_cards_runs_on_the_processor_with_a_warning(void **state)
{
    struct machine *machine = *state;
    char *warnings;

    machine_total_bytes[CPU] = machine_free_bytes[CPU] = 64 * GB;
    /* 7 GB would fit, but a card needs a copy of the base. */
    machine_add_job(machine, "a", "auto", NEEDS("7000000000", "7000000000", "1000000000"));
    assert_string_equal(machine_take(machine, GPU0), "");
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_int_equal(
        machine_count_events(machine, "a", "cuda:0 is too small: the job needs 8.0 GB"), 1);
    warnings = warnings_of(machine, "a");
    assert_non_null(strstr(warnings, "\"rule\":\"device\""));
    assert_non_null(
        strstr(warnings, "The job runs on cpu:0 and not on a GPU: cuda:0 is too small"));
    free(warnings);
}

static void a_job_too_large_for_what_it_asks_for_fails_with_both_figures(void **state)
{
    static const char *const wanted[] = {"cuda:1", "cuda", "auto", "cpu"};
    struct machine *machine = *state;

    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        struct job_record job;

        machine_add_job(machine, wanted[i], wanted[i], NEEDS("9000000000", "9000000000", "0"));
        job = machine_get(machine, wanted[i]);
        assert_int_equal(job.state, JOB_FAILED);
        assert_int_equal(job.attempt_count, 0); /* no device was taken */
        assert_string_equal(job.error_code, "no_memory");
        if (!strstr(job.error_message,
                    "9000000000 bytes of memory are needed, 7500000000 are available"))
            fail_msg("%s: %s", wanted[i], job.error_message);
    }
}

static void the_daemons_limit_is_a_limit_for_every_device(void **state)
{
    struct machine *machine = *state;
    struct queue_claim claim;

    machine->options.memory_limit_bytes = 2 * GB;
    machine_add_job(machine, "a", "auto", NEEDS_3_GB);
    assert_int_equal(machine_get(machine, "a").state, JOB_FAILED);
    machine_add_job(machine, "b", "auto", NEEDS("1000000000", "3000000000", "0"));
    claim = machine_claim(machine, GPU0);
    assert_true(claim.found);
    assert_int_equal(claim.memory_limit_bytes, 2 * GB);
}

static void a_card_out_of_service_is_judged_by_what_it_had(void **state)
{
    struct machine *machine = *state;

    machine->devices.items[GPU0].description.memory_total_bytes = 8 * GB;
    machine_set_service(machine, GPU0, "it fell off the bus");
    machine_add_job(machine, "fits", "cuda:0", NEEDS_3_GB);
    machine_add_job(machine, "never", "cuda:0", NEEDS("9000000000", "9000000000", "0"));
    check_reason(machine, "fits", "cuda:0 is out of service: it fell off the bus");
    assert_int_equal(machine_get(machine, "never").state, JOB_FAILED);
}

static void a_job_for_a_card_that_is_gone_says_so(void **state)
{
    struct machine *machine = *state;

    machine_add_job(machine, "a", "cuda:7", NEEDS_3_GB); /* it was there before the last restart */
    for (size_t i = 0; i < MACHINE_DEVICE_COUNT; i++)
        assert_string_equal(machine_take(machine, i), "");
    check_reason(machine, "a", "no device 'cuda:7': there is auto, cpu:0, cuda:0, cuda:1");
}

/* ---- sharing ----------------------------------------------------------------------------------------- */

static void jobs_go_to_the_emptier_card_and_then_share(void **state)
{
    static const char *const ids[] = {"a", "b", "c", "d", "e"};
    struct machine *machine = *state;

    for (size_t i = 0; i < COUNT_OF(ids); i++)
        machine_add_job(machine, ids[i], "auto", NEEDS("1000000000", "1000000000", "0"));
    assert_string_equal(machine_take(machine, GPU0_A), "a");
    assert_string_equal(machine_take(machine, GPU0_B), ""); /* cuda:1 is idle */
    assert_string_equal(machine_take(machine, GPU1_B), "b");
    assert_string_equal(machine_take(machine, GPU0_B), "c");
    assert_string_equal(machine_take(machine, GPU1_A), "d");
    assert_string_equal(machine_take(machine, CPU_A), "");
    check_reason(machine, "e", "waits for a device: cuda:0 is busy; cuda:1 is busy");
    assert_true(machine_end(machine, GPU0_A, "a", OUTCOME_SUCCEEDED, NULL));
    assert_string_equal(machine_take(machine, GPU0_A), "e");
}

static void what_others_have_still_to_take_is_not_free(void **state)
{
    struct machine *machine = *state;
    struct queue_claim claim;

    machine_set_service(machine, GPU1_A, "it is too hot");
    machine_add_job(machine, "a", "cuda", NEEDS("2000000000", "3000000000", "1000000000"));
    claim = machine_claim(machine, GPU0_A);
    assert_true(claim.found);
    assert_int_equal(claim.memory_limit_bytes, 0); /* all that it wants is free */
    machine_add_job(machine, "b", "cuda", NEEDS("3600000000", "4000000000", "0"));
    assert_string_equal(machine_take(machine, GPU0_B), ""); /* 7.5 less 4 for the first */
    machine_free_bytes[GPU0] = 4 * GB;                      /* which takes them now */
    assert_true(slots_settle(&machine->queue->slots, GPU0_A));
    assert_false(slots_settle(&machine->queue->slots, GPU0_A));
    claim = machine_claim(machine, GPU0_B);
    assert_true(claim.found); /* 3.75 are enough, though less than it wants */
    assert_int_equal(claim.memory_limit_bytes, 3750000000);
    assert_true(machine_end(machine, GPU0_B, "b", OUTCOME_SUCCEEDED, NULL));
    machine_add_job(machine, "c", "cuda", NEEDS("3600000000", "3600000000", "0"));
    assert_string_equal(machine_take(machine, GPU0_B), "c"); /* nothing is left reserved */
}

/* A card takes a whole batch at once, a processor in pieces: its plan is the larger one. */
static void a_card_keeps_for_a_job_what_its_plan_takes_there(void **state)
{
    struct machine *machine = *state;

    machine_set_service(machine, GPU1_A, "it is too hot");
    machine_add_job(machine, "a", "cuda",
                    "{\"memory_needs\":{\"least_bytes\":1000000000,\"wanted_bytes\":1000000000,"
                    "\"base_bytes\":0,\"card_wanted_bytes\":6000000000}}");
    assert_string_equal(machine_take(machine, GPU0_A), "a");
    machine_add_job(machine, "b", "cuda", NEEDS("2000000000", "2000000000", "0"));
    assert_string_equal(machine_take(machine, GPU0_B), ""); /* 1.5 are left */
    machine_add_job(machine, "c", "cuda", NEEDS("1000000000", "1000000000", "0"));
    assert_string_equal(machine_take(machine, GPU0_B), "c");
}

static void a_card_that_fails_is_out_of_service_with_all_its_slots(void **state)
{
    static const struct error why = {.code = ERR_DEVICE, .message = "it fell off the bus"};
    static const struct error later = {.code = ERR_DEVICE, .message = "as the other one said"};
    struct machine *machine = *state;

    machine_add_job(machine, "a", "auto", NEEDS_3_GB);
    machine_add_job(machine, "b", "cuda:0", NEEDS_3_GB);
    machine_add_job(machine, "c", "auto", NEEDS_3_GB);
    assert_string_equal(machine_take(machine, GPU0_A), "a");
    assert_string_equal(machine_take(machine, GPU0_B), "b");
    assert_true(machine_end(machine, GPU0_A, "a", OUTCOME_DEVICE_FAULT, &why));
    assert_int_equal(slots_devices_in_service(&machine->queue->slots), 2);
    assert_string_equal(machine_take(machine, GPU0_A), "");
    assert_true(machine_end(machine, GPU0_B, "b", OUTCOME_DEVICE_FAULT, &later));
    assert_string_equal(machine_take(machine, GPU0_B), "");
    check_reason(machine, "b", "cuda:0 is out of service: it fell off the bus");
    assert_string_equal(machine_take(machine, GPU1_A), "a"); /* first again */
    assert_string_equal(machine_take(machine, GPU1_B), "c");
    assert_int_equal(machine_get(machine, "a").fault_count, 1);
}

static void the_inventory_lists_the_jobs_of_a_device(void **state)
{
    struct machine *machine = *state;
    struct json *devices;
    struct error err = {0};
    char *text = NULL;

    machine_add_job(machine, "a", "cuda:1", NULL);
    machine_add_job(machine, "b", "cuda:1", NULL);
    assert_string_equal(machine_take(machine, GPU1_B), "a");
    assert_string_equal(machine_take(machine, GPU1_A), "b");
    devices = slots_json(&machine->queue->slots, machine->queue->inventory);
    assert_int_equal(json_count(devices), MACHINE_DEVICE_COUNT);
    assert_true(json_print_text(json_at(devices, GPU1), &text, &err));
    if (!strstr(text, "\"job\":\"b\",\"jobs\":[\"b\",\"a\"]") || !strstr(text, "\"jobs_max\":2"))
        fail_msg("%s", text);
    free(text);
    assert_true(json_print_text(json_at(devices, GPU0), &text, &err));
    assert_non_null(strstr(text, "\"job\":null,\"jobs\":[]"));
    free(text);
    json_free(devices);
}

static void slots_of_a_processor_share_its_threads(void **state)
{
    static const struct {
        size_t jobs_per_device;
        int threads;
        size_t cpu_slots;
        int threads_each;
        size_t gpu_slots;
    } cases[] = {
        {0, 8, 1, 8, 1}, {1, 8, 1, 8, 1}, {2, 8, 2, 4, 2},
        {3, 8, 3, 2, 3}, {4, 2, 2, 1, 4}, {1000, 64, 8, 8, 8},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct machine *machine = machine_new(cases[i].jobs_per_device, cases[i].threads);
        const struct slots *slots = &machine->queue->slots;

        assert_int_equal(slots->devices[CPU].slot_count, cases[i].cpu_slots);
        assert_int_equal(slots->devices[GPU1].slot_count, cases[i].gpu_slots);
        assert_int_equal(slots->count, cases[i].cpu_slots + 2 * cases[i].gpu_slots);
        for (size_t slot = 0; slot < slots->count; slot++)
            assert_int_equal(slots->items[slot].thread_count,
                             slot < cases[i].cpu_slots ? cases[i].threads_each : 1);
        machine_free(machine);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define SHARED(name) cmocka_unit_test_setup_teardown(name, set_up_shared, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(auto_waits_for_a_card_whose_memory_is_taken),
        TEST(a_named_card_whose_memory_is_taken_is_waited_for),
        TEST(a_platform_gives_the_card_that_has_room),
        TEST(one_that_waits_does_not_stop_the_others),
        TEST(what_cannot_be_told_counts_as_fitting),
        TEST(what_a_running_job_still_writes_is_not_given_to_the_next),
        TEST(a_job_too_large_for_the_cards_runs_on_the_processor_with_a_warning),
        TEST(a_job_too_large_for_what_it_asks_for_fails_with_both_figures),
        TEST(the_daemons_limit_is_a_limit_for_every_device),
        TEST(a_card_out_of_service_is_judged_by_what_it_had),
        TEST(a_job_for_a_card_that_is_gone_says_so),
        SHARED(jobs_go_to_the_emptier_card_and_then_share),
        SHARED(what_others_have_still_to_take_is_not_free),
        SHARED(a_card_keeps_for_a_job_what_its_plan_takes_there),
        SHARED(a_card_that_fails_is_out_of_service_with_all_its_slots),
        SHARED(the_inventory_lists_the_jobs_of_a_device),
        cmocka_unit_test(slots_of_a_processor_share_its_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

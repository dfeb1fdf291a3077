/* Proves: which jobs a create with lists of values makes, in which order, what it refuses, that they are
 * made all or none and cancelled together. */
#include "daemon/base/json.h"
#include "daemon/sched/sweep.h"
#include "tests/support/bench.h"
#include "tests/support/machine.h"

static struct error fault; /* of the last call */

static struct json *parse(const char *text)
{
    struct json *json = NULL;

    if (!json_parse(text, strlen(text), &json, &fault))
        fail_msg("%s: %s", text, fault.message);
    return json;
}

static bool expand(const char *text, struct sweep_bodies *bodies)
{
    struct json *body = parse(text);
    bool ok;

    fault = (struct error){0};
    ok = sweep_expand(body, bodies, &fault);
    assert_int_equal(sweep_is_meant(body), ok || !strstr(fault.message, "nothing is varied"));
    json_free(body);
    return ok;
}

static void check_text(struct json *json, const char *expected)
{
    char *text = NULL;

    assert_true(json_print_text(json, &text, &fault));
    assert_string_equal(text, expected);
    free(text);
}

static void every_combination_becomes_a_body_the_last_list_fastest(void **state)
{
    static const char *const expected[] = {
        "{\"model\":\"m\",\"hyperparameters\":{\"lora_rank\":4,\"n_epochs\":2,"
        "\"numerics\":\"w4a8\"},\"seed\":7}",
        "{\"model\":\"m\",\"hyperparameters\":{\"lora_rank\":4,\"n_epochs\":2,"
        "\"numerics\":\"float32\"},\"seed\":7}",
        "{\"model\":\"m\",\"hyperparameters\":{\"lora_rank\":8,\"n_epochs\":2,"
        "\"numerics\":\"w4a8\"},\"seed\":7}",
        "{\"model\":\"m\",\"hyperparameters\":{\"lora_rank\":8,\"n_epochs\":2,"
        "\"numerics\":\"float32\"},\"seed\":7}",
    };
    struct sweep_bodies bodies;

    (void)state;
    if (!expand("{\"model\":\"m\",\"hyperparameters\":{\"lora_rank\":[4,8],\"n_epochs\":2,"
                "\"numerics\":[\"w4a8\",\"float32\"]},\"seed\":7}",
                &bodies))
        fail_msg("%s", fault.message);
    assert_int_equal(bodies.count, COUNT_OF(expected));
    for (size_t i = 0; i < bodies.count; i++)
        check_text(bodies.items[i], expected[i]);
    check_text(bodies.varied, "{\"lora_rank\":[4,8],\"numerics\":[\"w4a8\",\"float32\"]}");
    sweep_bodies_release(&bodies);
}

static void lists_are_found_wherever_hyperparameters_stand_and_in_the_seed(void **state)
{
    struct sweep_bodies bodies;

    (void)state;
    assert_true(expand("{\"training_files\":[\"a\",\"b\"],\"seed\":[1,2,3],\"method\":{\"type\":"
                       "\"supervised\",\"supervised\":{\"hyperparameters\":{\"lora_rank\":[4]}}}}",
                       &bodies));
    assert_int_equal(bodies.count, 3);
    check_text(bodies.items[2],
               "{\"training_files\":[\"a\",\"b\"],\"seed\":3,\"method\":{\"type\":\"supervised\","
               "\"supervised\":{\"hyperparameters\":{\"lora_rank\":4}}}}");
    check_text(bodies.varied, "{\"seed\":[1,2,3],\"lora_rank\":[4]}");
    sweep_bodies_release(&bodies);
}

static void lists_that_make_no_sweep_are_refused_by_name(void **state)
{
    static const struct {
        const char *body, *param, *word;
    } cases[] = {
        {"{}", "hyperparameters", "nothing is varied"},
        {"{\"training_files\":[\"a\"]}", "hyperparameters", "nothing is varied"},
        {"{\"metadata\":{\"hyperparameters\":{\"a\":[1]}}}", "hyperparameters",
         "nothing is varied"},
        {"{\"hyperparameters\":[1]}", "hyperparameters", "nothing is varied"},
        {"{\"hyperparameters\":{\"lora_rank\":[]}}", "lora_rank", "empty"},
        {"{\"hyperparameters\":{\"lora_rank\":[4,8,4]}}", "lora_rank", "twice, at 0 and 2"},
        {"{\"hyperparameters\":{\"lora_rank\":[4,4.0]}}", "lora_rank", "twice"},
        {"{\"hyperparameters\":{\"numerics\":[\"w4a8\",\"w4a8\"]}}", "numerics", "twice"},
        {"{\"hyperparameters\":{\"lora_rank\":[4,null]}}", "lora_rank", "lora_rank[1]"},
        {"{\"hyperparameters\":{\"lora_rank\":[[4]]}}", "lora_rank", "lora_rank[0]"},
        {"{\"hyperparameters\":{\"lora_rank\":[{}]}}", "lora_rank", "lora_rank[0]"},
        {"{\"hyperparameters\":{\"lora_rank\":[1,2,3,4,5]},\"seed\":[1,2,3,4,5,6,7,8,9,10,11,12,"
         "13]}",
         "seed", "65 jobs or more, at most 64"},
    };
    struct sweep_bodies bodies;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (expand(cases[i].body, &bodies) || fault.code != ERR_INVALID ||
            strcmp(fault.param, cases[i].param) != 0 || !strstr(fault.message, cases[i].word))
            fail_msg("%s: '%s', %s", cases[i].body, fault.param, fault.message);
    }
}

static void sixty_four_jobs_are_the_most(void **state)
{
    struct sweep_bodies bodies;

    (void)state;
    assert_true(
        expand("{\"hyperparameters\":{\"a\":[1,2,3,4],\"b\":[1,2,3,4],\"c\":[1,2,3,4]}}", &bodies));
    assert_int_equal(bodies.count, 64);
    check_text(bodies.items[63], "{\"hyperparameters\":{\"a\":4,\"b\":4,\"c\":4}}");
    sweep_bodies_release(&bodies);
}

/* ---- on a machine without threads --------------------------------------------------------------------- */

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

/* A sweep of jobs with those ids, each a letter. */
static bool keep(struct machine *machine, const char *ids, int64_t jobs_max)
{
    static char empty[] = "{}";
    struct sweep *sweep = calloc(1, sizeof(*sweep));
    bool ok;

    assert_non_null(sweep);
    fault = (struct error){0};
    sweep->asked.jobs_max = jobs_max;
    sweep->asked.repeat_since_unix_s = INT64_MAX;
    sweep->record = (struct sweep_record){.id = "s", .request_json = empty, .varied_json = empty};
    for (const char *at = ids; *at; at++) {
        struct job_record *job = &sweep->jobs[sweep->count++];

        *job = (struct job_record){
            .id = {*at}, .base_model = "m", .device_wanted = "cpu", .sweep_id = "s"};
    }
    ok = sweep_keep(machine->queue, sweep, &fault);
    free(sweep);
    return ok;
}

static void check_job(struct machine *machine, const char *id, enum job_state state)
{
    assert_int_equal(machine_get(machine, id).state, state);
}

static void a_sweep_is_made_whole_or_not_at_all(void **state)
{
    struct machine *machine = *state;
    struct sweep_record sweep;
    struct job_record job;

    assert_false(keep(machine, "abca", 0)); /* the last one is there already */
    assert_false(jobs_get(machine->store, "a", &job, &fault));
    assert_false(sweeps_get(machine->store, "s", &sweep, &fault));
    assert_false(keep(machine, "abc", 2));
    assert_string_equal(fault.word, "queue_limit_reached");
    assert_false(jobs_get(machine->store, "a", &job, &fault));
    if (!keep(machine, "abc", 3))
        fail_msg("%s", fault.message);
    check_job(machine, "c", JOB_VALIDATING_FILES);
    assert_int_equal(machine_count_events(machine, "b", "of sweep s"), 1);
    assert_true(sweeps_get(machine->store, "s", &sweep, &fault));
    sweep_record_release(&sweep);
}

static void a_cancel_ends_all_that_have_not_ended(void **state)
{
    struct machine *machine = *state;
    struct queue_verdict good = {.job_id = "a"}, bad = {.job_id = "b", .fault = &fault};
    struct sweep_end end = {.sweep_id = "s"};

    assert_true(keep(machine, "abc", 0));
    assert_true(queue_judge(machine->queue, &good, &fault));
    fault = (struct error){.code = ERR_INVALID, .message = "no target"};
    assert_true(queue_judge(machine->queue, &bad, &(struct error){0}));
    assert_string_equal(machine_take(machine, CPU), "a");
    if (!sweep_cancel(machine->queue, &end, &fault))
        fail_msg("%s", fault.message);
    assert_int_equal(end.count, 2);
    check_job(machine, "a", JOB_CANCELLED);
    check_job(machine, "b", JOB_FAILED);
    check_job(machine, "c", JOB_CANCELLED);
    assert_true(atomic_load(&machine->queue->slots.items[CPU].stop));
    end.count = 0;
    assert_true(sweep_cancel(machine->queue, &end, &fault)); /* again */
    assert_int_equal(end.count, 0);
}

static void a_sweep_that_has_ended_or_is_not_there_is_not_cancelled(void **state)
{
    struct machine *machine = *state;
    struct queue_verdict bad = {.job_id = "a", .fault = &fault};
    struct sweep_end end = {.sweep_id = "s"};

    assert_false(sweep_cancel(machine->queue, &end, &fault));
    assert_int_equal(fault.code, ERR_NOT_FOUND);
    assert_true(keep(machine, "a", 0));
    fault = (struct error){.code = ERR_INVALID, .message = "no target"};
    assert_true(queue_judge(machine->queue, &bad, &(struct error){0}));
    assert_false(sweep_cancel(machine->queue, &end, &fault));
    assert_int_equal(fault.code, ERR_CONFLICT);
    (void)snprintf(end.sweep_id, sizeof(end.sweep_id), "%s", ""); /* jobs without a sweep */
    machine_add_job(machine, "z", "cpu", NULL);
    assert_false(sweep_cancel(machine->queue, &end, &fault));
    assert_int_equal(fault.code, ERR_NOT_FOUND);
    check_job(machine, "z", JOB_QUEUED);
}

/* ---- with all threads --------------------------------------------------------------------------------- */

static void a_create_with_lists_makes_its_jobs_and_a_bad_value_none(void **state)
{
    static const char ranks[] = "{'model':'needle-3','training_file':'%s','hyperparameters':{"
                                "'n_epochs':1,'lora_rank':[2,%d]}}";
    struct bench *bench = bench_new();
    const char *file = bench_upload_lines(bench, 12);
    struct job_record first, *jobs = NULL;
    char id[STORE_ID_SIZE];
    size_t count = 0;

    (void)state;
    assert_false(bench_submit(bench, id, &fault, ranks, file, 100000));
    assert_string_equal(fault.param, "lora_rank");
    assert_true(jobs_list_waiting(bench->store, 10, &jobs, &count, &fault));
    assert_int_equal(count, 0);
    if (!bench_submit(bench, id, &fault, ranks, file, 4))
        fail_msg("%s", fault.message);
    bench_get(bench, id, &first);
    assert_true(jobs_list_sweep(bench->store, first.sweep_id, &jobs, &count, &fault));
    assert_int_equal(count, 2);
    assert_string_equal(jobs[0].id, id);
    assert_non_null(strstr(jobs[0].hyperparameters_json, "\"lora_rank\":2,"));
    assert_non_null(strstr(jobs[1].hyperparameters_json, "\"lora_rank\":4,"));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(bench_wait(bench, jobs[i].id, JOB_SUCCEEDED), JOB_SUCCEEDED);
    job_record_release(&first);
    jobs_free(jobs, count);
    bench_free(bench);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_becomes_a_body_the_last_list_fastest),
        cmocka_unit_test(lists_are_found_wherever_hyperparameters_stand_and_in_the_seed),
        cmocka_unit_test(lists_that_make_no_sweep_are_refused_by_name),
        cmocka_unit_test(sixty_four_jobs_are_the_most),
        TEST(a_sweep_is_made_whole_or_not_at_all),
        TEST(a_cancel_ends_all_that_have_not_ended),
        TEST(a_sweep_that_has_ended_or_is_not_there_is_not_cancelled),
        cmocka_unit_test(a_create_with_lists_makes_its_jobs_and_a_bad_value_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves: a job goes from create to its model, or to a failure that names the lines; cancel, stop
 * and start, and a second job in line do what the design says, with nothing after the last word. */
#include "daemon/base/json.h"
#include "daemon/model/safetensors.h"
#include "daemon/sched/datasets.h"
#include "store/checkpoints.h"
#include "store/models.h"
#include "tests/support/bench.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#define LINES 12

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

/* Numbers grow by one, steps count 1, 2, 3, and the last event is the only "done". */
static void check_feed(struct bench *bench, const char *job_id, const char *status,
                       size_t step_count)
{
    size_t count = 0, steps = 0;
    struct event_record *events = bench_events(bench, job_id, &count);
    char wanted[64];

    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(events[i].number, i + 1);
        if (strcmp(events[i].type, "done") == 0 && i + 1 != count)
            fail_msg("event %zu of %zu is the last word", i + 1, count);
        if (strcmp(events[i].type, "metrics") == 0) {
            (void)snprintf(wanted, sizeof(wanted), "\"step\":%zu,", ++steps);
            if (!strstr(events[i].data_json, wanted))
                fail_msg("step %zu: %s", steps, events[i].data_json);
        }
    }
    assert_string_equal(events[count - 1].type, "done");
    (void)snprintf(wanted, sizeof(wanted), "\"status\":\"%s\"", status);
    assert_non_null(strstr(events[count - 1].data_json, wanted));
    if (step_count != SIZE_MAX)
        assert_int_equal(steps, step_count);
    events_free(events, count);
}

static void check_model(struct bench *bench, const char *id, int64_t step)
{
    struct model_record model;
    struct error err = {0};
    struct safetensors *file = NULL;
    char path[4096];

    if (!models_get(bench->store, id, &model, &err) ||
        !artifact_path(path, sizeof(path), bench->state, model.artifact, &err) ||
        !safetensors_open(path, &file, &err))
        fail_msg("%s: %s", id, err.message);
    assert_int_equal(model.step, step);
    assert_string_equal(model.device, "cpu:0");
    assert_true(model.size_bytes > 0 && strlen(model.sha256) == 64);
    assert_true(safetensors_count(file) > 0);
    safetensors_close(file);
}

static void a_job_trains_and_leaves_a_model_its_checkpoints_and_its_story(void **state)
{
    struct bench *bench = *state;
    struct store_page page = {.after = "", .limit = 10};
    struct checkpoint_record *checkpoints = NULL;
    struct error err = {0};
    struct job_record job;
    size_t count = 0;
    bool more;
    char id[STORE_ID_SIZE], model[STORE_NAME_SIZE];

    bench_submit_small(bench, bench_upload_lines(bench, LINES),
                       "'n_epochs':2,'batch_size':4,'val_split':0.25", id);
    assert_int_equal(bench_wait(bench, id, JOB_SUCCEEDED), JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_int_equal(job.total_steps, 6); /* 9 lines train: 3 batches, twice */
    assert_int_equal(job.completed_steps, 6);
    assert_true(job.trained_tokens > 0 && isfinite(job.last_train_loss));
    assert_string_equal(job.device_used, "cpu:0");
    assert_non_null(strstr(job.plan_json, "\"weights_bytes\":"));
    assert_non_null(strstr(job.plan_json, "\"target_tokens\":"));
    (void)snprintf(model, sizeof(model), "ft:needle-3:local:small:%s", id + strlen(id) - 8);
    assert_string_equal(job.fine_tuned_model, model);
    job_record_release(&job);
    check_feed(bench, id, "succeeded", 6);
    assert_int_equal(bench_count_events(bench, id, "validation", "full validation loss"), 2);
    assert_int_equal(bench_count_events(bench, id, "checkpoint", "step 3"), 1);

    assert_true(checkpoints_list(bench->store, id, &page, &checkpoints, &count, &more, &err));
    assert_int_equal(count, 2);
    assert_int_equal(checkpoints[0].step, 6);
    assert_int_equal(checkpoints[1].step, 3);
    assert_true(isfinite(checkpoints[0].valid_loss));
    check_model(bench, model, 0);
    check_model(bench, checkpoints[0].model_id, 6);
    check_model(bench, checkpoints[1].model_id, 3);
    free(checkpoints);
}

static void every_step_tells_all_that_was_promised(void **state)
{
    static const char *const names[] = {
        "step",          "total_steps",   "epoch",
        "train_loss",    "learning_rate", "train_mean_token_accuracy",
        "grad_norm",     "tokens",        "tokens_per_second",
        "trained_tokens"};
    struct bench *bench = *state;
    struct event_record *events;
    struct json *data = NULL;
    struct error err = {0};
    size_t count = 0, seen = 0;
    char id[STORE_ID_SIZE];

    bench_submit_small(bench, bench_upload_lines(bench, 4), "'n_epochs':1,'val_split':0", id);
    bench_wait(bench, id, JOB_SUCCEEDED);
    events = bench_events(bench, id, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(events[i].type, "metrics") != 0)
            continue;
        assert_true(json_parse(events[i].data_json, strlen(events[i].data_json), &data, &err));
        for (size_t n = 0; n < COUNT_OF(names); n++) {
            const struct json *member = json_member(data, names[n]);

            if (!member || json_kind_of(member) != JSON_NUMBER)
                fail_msg("'%s' in %s", names[n], events[i].data_json);
        }
        json_free(data);
        seen++;
    }
    events_free(events, count);
    assert_int_equal(seen, 1);
    assert_int_equal(bench_count_events(bench, id, NULL, "no validation"), 1);
}

static int64_t bytes_of(const struct json *memory, const char *name)
{
    int64_t bytes = 0;
    struct error err = {0};

    if (!json_get_int(memory, name, true, 0, INT64_MAX / 8, &bytes, &err))
        fail_msg("%s", err.message);
    return bytes;
}

static void the_memory_of_a_job_is_told_before_its_first_step(void **state)
{
    struct bench *bench = *state;
    struct event_record *events;
    struct json *plan = NULL, *told = NULL;
    struct error err = {0};
    struct job_record job;
    size_t count = 0, at = 0;
    char id[STORE_ID_SIZE];

    bench_submit_small(bench, bench_upload_lines(bench, LINES), "'n_epochs':1,'batch_size':4", id);
    assert_int_equal(bench_wait(bench, id, JOB_SUCCEEDED), JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_true(json_parse(job.plan_json, strlen(job.plan_json), &plan, &err));
    const struct json *memory = json_member(plan, "memory");
    assert_non_null(memory);
    assert_int_equal(bytes_of(memory, "total_bytes"),
                     bytes_of(memory, "weights_bytes") +
                         bytes_of(memory, "adapter_and_optimizer_bytes") +
                         bytes_of(memory, "activations_bytes") + bytes_of(memory, "other_bytes"));
    assert_true(bytes_of(memory, "mapped_bytes") > 1000000); /* of the small base */
    assert_true(bytes_of(memory, "batch_tokens") > 0);
    assert_int_equal(bytes_of(memory, "recomputed_layers"), 0);

    events = bench_events(bench, id, &count);
    while (at < count && !strstr(events[at].message, "Memory: "))
        at++;
    assert_true(at < count);
    assert_true(json_parse(events[at].data_json, strlen(events[at].data_json), &told, &err));
    assert_int_equal(bytes_of(told, "total_bytes"), bytes_of(memory, "total_bytes"));
    for (size_t i = 0; i < at; i++)
        assert_string_not_equal(events[i].type, "metrics");
    events_free(events, count);
    json_free(told);
    json_free(plan);
    job_record_release(&job);
}

static void a_job_that_cannot_fit_fails_with_both_numbers(void **state)
{
    struct bench *bench = *state;
    struct job_record job;
    char id[STORE_ID_SIZE];

    bench_stop(bench);
    bench->options.memory_limit_bytes = 1000003;
    bench_start(bench);
    bench_submit_small(bench, bench_upload_lines(bench, LINES), "'n_epochs':1,'batch_size':4", id);
    assert_int_equal(bench_wait(bench, id, JOB_FAILED), JOB_FAILED);
    bench_get(bench, id, &job);
    if (strtoull(job.error_message, NULL, 10) <= 1000003 ||
        !strstr(job.error_message, "bytes of memory are needed, 1000003 are available"))
        fail_msg("%s: %s", job.error_code, job.error_message);
    assert_string_equal(job.error_code, "no_memory");
    job_record_release(&job);
    check_feed(bench, id, "failed", 0);
}

static void lines_that_strict_reading_refuses_fail_the_job_by_name(void **state)
{
    static const char text[] = "{\"query\":\"a\",\"tools\":[],\"answers\":[]}\n"
                               "{\"query\":\"b\",\"query\":\"c\",\"tools\":[],\"answers\":[]}\n"
                               "\n"
                               "{\"tools\":[],\"answers\":[]}\n";
    struct bench *bench = *state;
    struct job_record job;
    char id[STORE_ID_SIZE];

    bench_submit_small(bench, bench_upload(bench, text, strlen(text)), "", id);
    assert_int_equal(bench_wait(bench, id, JOB_FAILED), JOB_FAILED);
    bench_get(bench, id, &job);
    assert_string_equal(job.error_param, "training_file");
    assert_string_equal(job.error_code, "invalid_training_file");
    assert_non_null(strstr(job.error_message, "line 2"));
    assert_non_null(strstr(job.error_lines_json, "\"line\":2"));
    assert_non_null(strstr(job.error_lines_json, "\"line\":4"));
    assert_int_equal(job.attempt_count, 0); /* no device was taken */
    assert_true(job.finished_unix_s > 0);
    job_record_release(&job);
    check_feed(bench, id, "failed", 0);

    bench_submit_small(bench, bench_upload(bench, text, strlen(text)),
                       "'data_rules':'as_reference','n_epochs':1", id);
    bench_wait(bench, id, JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_non_null(strstr(job.warnings_json, "duplicate_key"));
    assert_non_null(strstr(job.warnings_json, "skipped"));
    job_record_release(&job);
    assert_int_equal(bench_count_events(bench, id, NULL, "1 lines are skipped, 2 examples"), 1);
}

static void a_validation_file_that_is_refused_is_the_one_named(void **state)
{
    static const char bad[] = "{\"query\":\"b\",\"answers\":[]}\n{\"answers\":[]}\n";
    struct bench *bench = *state;
    struct error err = {0};
    struct job_record job;
    char id[STORE_ID_SIZE], training[STORE_ID_SIZE];

    (void)snprintf(training, sizeof(training), "%s", bench_upload_lines(bench, 4));
    if (!bench_submit(bench, id, &err,
                      "{'model':'needle-3','training_file':'%s','validation_file':'%s'}", training,
                      bench_upload(bench, bad, strlen(bad))))
        fail_msg("%s", err.message);
    bench_wait(bench, id, JOB_FAILED);
    bench_get(bench, id, &job);
    assert_string_equal(job.error_param, "validation_file");
    assert_non_null(strstr(job.error_lines_json, "\"line\":2"));
    job_record_release(&job);
}

static void two_jobs_at_once_run_one_after_the_other(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, LINES);
    struct job_record first, second;
    char a[STORE_ID_SIZE], b[STORE_ID_SIZE];

    bench_submit_small(bench, file, "'n_epochs':2,'batch_size':4", a);
    bench_submit_small(bench, file, "'n_epochs':1,'batch_size':4", b);
    bench_wait(bench, b, JOB_SUCCEEDED);
    bench_get(bench, a, &first);
    bench_get(bench, b, &second);
    assert_int_equal(first.state, JOB_SUCCEEDED);
    assert_true(second.started_unix_s >= first.finished_unix_s);
    assert_string_not_equal(first.fine_tuned_model, second.fine_tuned_model);
    job_record_release(&first);
    job_record_release(&second);
    check_feed(bench, a, "succeeded", 6);
    check_feed(bench, b, "succeeded", 3);
}

static void a_failed_job_does_not_stop_the_next(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, LINES);
    struct job_record job;
    char a[STORE_ID_SIZE], b[STORE_ID_SIZE];

    /* A rate that no number survives: the first step with it makes the loss infinite or not a
     * number, and the next one is stopped by it. */
    bench_submit_small(bench, file, "'n_epochs':4,'batch_size':4,'learning_rate':1e30", a);
    bench_submit_small(bench, file, "'n_epochs':1", b);
    bench_wait(bench, b, JOB_SUCCEEDED);
    bench_get(bench, a, &job);
    assert_int_equal(job.state, JOB_FAILED);
    assert_non_null(strstr(job.error_message, "step"));
    job_record_release(&job);
    check_feed(bench, a, "failed", SIZE_MAX);
}

/* What the machine's folders are called is the operator's business: the log has it. */
static void a_file_that_is_gone_is_named_by_its_place_and_id(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, LINES);
    struct job_record job;
    char id[STORE_ID_SIZE], path[1024], wanted[128];

    snprintf(path, sizeof(path), "%s/uploads/%s", bench->state, file);
    snprintf(wanted, sizeof(wanted), "'uploads/%s'", file);
    assert_int_equal(remove(path), 0);
    bench_submit_small(bench, file, "'n_epochs':1", id);
    bench_wait(bench, id, JOB_FAILED);
    bench_get(bench, id, &job);
    if (strstr(job.error_message, bench->state) || !strstr(job.error_message, wanted))
        fail_msg("%s", job.error_message);
    job_record_release(&job);
}

static void cancelling_a_running_job_is_its_last_word(void **state)
{
    struct bench *bench = *state;
    struct error err = {0};
    struct job_record job;
    size_t before;
    char id[STORE_ID_SIZE], next[STORE_ID_SIZE];

    hold_steps(3);
    bench_submit_small(bench, bench_upload_lines(bench, 40), "'n_epochs':50,'batch_size':2", id);
    bench_wait_event(bench, id, "metrics", 0);
    if (!scheduler_cancel(bench->scheduler, id, &err))
        fail_msg("%s", err.message);
    hold_let_go();
    bench_get(bench, id, &job); /* committed before the answer */
    assert_int_equal(job.state, JOB_CANCELLED);
    assert_true(job.completed_steps < job.total_steps);
    job_record_release(&job);
    before = bench_count_events(bench, id, NULL, "");
    check_feed(bench, id, "cancelled", SIZE_MAX);
    assert_true(scheduler_cancel(bench->scheduler, id, &err)); /* harmless */

    /* The device is free again, and nothing was added meanwhile. */
    bench_submit_small(bench, bench_upload_lines(bench, 4), "'n_epochs':1", next);
    bench_wait(bench, next, JOB_SUCCEEDED);
    assert_int_equal(bench_count_events(bench, id, NULL, ""), before);
    assert_false(scheduler_cancel(bench->scheduler, next, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_false(scheduler_cancel(bench->scheduler, "ftjob-none", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* Files of epochs in the job's checkpoint folder. */
static size_t count_epoch_files(const struct bench *bench, const char *id)
{
    char path[1024];
    size_t count = 0;

    (void)snprintf(path, sizeof(path), "%s/checkpoints/%s", bench->state, id);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += strncmp(entry->d_name, "epoch-", strlen("epoch-")) == 0;
    (void)closedir(folder);
    return count;
}

/* An epoch ends every few milliseconds, so that a cancel now and then falls between the file of one
 * and its record; such a file would never be found again. */
static void a_cancelled_job_leaves_no_checkpoint_without_a_record(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, 2);
    struct error err = {0};

    for (size_t round = 0; round < 12; round++) {
        struct store_page page = {.after = "", .limit = 100};
        struct checkpoint_record *checkpoints = NULL;
        char id[STORE_ID_SIZE], next[STORE_ID_SIZE];
        size_t count = 0;
        bool more;

        bench_submit_small(bench, file, "'n_epochs':50,'batch_size':2", id);
        bench_wait_event(bench, id, "checkpoint", 0);
        if (!scheduler_cancel(bench->scheduler, id, &err))
            assert_int_equal(err.code, ERR_CONFLICT); /* a fast machine has made all of them */
        bench_submit_small(bench, file, "'n_epochs':1",
                           next); /* the worker is done with the other */
        bench_wait(bench, next, JOB_SUCCEEDED);
        assert_true(checkpoints_list(bench->store, id, &page, &checkpoints, &count, &more, &err));
        assert_int_equal(count_epoch_files(bench, id), count);
        free(checkpoints);
    }
}

static void cancelling_a_waiting_job_leaves_the_running_one_alone(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, LINES);
    struct error err = {0};
    char a[STORE_ID_SIZE], b[STORE_ID_SIZE];

    hold_steps(3);
    bench_submit_small(bench, file, "'n_epochs':6,'batch_size':2", a);
    bench_submit_small(bench, file, "", b);
    bench_wait_event(bench, a, "metrics", 0);
    assert_int_equal(bench_wait(bench, b, JOB_QUEUED), JOB_QUEUED);
    bench_wait_reason(bench, b, "cpu:0 is busy");
    assert_true(scheduler_cancel(bench->scheduler, b, &err));
    hold_let_go();
    bench_wait(bench, a, JOB_SUCCEEDED);
    check_feed(bench, b, "cancelled", 0);
}

static void a_stopped_daemon_goes_on_where_it_was(void **state)
{
    struct bench *bench = *state;
    struct job_record job;
    int64_t completed;
    char id[STORE_ID_SIZE];

    hold_steps(4);
    bench_submit_small(bench, bench_upload_lines(bench, 20), "'n_epochs':4,'batch_size':4", id);
    bench_wait_event(bench, id, "metrics", bench_wait_event(bench, id, "metrics", 0));
    bench_stop(bench); /* how long one takes is for tests/ops/stop.sh */
    bench_get(bench, id, &job);
    assert_int_equal(job.state, JOB_QUEUED);
    assert_true(job.completed_steps >= 2 && job.completed_steps < job.total_steps);
    completed = job.completed_steps;
    job_record_release(&job);
    assert_int_equal(bench_count_events(bench, id, "state", "The daemon stopped, checkpointed"), 1);

    hold_let_go();
    bench_start(bench);
    bench_wait(bench, id, JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_int_equal(job.completed_steps, job.total_steps);
    assert_int_equal(job.attempt_count, 2);
    job_record_release(&job);
    check_feed(bench, id, "succeeded", 20); /* each step once */
    if (completed > 0)
        assert_int_equal(bench_count_events(bench, id, NULL, "goes on after step"), 1);
}

static void a_job_found_running_is_queued_again_and_says_so(void **state)
{
    struct bench *bench = *state;
    struct error err = {0};
    char id[STORE_ID_SIZE], other[STORE_ID_SIZE];

    /* As a killed daemon leaves them: one running, one whose files were being validated. */
    hold_steps(3);
    bench_submit_small(bench, bench_upload_lines(bench, LINES), "'n_epochs':50,'batch_size':2", id);
    bench_wait_event(bench, id, "metrics", 0);
    bench_stop(bench);
    if (!jobs_move(bench->store, id, JOB_QUEUED, JOB_RUNNING, NULL, NULL, 0, &err))
        fail_msg("%s", err.message);
    bench_start(bench);
    bench_submit_small(bench, bench_upload_lines(bench, 4), "'n_epochs':1", other);
    bench_wait_event(bench, id, "metrics", 0);
    assert_int_equal(bench_count_events(bench, id, "state", "The daemon ended while"), 1);
    assert_true(scheduler_cancel(bench->scheduler, id, &err));
    hold_let_go();
    bench_wait(bench, other, JOB_SUCCEEDED);
}

static void stopping_and_starting_in_haste_loses_nothing(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE];

    bench_submit_small(bench, bench_upload_lines(bench, LINES), "'n_epochs':2,'batch_size':4", id);
    for (int i = 0; i < 5; i++) {
        bench_stop(bench);
        bench_start(bench);
    }
    bench_wait(bench, id, JOB_SUCCEEDED);
    check_feed(bench, id, "succeeded", 6);
}

static void bad_requests_name_their_field_and_make_no_job(void **state)
{
    struct bench *bench = *state;
    const char *file = bench_upload_lines(bench, 2);
    static const struct {
        const char *body, *param;
        enum error_code code;
    } cases[] = {
        {"{'model':'none','training_file':'file-x','hyperparameters':{'n_epochs':0}}", "n_epochs",
         ERR_INVALID},
        {"{'model':'none','training_file':'file-x'}", "training_file", ERR_INVALID},
        {"{'model':'none','training_file':'%s'}", "model", ERR_NOT_FOUND},
        {"{'model':'needle-3','training_file':'%s','validation_file':'file-x'}", "validation_file",
         ERR_INVALID},
        {"{'model':'http://169.254.169.254/x','training_file':'%s'}", "model", ERR_INVALID},
        {"{'model':'../needle-3','training_file':'%s'}", "model", ERR_INVALID},
        {"{'model':'..','training_file':'%s'}", "model", ERR_INVALID},
        {"{'training_file':'%s'}", "model", ERR_INVALID},
        {"{'model':'needle-3'}", "training_file", ERR_INVALID},
        {"{'model':'needle-3','training_file':'%s','device':'cuda'}", "device", ERR_INVALID},
        {"{'model':'needle-3','training_file':'%s','hyperparameters':{'max_len':513}}", "max_len",
         ERR_INVALID},
    };
    struct store_page page = {.after = "", .limit = 10};
    struct job_record *jobs = NULL;
    size_t count = 1;
    bool more;

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};
        char id[STORE_ID_SIZE], body[1024];
        const char *place = strstr(cases[i].body, "%s");

        (void)snprintf(body, sizeof(body), "%.*s%s%s",
                       place ? (int)(place - cases[i].body) : (int)strlen(cases[i].body),
                       cases[i].body, place ? file : "", place ? place + 2 : "");
        if (bench_submit(bench, id, &err, "%s", body))
            fail_msg("%s was taken", body);
        if (err.code != cases[i].code || strcmp(err.param, cases[i].param) != 0)
            fail_msg("%s: code %d, param '%s', %s", body, err.code, err.param, err.message);
    }
    struct error err = {0};

    assert_true(
        jobs_list(bench->store, &(struct jobs_filter){0}, &page, &jobs, &count, &more, &err));
    assert_int_equal(count, 0);
    free(jobs);
}

static void devices_and_health_are_shown(void **state)
{
    struct bench *bench = *state;
    struct json *devices = scheduler_devices_json(bench->scheduler), *health;
    struct error err = {0};
    char *text = NULL, **names = NULL;
    size_t count = 0;
    bool healthy = false;

    assert_true(json_print_text(devices, &text, &err));
    assert_non_null(strstr(text, "\"id\":\"cpu:0\""));
    assert_non_null(strstr(text, "\"in_service\":true"));
    free(text);
    json_free(devices);
    health = scheduler_health_json(bench->scheduler, &healthy);
    assert_true(healthy);
    json_free(health);
    assert_true(scheduler_list_bases(bench->scheduler, &names, &count, &err));
    assert_int_equal(count, 1);
    assert_string_equal(names[0], "needle-3");
    free(names);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_trains_and_leaves_a_model_its_checkpoints_and_its_story),
        TEST(every_step_tells_all_that_was_promised),
        TEST(the_memory_of_a_job_is_told_before_its_first_step),
        TEST(a_job_that_cannot_fit_fails_with_both_numbers),
        TEST(lines_that_strict_reading_refuses_fail_the_job_by_name),
        TEST(a_validation_file_that_is_refused_is_the_one_named),
        TEST(two_jobs_at_once_run_one_after_the_other),
        TEST(a_failed_job_does_not_stop_the_next),
        TEST(a_file_that_is_gone_is_named_by_its_place_and_id),
        TEST(cancelling_a_running_job_is_its_last_word),
        TEST(a_cancelled_job_leaves_no_checkpoint_without_a_record),
        TEST(cancelling_a_waiting_job_leaves_the_running_one_alone),
        TEST(a_stopped_daemon_goes_on_where_it_was),
        TEST(a_job_found_running_is_queued_again_and_says_so),
        TEST(stopping_and_starting_in_haste_loses_nothing),
        TEST(bad_requests_name_their_field_and_make_no_job),
        TEST(devices_and_health_are_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

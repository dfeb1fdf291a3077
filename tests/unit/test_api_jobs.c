/* Proves the objects of jobs, checkpoints and models as clients know them: every field from the first
 * answer on, errors with their lines, lists to their end, and the adapter as a file. */
#include "tests/support/api_daemon.h"

#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/sched/datasets.h"
#include "store/checkpoints.h"
#include "store/models.h"

#define JOB "ftjob-test"
#define JOBS "/v1/fine_tuning/jobs"
#define MODEL "ft:needle:local::abcd1234"

/* The answer's object, for the caller to free. */
static struct json *get(const char *path, int status)
{
    struct web_answer answer;
    struct json *root = NULL;
    struct error err = {0};

    web_call(d.port, "GET", path, &answer);
    if (answer.status != status)
        fail_msg("%s: %d %s", path, answer.status, answer.body);
    api_daemon_must(json_parse(answer.body, answer.size, &root, &err), &err);
    web_release(&answer);
    return root;
}

static const char *text(const struct json *object, const char *name)
{
    const struct json *member = json_member(object, name);

    if (!member)
        fail_msg("there is no field '%s'", name);
    return json_kind_of(member) == JSON_NULL ? NULL : json_text(member);
}

static void a_new_job_has_every_field_a_client_reads(void **state)
{
    (void)state;
    static const char *const required[] = {
        "id",           "object",       "created_at",       "finished_at",      "model",
        "status",       "seed",         "fine_tuned_model", "result_files",     "trained_tokens",
        "error",        "method",       "hyperparameters",  "training_file",    "validation_file",
        "integrations", "metadata",     "organization_id",  "estimated_finish", "device",
        "device_used",  "numerics",     "total_steps",      "completed_steps",  "warnings",
        "plan",         "status_reason"};
    static const char *const null[] = {"finished_at",      "fine_tuned_model", "error",
                                       "trained_tokens",   "validation_file",  "metadata",
                                       "estimated_finish", "device_used",      "plan"};
    static const char *const platform[] = {"name",           "max_depth",        "evaluations",
                                           "training_files", "validation_files", "test_files",
                                           "base_model",     "parent_model"};
    const struct json *hyper;
    struct json *job;

    api_daemon_add_job(&d, JOB);
    job = get(JOBS "/" JOB, 200);
    for (size_t i = 0; i < COUNT_OF(platform); i++) {
        if (!json_member(job, platform[i]))
            fail_msg("there is no field '%s'", platform[i]);
    }
    for (size_t i = 0; i < COUNT_OF(required); i++) {
        if (!json_member(job, required[i]))
            fail_msg("there is no field '%s'", required[i]);
    }
    for (size_t i = 0; i < COUNT_OF(null); i++) {
        if (json_kind_of(json_member(job, null[i])) != JSON_NULL)
            fail_msg("'%s' is not null", null[i]);
    }
    assert_string_equal(text(job, "object"), "fine_tuning.job");
    assert_string_equal(text(job, "name"),
                        "needle-job-test"); /* no suffix: base and end of the id */
    assert_int_equal(json_count(json_member(job, "training_files")), 1);
    assert_int_equal(json_count(json_member(job, "evaluations")), 0);
    assert_string_equal(text(job, "status"), "validating_files");
    assert_int_equal(json_kind_of(json_member(job, "result_files")), JSON_ARRAY);
    hyper = json_member(job, "hyperparameters");
    assert_int_equal(json_number(json_member(hyper, "n_epochs")), 3);
    assert_non_null(json_member(hyper, "batch_size"));
    assert_non_null(json_member(hyper, "learning_rate_multiplier"));
    assert_string_equal(text(json_member(job, "method"), "type"), "supervised");
    hyper = json_member(json_member(json_member(job, "method"), "supervised"), "hyperparameters");
    assert_int_equal(json_number(json_member(hyper, "n_epochs")), 3);
    json_free(job);
}

static void a_failed_job_says_why_and_names_the_lines(void **state)
{
    (void)state;
    struct job_change change = JOB_CHANGE_NONE;
    struct event_draft event = {EVENT_ERROR, "done", "the job has failed", NULL, 0};
    struct error err = {0};
    const struct json *fault, *line;
    struct json *job;

    api_daemon_add_job(&d, JOB);
    change.error_code = "invalid_training_file";
    change.error_param = "training_file";
    change.error_message = "a.jsonl: line 7: no 'query'";
    change.error_lines_json = "[{\"line\":7,\"column\":1,\"field\":\"query\",\"rule\":\"missing\","
                              "\"reason\":\"no 'query'\"}]";
    change.trained_tokens = 0;
    api_daemon_must(
        jobs_move(d.store, JOB, JOB_VALIDATING_FILES, JOB_FAILED, &change, &event, 1, &err), &err);
    job = get(JOBS "/" JOB, 200);
    assert_string_equal(text(job, "status"), "failed");
    fault = json_member(job, "error");
    assert_string_equal(text(fault, "code"), "invalid_training_file");
    assert_string_equal(text(fault, "param"), "training_file");
    assert_non_null(strstr(text(fault, "message"), "line 7"));
    line = json_at(json_member(fault, "lines"), 0);
    assert_int_equal(json_number(json_member(line, "line")), 7);
    assert_int_equal(json_kind_of(json_member(job, "finished_at")), JSON_NUMBER);
    json_free(job);
}

static void jobs_are_walked_newest_first_to_the_end(void **state)
{
    (void)state;
    char path[256] = JOBS "?limit=2", id[64];
    int seen = 0;

    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "ftjob-%d", i);
        api_daemon_add_job(&d, id);
    }
    for (bool more = true; more;) {
        struct json *page = get(path, 200);
        const struct json *data = json_member(page, "data");

        assert_string_equal(text(page, "object"), "list");
        for (const struct json *job = json_first(data); job; job = json_next(job)) {
            snprintf(id, sizeof(id), "ftjob-%d", 4 - seen++);
            assert_string_equal(text(job, "id"), id);
        }
        more = json_flag(json_member(page, "has_more"));
        assert_int_equal(json_count(data), more ? 2 : 1);
        snprintf(path, sizeof(path), JOBS "?limit=2&after=%s", text(page, "last_id"));
        json_free(page);
    }
    assert_int_equal(seen, 5);
}

static void a_page_of_jobs_tells_of_how_many_where_it_is_asked(void **state)
{
    (void)state;
    struct json *page;
    char id[64];

    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "ftjob-%d", i);
        api_daemon_add_job(&d, id);
    }
    page = get(JOBS "?limit=2&count=true&search=B-", 200);
    assert_int_equal(json_number(json_member(page, "total_count")), 5);
    json_free(page);
    page = get(JOBS "?count=true&status=paused", 200);
    assert_int_equal(json_number(json_member(page, "total_count")), 0);
    json_free(page);
    page = get(JOBS "?limit=2&count=false", 200);
    assert_null(json_member(page, "total_count"));
    json_free(page);
    json_free(get(JOBS "?count=maybe", 400));
}

static void checkpoints_are_listed_with_their_metrics(void **state)
{
    (void)state;
    struct checkpoint_record checkpoint = {.id = "ftckpt_1",
                                           .job_id = JOB,
                                           .model_id = MODEL ":ckpt-step-10",
                                           .created_unix_s = 1700000000,
                                           .step = 10,
                                           .train_loss = 1.5,
                                           .train_accuracy = 0.25,
                                           .valid_loss = (double)NAN,
                                           .valid_accuracy = (double)NAN};
    const struct json *first, *metrics;
    struct error err = {0};
    struct json *page;

    api_daemon_add_job(&d, JOB);
    page = get(JOBS "/" JOB "/checkpoints", 200);
    assert_int_equal(json_count(json_member(page, "data")), 0);
    assert_int_equal(json_kind_of(json_member(page, "first_id")), JSON_NULL);
    json_free(page);
    api_daemon_must(checkpoints_insert(d.store, &checkpoint, &err), &err);
    page = get(JOBS "/" JOB "/checkpoints", 200);
    first = json_at(json_member(page, "data"), 0);
    assert_string_equal(text(first, "object"), "fine_tuning.job.checkpoint");
    assert_string_equal(text(first, "fine_tuned_model_checkpoint"), MODEL ":ckpt-step-10");
    assert_string_equal(text(first, "fine_tuning_job_id"), JOB);
    assert_int_equal(json_number(json_member(first, "step_number")), 10);
    metrics = json_member(first, "metrics");
    assert_true(json_number(json_member(metrics, "train_loss")) == 1.5);
    assert_true(json_number(json_member(metrics, "train_mean_token_accuracy")) == 0.25);
    assert_null(json_member(metrics, "full_valid_loss")); /* none was computed */
    json_free(page);
}

static void add_model(const char *id, const char *bytes)
{
    struct model_record model = {.size_bytes = (int64_t)strlen(bytes),
                                 .created_unix_s = 1700000000,
                                 .valid_loss = (double)NAN};
    struct error err = {0};
    char path[1024], folder[600];

    snprintf(model.id, sizeof(model.id), "%s", id);
    snprintf(model.base_model, sizeof(model.base_model), "needle");
    snprintf(model.job_id, sizeof(model.job_id), JOB);
    snprintf(model.artifact, sizeof(model.artifact), "abcd1234.safetensors");
    file_sha256_of(bytes, strlen(bytes), model.sha256);
    snprintf(model.device, sizeof(model.device), "cpu:0");
    snprintf(model.numerics, sizeof(model.numerics), "w4a8");
    snprintf(folder, sizeof(folder), "%s/artifacts", d.folder);
    api_daemon_must(file_make_folder(folder, &err), &err);
    api_daemon_must(artifact_path(path, sizeof(path), d.folder, model.artifact, &err), &err);
    scratch_write(path, bytes, strlen(bytes));
    api_daemon_must(models_insert(d.store, &model, &err), &err);
}

static void models_are_bases_and_what_jobs_made(void **state)
{
    (void)state;
    const struct json *base = NULL, *tuned = NULL;
    struct json *list, *one;

    api_daemon_add_job(&d, JOB);
    add_model(MODEL, "adapter bytes");
    list = get("/v1/models", 200);
    for (const struct json *model = json_first(json_member(list, "data")); model;
         model = json_next(model)) {
        assert_string_equal(text(model, "object"), "model");
        assert_non_null(text(model, "owned_by"));
        assert_int_equal(json_kind_of(json_member(model, "created")), JSON_NUMBER);
        if (strcmp(text(model, "id"), "needle") == 0)
            base = model;
        if (strcmp(text(model, "id"), MODEL) == 0)
            tuned = model;
    }
    assert_non_null(base);
    assert_non_null(tuned);
    assert_true(json_number(json_member(base, "depth")) >= 1);
    assert_string_equal(text(tuned, "base_model"), "needle");
    json_free(list);
    one = get("/v1/models/ft%3Aneedle:local::abcd1234", 200);
    assert_string_equal(text(one, "id"), MODEL);
    json_free(one);
    one = get("/v1/models/needle", 200);
    assert_string_equal(text(one, "id"), "needle");
    json_free(one);
}

static void an_adapter_is_a_file_to_save(void **state)
{
    (void)state;
    static const char bytes[] = "adapter bytes";
    struct web_answer get_answer, head;

    api_daemon_add_job(&d, JOB);
    add_model("ft:needle:local:s/x:abcd1234", bytes); /* split on / first, decoded after */
    web_call(d.port, "GET", "/v1/models/ft:needle:local:s%2Fx:abcd1234/adapter.safetensors",
             &get_answer);
    assert_int_equal(get_answer.status, 200);
    assert_string_equal(get_answer.body, bytes);
    assert_string_equal(web_header(&get_answer, "Content-Length"), "13");
    assert_string_equal(web_header(&get_answer, "Content-Disposition"),
                        "attachment; filename=\"adapter.safetensors\"");
    web_call(d.port, "HEAD", "/v1/models/ft:needle:local:s%2Fx:abcd1234/adapter.safetensors",
             &head);
    assert_int_equal(head.status, 200);
    assert_int_equal(head.size, 0);
    assert_string_equal(web_header(&head, "Content-Length"), "13");
    web_release(&get_answer);
    web_release(&head);
}

/* What was stored, or nothing: a client would take the rest for its model. */
static void an_adapter_that_rotted_is_not_handed_out(void **state)
{
    (void)state;
    static const char *const damaged[] = {"adapter byt", "adapter bytex", "adapter bytes.", ""};
    struct web_answer answer;
    struct error err = {0};
    char path[1024];

    api_daemon_add_job(&d, JOB);
    add_model(MODEL, "adapter bytes");
    api_daemon_must(artifact_path(path, sizeof(path), d.folder, "abcd1234.safetensors", &err),
                    &err);
    for (size_t i = 0; i < COUNT_OF(damaged); i++) {
        scratch_write(path, damaged[i], strlen(damaged[i]));
        for (int way = 0; way < 2; way++) {
            if (way == 0)
                web_call(d.port, "GET", "/v1/models/" MODEL "/adapter.safetensors", &answer);
            else
                web_follow(d.port, "", "/v1/models/" MODEL "/content", NULL, 0, &answer);
            assert_int_equal(answer.status, 410);
            assert_non_null(strstr(answer.body, "\"gone\""));
            assert_non_null(strstr(answer.body, "its file on the disk is damaged"));
            web_release(&answer);
        }
    }
}

static void a_deleted_model_is_gone_with_its_file(void **state)
{
    (void)state;
    char path[1024];
    struct error err = {0};
    struct web_answer answer;

    api_daemon_add_job(&d, JOB);
    add_model(MODEL, "adapter bytes");
    api_daemon_must(artifact_path(path, sizeof(path), d.folder, "abcd1234.safetensors", &err),
                    &err);
    assert_int_equal(access(path, F_OK), 0);
    web_call(d.port, "DELETE", "/v1/models/" MODEL, &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "\"deleted\":true"));
    web_release(&answer);
    assert_int_not_equal(access(path, F_OK), 0);
    json_free(get("/v1/models/" MODEL, 404));
    json_free(get("/v1/models/" MODEL "/adapter.safetensors", 404));
}

static void devices_and_health_are_told(void **state)
{
    (void)state;
    struct json *devices = get("/v1/devices", 200), *health = get("/healthz", 200);

    assert_non_null(json_member(devices, "data"));
    assert_string_equal(text(health, "status"), "ok");
    json_free(devices);
    json_free(health);
}

/* Twelve clean lines as a form; the answer's id. */
static void upload_lines(char ret_id[64])
{
    struct json *file = NULL;
    struct web_answer answer;
    struct buf body;

    buf_init(&body, (size_t)1 << 20);
    buf_append_text(&body, "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n"
                           "fine-tune\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; "
                           "filename=\"lines.jsonl\"\r\n\r\n");
    for (int i = 0; i < 12; i++)
        buf_format(&body,
                   "{\"query\":\"timer for %d minutes\",\"tools\":[{\"name\":\"set_timer\","
                   "\"description\":\"Start a countdown\",\"parameters\":{\"type\":\"object\","
                   "\"properties\":{\"minutes\":{\"type\":\"integer\"}}}}],\"answers\":[{\"name\":"
                   "\"set_timer\",\"arguments\":{\"minutes\":%d}}]}\n",
                   i, i);
    buf_append_text(&body, "\r\n--b--\r\n");
    web_ask(d.port, &answer,
            "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %zu\r\n\r\n%s",
            body.size, body.data);
    if (answer.status != 200)
        fail_msg("%s", answer.body);
    assert_true(json_parse(answer.body, answer.size, &file, NULL));
    snprintf(ret_id, 64, "%s", text(file, "id"));
    json_free(file);
    web_release(&answer);
    buf_release(&body);
}

static struct json *post(const char *path, const char *body, int status)
{
    struct web_answer answer;
    struct json *root = NULL;

    web_ask(d.port, &answer,
            "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            path, strlen(body), body);
    if (answer.status != status)
        fail_msg("%s %s: %d %s", path, body, answer.status, answer.body);
    assert_true(json_parse(answer.body, answer.size, &root, NULL));
    web_release(&answer);
    return root;
}

static void a_job_goes_from_its_upload_to_its_adapter(void **state)
{
    (void)state;
    char file[64], body[512], path[600];
    struct web_answer answer;
    struct json *job, *again;

    upload_lines(file);
    snprintf(body, sizeof(body),
             "{\"model\":\"needle\",\"training_file\":\"%s\",\"seed\":7,\"suffix\":\"demo\","
             "\"hyperparameters\":{\"n_epochs\":2,\"batch_size\":4,\"lora_rank\":2}}",
             file);
    job = post(JOBS, body, 200);
    snprintf(path, sizeof(path), JOBS "/%s/events?stream=true", text(job, "id"));
    web_call(d.port, "GET", path, &answer); /* returns at the stream's end */
    assert_int_equal(answer.status, 200);
    assert_true(answer.whole);
    assert_non_null(strstr(answer.body, "event: metrics\n"));
    assert_non_null(strstr(answer.body, "\"train_mean_token_accuracy\":"));
    assert_non_null(strstr(answer.body, "\"full_valid_loss\":"));
    assert_non_null(strstr(answer.body, "event: done\n"));
    web_release(&answer);

    snprintf(path, sizeof(path), JOBS "/%s", text(job, "id"));
    json_free(job);
    job = get(path, 200);
    if (strcmp(text(job, "status"), "succeeded") != 0)
        fail_msg("%s", text(job, "status"));
    assert_int_equal(json_kind_of(json_member(job, "error")), JSON_NULL);
    assert_true(json_number(json_member(job, "trained_tokens")) > 0);
    assert_true(json_number(json_member(job, "completed_steps")) ==
                json_number(json_member(job, "total_steps")));
    snprintf(path, sizeof(path), "/v1/models/%s/adapter.safetensors",
             text(job, "fine_tuned_model"));
    web_call(d.port, "GET", path, &answer);
    assert_int_equal(answer.status, 200);
    assert_true(answer.size > 1000);
    assert_int_equal(answer.body[8], '{'); /* behind the header's length */
    web_release(&answer);
    snprintf(path, sizeof(path), JOBS "/%s/checkpoints", text(job, "id"));
    again = get(path, 200);
    assert_int_equal(json_count(json_member(again, "data")), 2); /* one an epoch */
    json_free(again);
    snprintf(path, sizeof(path), JOBS "/%s/cancel", text(job, "id"));
    json_free(post(path, "", 409)); /* too late */
    json_free(job);
}

static void a_cancelled_job_says_so_at_once_and_a_second_cancel_is_harmless(void **state)
{
    (void)state;
    char file[64], body[512], path[600];
    struct json *job;

    upload_lines(file);
    snprintf(body, sizeof(body),
             "{\"model\":\"needle\",\"training_file\":\"%s\","
             "\"hyperparameters\":{\"n_epochs\":50,\"batch_size\":1}}",
             file);
    job = post(JOBS, body, 200);
    snprintf(path, sizeof(path), JOBS "/%s/cancel", text(job, "id"));
    json_free(job);
    for (int i = 0; i < 2; i++) {
        job = post(path, "", 200);
        assert_string_equal(text(job, "status"), "cancelled");
        json_free(job);
    }
}

static void a_create_names_its_first_fault_in_the_order_of_the_checks(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
        int status;
    } cases[] = {
        {"{\"model\":\"nothing\",\"training_file\":\"file-x\","
         "\"hyperparameters\":{\"n_epochs\":0}}",
         "n_epochs", 400},
        {"{\"model\":\"nothing\",\"training_file\":\"file-x\","
         "\"hyperparameters\":{\"n_epochs\":\"auto\"}}",
         "training_file", 400},
        {"{\"model\":\"needle\",\"training_file\":7}", "training_file", 400},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json *answer = post(JOBS, cases[i].body, cases[i].status);
        const char *param = text(json_member(answer, "error"), "param");

        if (!param || !strstr(param, cases[i].param))
            fail_msg("%s: param is %s", cases[i].body, param ? param : "null");
        json_free(answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define PLAIN(name) cmocka_unit_test_setup_teardown(name, api_daemon_set_up, api_daemon_tear_down)
        PLAIN(a_new_job_has_every_field_a_client_reads),
        PLAIN(a_failed_job_says_why_and_names_the_lines),
        PLAIN(jobs_are_walked_newest_first_to_the_end),
        PLAIN(a_page_of_jobs_tells_of_how_many_where_it_is_asked),
        PLAIN(checkpoints_are_listed_with_their_metrics),
        PLAIN(models_are_bases_and_what_jobs_made),
        PLAIN(an_adapter_is_a_file_to_save),
        PLAIN(an_adapter_that_rotted_is_not_handed_out),
        PLAIN(a_deleted_model_is_gone_with_its_file),
#define WHOLE(name)                                                                                \
    cmocka_unit_test_setup_teardown(name, api_daemon_set_up_whole, api_daemon_tear_down)
        WHOLE(devices_and_health_are_told),
        WHOLE(a_job_goes_from_its_upload_to_its_adapter),
        WHOLE(a_cancelled_job_says_so_at_once_and_a_second_cancel_is_harmless),
        WHOLE(a_create_names_its_first_fault_in_the_order_of_the_checks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

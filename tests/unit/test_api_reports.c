/* Proves that reports, lines and estimates over HTTP say what the trainer would find, name what is wrong
 * with the question, and make nothing. */
#include "tests/support/api_daemon.h"

#include "store/files.h"
#include "store/rates.h"

#define A "file-aaaaaaaaaaaaaaaaaaaaaaaa"
#define B "file-bbbbbbbbbbbbbbbbbbbbbbbb"
#define PLAIN(query) "{\"query\":\"" query "\",\"tools\":[],\"answers\":[]}\n"

static void add_file(const char *id, const char *content)
{
    struct file_record file = {.filename = "a.jsonl", .purpose = "fine-tune"};
    struct error err = {0};
    char path[600];

    snprintf(file.id, sizeof(file.id), "%s", id);
    snprintf(path, sizeof(path), "%s/uploads/%s", d.folder, id);
    scratch_write(path, content, strlen(content));
    api_daemon_must(files_insert(d.store, &file, "{}", &err), &err);
}

static int open_plain(void **state)
{
    (void)state;
    api_daemon_open(&d, (struct server_options){0});
    add_file(A, PLAIN("one") PLAIN("two") "\n" PLAIN("one") PLAIN("a\\u0000b"));
    add_file(B, PLAIN("two") "{\"query\":\"x\",\"tools\":[]}\n");
    return 0;
}

static void get(const char *path, int status, const char *const *parts)
{
    struct web_answer answer;

    web_call(d.port, "GET", path, &answer);
    if (answer.status != status)
        fail_msg("%s: %d %s", path, answer.status, answer.body);
    for (; *parts; parts++) {
        if (!strstr(answer.body, *parts))
            fail_msg("%s: no '%s' in %s", path, *parts, answer.body);
    }
    web_release(&answer);
}
#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void a_report_tells_what_needs_no_tokens_without_a_model(void **state)
{
    (void)state;

    get("/v1/files/" A "/report", 200,
        PARTS(
            "\"accepted\":true", "\"lines\":5", "\"blank_lines\":1", "\"examples\":4",
            "\"tokens\":null", "\"model\":null", "\"complete\":true",
            "\"duplicates\":{\"count\":1,\"has_more\":false,\"data\":[{\"line\":4,\"same_as\":1}]}",
            "\"shared\":null"));
    get("/v1/files/" B "/report?problems_limit=0", 200,
        PARTS("\"accepted\":false", "\"refusal\":\"line 2", "\"refused\":1", "\"has_more\":true",
              "\"data\":[]"));
}

static void a_report_with_a_model_measures(void **state)
{
    (void)state;

    get("/v1/files/" A "/report?model=needle&validation_file=" B, 200,
        PARTS("\"trained\":20", "\"max_len\":512", "\"overlong\":\"refuse\"", "\"longest_line\":5",
              "\"histogram\":[{\"from\":1,\"to\":32,\"lines\":",
              "\"shared\":{\"count\":1,\"has_more\":false,\"data\":[{\"line\":2,"
              "\"validation_line\":1}]}"));
    get("/v1/files/" A "/report?model=needle&max_len=8", 200,
        PARTS("\"overlong_lines\":4", "\"accepted\":false", "\"rule\":\"overlong\""));
    get("/v1/files/" B "/report?model=needle&data_rules=as_reference", 200,
        PARTS("\"accepted\":true", "\"examples\":2", "\"overlong\":\"truncate\""));
}

static void a_line_is_shown_as_it_is_trained(void **state)
{
    (void)state;

    get("/v1/files/" A "/examples/2?model=needle", 200,
        PARTS("\"line\":2", "\"usable\":true",
              "\"prompt\":\"<|im_start|>user\\n<tools>[]</tools>\\ntwo<|im_end|>\\n<|im_start|>"
              "assistant\\n\"",
              "\"target\":\"<tool_call>[]</tool_call><|im_end|>\"", "\"trained_count\":5",
              "{\"id\":2,\"piece\":\"<s>\",\"mask\":0}", "\"piece\":\"<tool_call>\",\"mask\":1}",
              "{\"id\":1,\"piece\":\"</s>\",\"mask\":1}],"));
    get("/v1/files/" A "/examples/2", 200, PARTS("\"tokens\":null", "\"prompt\":\"<|im_start|>"));
    get("/v1/files/" A "/examples/3", 200, PARTS("\"usable\":false", "\"prompt\":null"));
    get("/v1/files/" A "/examples/5", 200,
        PARTS("a\xe2\x90\x80"
              "b"));
    get("/v1/files/" B "/examples/2?model=needle", 200,
        PARTS("\"usable\":false", "\"rule\":\"missing_field\"", "\"target\":\"<tool_call>[]"));
    get("/v1/files/" A "/examples/2?model=needle&max_len=8", 200,
        PARTS("\"usable\":false", "\"rule\":\"overlong\"", "\"mask\":1"));
    get("/v1/files/" A "/examples/2?model=needle&max_len=8&overlong=truncate", 200,
        PARTS("\"usable\":true", "\"kept_count\":8", "\"trained_count\":0"));
}

static void what_is_wrong_with_a_question_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *path, *param;
        int status;
    } cases[] = {
        {"/v1/files/file-none/report", "null", 404},
        {"/v1/files/" A "/report?validation_file=file-none", "\"validation_file\"", 404},
        {"/v1/files/" A "/report?model=none", "\"model\"", 404},
        {"/v1/files/" A "/report?model=needle&max_len=0", "\"max_len\"", 400},
        {"/v1/files/" A "/report?model=needle&max_len=513", "\"max_len\"", 400},
        {"/v1/files/" A "/report?max_len=5", "\"model\"", 400},
        {"/v1/files/" A "/report?data_rules=loose", "\"data_rules\"", 400},
        {"/v1/files/" A "/report?model=needle&overlong=cut", "\"overlong\"", 400},
        {"/v1/files/" A "/report?problems_limit=1001", "\"problems_limit\"", 400},
        {"/v1/files/" A "/report?problems_after=-1", "\"problems_after\"", 400},
        {"/v1/files/" A "/examples/0", "\"line\"", 400},
        {"/v1/files/" A "/examples/x", "\"line\"", 400},
        {"/v1/files/" A "/examples/6", "\"line\"", 404},
        {"/v1/files/file-none/examples/1", "null", 404},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char part[64];

        snprintf(part, sizeof(part), "\"param\":%s", cases[i].param);
        get(cases[i].path, cases[i].status, PARTS(part));
    }
}

static void estimate(const char *body, int status, const char *const *parts)
{
    struct web_answer answer;

    web_ask(d.port, &answer,
            "POST /v1/fine_tuning/estimate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            strlen(body), body);
    if (answer.status != status)
        fail_msg("%s: %d %s", body, answer.status, answer.body);
    for (; *parts; parts++) {
        if (!strstr(answer.body, *parts))
            fail_msg("%s: no '%s' in %s", body, *parts, answer.body);
    }
    web_release(&answer);
}

static void an_estimate_counts_and_makes_nothing(void **state)
{
    (void)state;
    static const char body[] =
        "{\"model\":\"needle\",\"training_file\":\"" A "\",\"hyperparameters\":"
        "{\"n_epochs\":4,\"batch_size\":3,\"val_split\":0}}";
    struct rate_record rate = {.device = "cpu:0",
                               .base_model = "needle",
                               .setting = "w4a8 float32 rank 16",
                               .tokens_per_second = 10,
                               .measured_unix_s = 77};
    struct web_answer answer;
    struct error err = {0};
    char path[600];
    struct dirent *entry;
    DIR *folder;

    estimate(body, 200,
             PARTS("\"examples\":4", "\"validation_examples\":0", "\"steps_per_epoch\":2",
                   "\"total_steps\":8", "\"trained_tokens\":80", "\"device\":\"cpu:0\"",
                   "\"device_reason\":null", "\"training_s\":null",
                   "\"time_reason\":\"no job on 'needle'", "\"least_bytes\":"));
    api_daemon_must(rates_set(d.store, &rate, &err), &err);
    estimate(body, 200,
             PARTS("\"tokens_per_second\":10", "\"measured_at\":77", "\"time_reason\":null"));
    web_call(d.port, "GET", "/v1/fine_tuning/jobs", &answer);
    assert_non_null(strstr(answer.body, "\"data\":[]"));
    web_release(&answer);
    snprintf(path, sizeof(path), "%s/checkpoints", d.folder);
    folder = opendir(path);
    while ((entry = readdir(folder)))
        assert_true(entry->d_name[0] == '.');
    closedir(folder);
}

static void an_estimate_is_refused_as_its_job_would_be(void **state)
{
    (void)state;

    estimate("{\"model\":\"needle\",\"training_file\":\"" B "\"}", 400,
             PARTS("\"param\":\"training_file\"", "\"lines\":[{\"file\":\"a.jsonl\",\"line\":2"));
    estimate("{\"model\":\"needle\",\"training_file\":\"" A "\",\"validation_file\":\"" B "\"}",
             400, PARTS("\"param\":\"validation_file\"", "\"lines\":[{"));
    estimate("{\"model\":\"needle\"}", 400, PARTS("\"param\":\"training_file\""));
    estimate("{\"model\":\"none\",\"training_file\":\"" A "\"}", 404, PARTS("\"param\":\"model\""));
    estimate("{\"model\":\"needle\",\"training_file\":\"" A
             "\",\"hyperparameters\":{\"n_epochs\":0}}",
             400, PARTS("\"param\":\"n_epochs\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_tells_what_needs_no_tokens_without_a_model),
        cmocka_unit_test(a_report_with_a_model_measures),
        cmocka_unit_test(a_line_is_shown_as_it_is_trained),
        cmocka_unit_test(what_is_wrong_with_a_question_is_named),
        cmocka_unit_test(an_estimate_counts_and_makes_nothing),
        cmocka_unit_test(an_estimate_is_refused_as_its_job_would_be),
    };

    return cmocka_run_group_tests(tests, open_plain, api_daemon_tear_down);
}

/* Proves the outcome that tests/fixtures/inputs/manifest.json gives for each request in its http folder:
 * status, headers, interim answers, closing, words, and what is kept. */
#include "tests/support/api_daemon.h"

#include "daemon/base/json.h"

#include <regex.h>
#include <sys/socket.h>

#define INPUTS FIXTURES "inputs/"
#define KEY "sk-test"
#define JOB "ftjob-inputs"

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = KEY});
    api_daemon_add_job(&d, JOB);
    api_daemon_add_events(&d, JOB, 7); /* 2 to 8 */
    return 0;
}

static void replace(char *text, size_t capacity, const char *mark, const char *value)
{
    char *at;

    while ((at = strstr(text, mark))) {
        char *rest = strdup(at + strlen(mark));

        assert_non_null(rest);
        snprintf(at, capacity - (size_t)(at - text), "%s%s", value, rest);
        free(rest);
    }
}

/* The request's bytes with its placeholders filled in. */
static char *read_request(const char *file)
{
    char path[256], port[16];
    size_t size = 0, capacity;
    char *bytes, *text;

    snprintf(path, sizeof(path), INPUTS "%s", file);
    snprintf(port, sizeof(port), "%d", d.port);
    bytes = scratch_read(path, &size);
    capacity = size + 256;
    text = malloc(capacity);
    assert_non_null(text);
    memcpy(text, bytes, size + 1);
    free(bytes);
    replace(text, capacity, "@PORT@", port);
    replace(text, capacity, "@TOKEN@", KEY);
    replace(text, capacity, "@JOB@", JOB);
    return text;
}

static bool matches(const char *pattern, const char *text)
{
    char own[512];
    regex_t expression;
    bool found;

    snprintf(own, sizeof(own), "%s", pattern);
    replace(own, sizeof(own), "\\d", "[0-9]"); /* the manifest's dialect has it, POSIX has not */
    assert_int_equal(regcomp(&expression, own, REG_EXTENDED | REG_ICASE | REG_NOSUB), 0);
    found = regexec(&expression, text, 0, NULL, 0) == 0;
    regfree(&expression);
    return found;
}

static bool status_fits(const struct json *statuses, int status)
{
    for (const struct json *one = json_first(statuses); one; one = json_next(one)) {
        const char *text = json_text(one);

        if (text[1] == 'x' ? text[0] - '0' == status / 100 : atoi(text) == status)
            return true;
    }
    return false;
}

static bool has_error_field(const char *body, const char *name, const char *pattern)
{
    const struct json *error, *value;
    struct json *root = NULL;
    bool fits = false;

    if (json_parse(body, strlen(body), &root, NULL)) {
        error = json_member(root, "error");
        value = error ? json_member(error, name) : NULL;
        fits = value && json_text(value) && matches(pattern, json_text(value));
    }
    json_free(root);
    return fits;
}

/* What is uploaded: the part after the blank line of the file part, up to the closing boundary. */
static void expect_content(const char *request, const char *body)
{
    struct json *file = NULL;
    struct web_answer answer;
    char path[128];
    const char *start = strstr(strstr(request, "filename="), "\r\n\r\n") + 4;
    const char *end = NULL;

    for (const char *at = start; (at = strstr(at, "\r\n--")); at++)
        end = at;
    assert_non_null(end);
    assert_true(json_parse(body, strlen(body), &file, NULL));
    assert_int_equal(json_number(json_member(file, "bytes")), end - start);
    (void)snprintf(path, sizeof(path), "/v1/files/%s/content", json_text(json_member(file, "id")));
    web_follow(d.port, "Authorization: Bearer " KEY "\r\n", path, NULL, 0, &answer);
    assert_int_equal(answer.size, end - start);
    assert_memory_equal(answer.body, start, answer.size);
    web_release(&answer);
    json_free(file);
}

static const char *check_case(const struct json *wanted, const char *request,
                              const struct web_answer *answer)
{
    const struct json *field;

    if (!status_fits(json_member(wanted, "status"), answer->status))
        return "status";
    if ((field = json_member(wanted, "interim")) && json_flag(field) != (answer->interim_count > 0))
        return "100 Continue";
    if ((field = json_member(wanted, "head")) && json_flag(field) && answer->size > 0)
        return "a body to HEAD";
    if ((field = json_member(wanted, "param")) &&
        !has_error_field(answer->body, "param", json_text(field)))
        return "error.param";
    if ((field = json_member(wanted, "names")) && !matches(json_text(field), answer->body))
        return "the name";
    field = json_member(wanted, "header");
    for (const struct json *one = field ? json_first(field) : NULL; one; one = json_next(one)) {
        const char *value = web_header(answer, json_name(one));

        if (!value || !matches(json_text(one), value))
            return json_name(one);
    }
    field = json_member(wanted, "mentions");
    for (const struct json *one = field ? json_first(field) : NULL; one; one = json_next(one)) {
        if (!matches(json_text(one), answer->body))
            return json_text(one);
    }
    if ((field = json_member(wanted, "json")) &&
        !has_error_field(answer->body, "type", "^invalid_request_error$"))
        return "error.type";
    if ((field = json_member(wanted, "plain_name")) &&
        !matches("\"filename\":\"[^/\\\\]+\"", answer->body))
        return "a plain file name";
    if ((field = json_member(wanted, "content")))
        expect_content(request, answer->body);
    return NULL;
}

/* Any one of the cases is enough. */
static void check_answer(const char *file, const struct json *judge, const char *request,
                         const struct web_answer *answer)
{
    const char *amiss = "no case";

    for (const struct json *one = json_first(json_member(judge, "cases")); one;
         one = json_next(one)) {
        amiss = check_case(one, request, answer);
        if (!amiss)
            return;
    }
    fail_msg("%s: %s is not as the manifest says: %d %s%s", file, amiss, answer->status,
             answer->head, answer->body);
}

static bool wants_closing(const struct json *judge)
{
    const struct json *first = json_first(json_member(judge, "cases"));
    const struct json *closed = json_member(first, "closed");

    return closed && json_flag(closed);
}

static void check_pipeline(const struct json *bodies, int descriptor,
                           const struct web_answer *first)
{
    struct web_answer second;

    assert_true(matches(json_text(json_at(bodies, 0)), first->body));
    web_receive(descriptor, false, &second);
    assert_int_equal(second.status, 200);
    assert_true(matches(json_text(json_at(bodies, 1)), second.body));
    web_release(&second);
}

/* Events 4 to 8, once each and in order, then one that comes now. */
static void check_resumed_stream(const char *request)
{
    int descriptor = web_open(d.port);
    char *text, *at;

    web_send_text(descriptor, request);
    text = web_read_until(descriptor, "\"number\":8}", 10000);
    assert_null(strstr(text, "id: 3\n"));
    at = text;
    for (int number = 4; number <= 8; number++) {
        char wanted[16];

        snprintf(wanted, sizeof(wanted), "id: %d\n", number);
        at = strstr(at, wanted);
        assert_non_null(at);
        at++;
        assert_null(strstr(at, wanted));
    }
    free(text);
    api_daemon_add_events(&d, JOB, 1);
    free(web_read_until(descriptor, "\"number\":9}", 10000));
    close(descriptor);
}

static void run_stream(const char *file, const struct json *judge, const char *request)
{
    int descriptor = web_open(d.port);
    struct web_answer answer = {0};

    web_send_text(descriptor, request);
    answer.head = web_read_until(descriptor, "\r\n\r\n", 10000);
    answer.status = atoi(answer.head + strlen("HTTP/1.1 "));
    answer.body = strdup("");
    check_answer(file, judge, request, &answer);
    web_release(&answer);
    close(descriptor);
    check_resumed_stream(request);
}

static void run_request(const char *file, const struct json *judge)
{
    const struct json *bodies = json_member(judge, "bodies"), *send = json_member(judge, "send");
    char *request = read_request(file), *body = strstr(request, "\r\n\r\n");
    struct web_answer answer;
    int descriptor;

    if (json_member(judge, "stream")) {
        run_stream(file, judge, request);
        free(request);
        return;
    }
    descriptor = web_open(d.port);
    if (send && strcmp(json_text(send), "head_first") == 0) {
        char *interim;

        web_send(descriptor, request, (size_t)(body + 4 - request));
        interim = web_read_until(descriptor, "\r\n\r\n", 10000);
        assert_int_equal(strncmp(interim, "HTTP/1.1 100", 12), 0);
        free(interim);
        web_send_text(descriptor, body + 4);
        web_receive(descriptor, false, &answer);
        answer.interim_count++;
    } else {
        web_send_text(descriptor, request);
        web_receive(descriptor, strncmp(request, "HEAD", 4) == 0, &answer);
    }
    check_answer(file, judge, request, &answer);
    if (bodies)
        check_pipeline(bodies, descriptor, &answer);
    if (wants_closing(judge))
        assert_true(web_is_closed(descriptor, 5000));
    web_release(&answer);
    close(descriptor);
    free(request);
}

static void every_request_of_the_manifest_gets_its_outcome(void **state)
{
    (void)state;
    static const char slow[] = "http/slow-header.http";
    char *slow_request = read_request(slow), *text;
    int slow_descriptor = web_open(d.port), count = 0;
    struct json *manifest = NULL;
    struct error err = {0};
    size_t size = 0;

    web_send_text(slow_descriptor, slow_request); /* and not another byte: others are served */
    free(slow_request);
    text = scratch_read(INPUTS "manifest.json", &size);
    api_daemon_must(json_parse(text, size, &manifest, &err), &err);
    free(text);
    for (const struct json *entry = json_first(json_member(manifest, "entries")); entry;
         entry = json_next(entry)) {
        const char *file = json_text(json_member(entry, "file"));

        if (strncmp(file, "http/", 5) != 0 || strcmp(file, slow) == 0)
            continue;
        run_request(file, json_member(entry, "judge"));
        count++;
    }
    assert_true(count >= 17);
    json_free(manifest);
    assert_true(web_is_closed(slow_descriptor, 30000));
    close(slow_descriptor);
    assert_int_not_equal(access("/var/needled-escape.jsonl", F_OK), 0);
    assert_int_equal(api_daemon_count_uploads(&d), 3); /* the three good forms */
}

static void no_request_of_the_manifest_has_made_a_job(void **state)
{
    (void)state;
    struct web_answer answer;

    for (size_t i = 0; i < 2; i++) {
        static const char *const files[] = {"http/csrf-text-plain.http",
                                            "http/unknown-file-job.http"};
        char *request = read_request(files[i]);

        web_ask(d.port, &answer, "%s", request);
        web_release(&answer);
        free(request);
    }
    web_ask(d.port, &answer,
            "GET /v1/fine_tuning/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            "Authorization: Bearer " KEY "\r\n\r\n");
    assert_non_null(strstr(answer.body, "\"first_id\":\"" JOB "\",\"last_id\":\"" JOB "\""));
    web_release(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_request_of_the_manifest_gets_its_outcome, open_it,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(no_request_of_the_manifest_has_made_a_job, open_it,
                                        api_daemon_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves what is made of requests that few clients send: control characters, targets that are no paths,
 * hosts that are not named, numbers of no machine, labels that a terminal would obey. */
#include "tests/support/api_daemon.h"

#include <sys/socket.h>

#define HOST "Host: 127.0.0.1\r\n"
#define CLOSE "Connection: close\r\n"
#define JSON "Content-Type: application/json\r\n"
#define NINES_50 "99999999999999999999999999999999999999999999999999"
#define NINES_400 NINES_50 NINES_50 NINES_50 NINES_50 NINES_50 NINES_50 NINES_50 NINES_50

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.webhook_hosts = "*.example.com"});
    return 0;
}

static void post(const char *path, const char *body, struct web_answer *ret_answer)
{
    web_ask(d.port, ret_answer,
            "POST %s HTTP/1.1\r\n" HOST CLOSE JSON "Content-Length: %zu\r\n\r\n%s", path,
            strlen(body), body);
}

/* Others may end the line there: what follows would be a header of its own to them. */
static void a_header_with_a_control_character_ends_the_connection(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "X-A: b\001c\r\n", "X-A: b\x7f\r\n",   "X-A: b\rX-B: c\r\n",
        "X\001A: b\r\n",   "X-A: \033[2J\r\n",
    };

    for (size_t i = 0; i < COUNT_OF(headers); i++) {
        int descriptor = web_open(d.port);
        struct web_answer answer;
        char text[256];

        snprintf(text, sizeof(text), "GET /v1/plans HTTP/1.1\r\n" HOST "%s\r\n", headers[i]);
        web_send_text(descriptor, text);
        web_receive(descriptor, false, &answer);
        if (answer.status != 400 || !strstr(answer.body, "\"code\":\"invalid_request\""))
            fail_msg("case %zu: %d %s", i, answer.status, answer.body);
        web_release(&answer);
        if (!web_is_closed(descriptor, 3000))
            fail_msg("case %zu: the connection goes on", i);
        close(descriptor);
    }
}

static void a_tab_in_a_header_and_an_upper_byte_are_taken(void **state)
{
    (void)state;
    struct web_answer answer;

    web_ask(d.port, &answer, "GET /v1/plans HTTP/1.1\r\n" HOST "X-A: b\tc \xe9\r\n" CLOSE "\r\n");
    assert_int_equal(answer.status, 200);
    web_release(&answer);
}

static void a_create_has_one_idempotency_key(void **state)
{
    (void)state;
    struct web_answer answer;

    web_ask(d.port, &answer,
            "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST CLOSE JSON
            "Idempotency-Key: a\r\nidempotency-key: b\r\nContent-Length: 2\r\n\r\n{}");
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body, "Idempotency-Key stands there twice"));
    web_release(&answer);
}

static void a_target_may_name_the_host_itself(void **state)
{
    (void)state;
    static const struct {
        const char *target, *host;
        int status;
        const char *part;
    } cases[] = {
        {"http://127.0.0.1/v1/plans", "127.0.0.1", 200, "\"list\""},
        {"HTTP://localhost:9/v1/models?limit=1", "127.0.0.1", 200, "\"list\""},
        {"http://localhost/v1/plans", "evil.example", 200, "\"list\""}, /* the target decides */
        {"http://evil.example/v1/plans", "127.0.0.1", 403, "host_not_allowed"},
        {"http://a@localhost/v1/plans", "127.0.0.1", 403, "host_not_allowed"},
        {"http:///v1/plans", "127.0.0.1", 403, "host_not_allowed"},
        {"http://localhost/v1/nothing", "127.0.0.1", 404, "not_found"},
        {"ftp://localhost/v1/plans", "127.0.0.1", 400, "invalid_request"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer, "GET %s HTTP/1.1\r\nHost: %s\r\n" CLOSE "\r\n", cases[i].target,
                cases[i].host);
        if (answer.status != cases[i].status || !strstr(answer.body, cases[i].part))
            fail_msg("%s: %d %s", cases[i].target, answer.status, answer.body);
        web_release(&answer);
    }
}

static void the_server_as_a_whole_tells_its_methods_and_no_more(void **state)
{
    (void)state;
    struct web_answer answer;

    web_call(d.port, "OPTIONS", "*", &answer);
    assert_int_equal(answer.status, 204);
    assert_string_equal(web_header(&answer, "Allow"), "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    assert_non_null(web_header(&answer, "x-request-id"));
    web_release(&answer);
    web_call(d.port, "GET", "*", &answer);
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body, "needs a path"));
    web_release(&answer);
}

/* Health checks send it; pages, which the check of hosts is against, never do. */
static void who_names_no_host_in_http_1_0_is_answered(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int status;
    } cases[] = {
        {"GET /v1/plans HTTP/1.0\r\n\r\n", 200},
        {"GET /v1/models HTTP/1.0\r\n\r\n", 200},
        {"GET /v1/plans HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403},
        {"GET /v1/plans HTTP/1.0\r\nHost:\r\n\r\n", 403},
        {"GET /v1/plans HTTP/1.0\r\nOrigin: http://evil.example\r\n\r\n", 403},
        {"GET /v1/plans HTTP/1.1\r\n" CLOSE "\r\n", 400},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer, "%s", cases[i].request);
        if (answer.status != cases[i].status)
            fail_msg("%s: %d %s", cases[i].request, answer.status, answer.body);
        web_release(&answer);
    }
}

static void a_number_of_no_machine_is_named(void **state)
{
    (void)state;
#define JOB "{\"model\":\"needle\",\"training_file\":\"file-1\","
    static const struct {
        const char *path, *body, *param;
    } cases[] = {
        {"/v1/fine_tuning/jobs", JOB "\"seed\":" NINES_400 "}", "seed"},
        {"/v1/fine_tuning/jobs", JOB "\"seed\":-" NINES_400 "}", "seed"},
        {"/v1/fine_tuning/jobs", JOB "\"priority\":1e400}", "priority"},
        {"/v1/fine_tuning/jobs", JOB "\"hyperparameters\":{\"learning_rate\":1e-400}}",
         "learning_rate"},
        {"/v1/fine_tuning/sweeps", JOB "\"seed\":[1," NINES_400 "]}", "seed"},
        {"/v1/fine_tuning/estimate", JOB "\"hyperparameters\":{\"lora_alpha\":" NINES_400 ".5}}",
         "lora_alpha"},
        {"/v1/files", "{\"name\":\"a\",\"bytes\":" NINES_400 "}", "bytes"},
        {"/v1/keys", "{\"name\":\"a\",\"jobs_max\":" NINES_400 "}", "jobs_max"},
    };
#undef JOB

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;
        char wanted[80];

        post(cases[i].path, cases[i].body, &answer);
        snprintf(wanted, sizeof(wanted), "\"param\":\"%s", cases[i].param);
        if (answer.status != 400 || !strstr(answer.body, cases[i].param) ||
            strstr(answer.body, " is inf") || strstr(answer.body, " is 0,"))
            fail_msg("%s %s: %d %s", cases[i].path, cases[i].param, answer.status, answer.body);
        web_release(&answer);
    }
}

static void labels_have_no_control_characters(void **state)
{
    (void)state;
#define HOOK "{\"url\":\"https://a.example.com/\",\"event_types\":[\"fine_tuning.job.failed\"],"
#define JOB "{\"model\":\"needle\",\"training_file\":\"file-1\","
    static const struct {
        const char *path, *body, *param;
    } cases[] = {
        {"/v1/webhook_endpoints", HOOK "\"name\":\"a\\u001b[2J\"}", "name"},
        {"/v1/webhook_endpoints", HOOK "\"name\":\"a\\u009b\"}", "name"},
        {"/v1/keys", "{\"name\":\"a\\u007f\"}", "name"},
        {"/v1/keys", "{\"name\":\"a\\n\"}", "name"},
        {"/v1/fine_tuning/jobs", JOB "\"suffix\":\"a\\u0007\"}", "suffix"},
        {"/v1/fine_tuning/jobs", JOB "\"metadata\":{\"a\\n\":\"b\"}}", "metadata"},
        {"/v1/fine_tuning/jobs", JOB "\"metadata\":{\"a\":\"b\\u001b\"}}", "metadata"},
        {"/v1/fine_tuning/jobs", JOB "\"metadata\":{\"a\":\"line\\n\\tline\"}}", "training_file"},
    };
#undef HOOK
#undef JOB

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;
        char wanted[80];

        post(cases[i].path, cases[i].body, &answer);
        snprintf(wanted, sizeof(wanted), "\"param\":\"%s\"", cases[i].param);
        if (answer.status != 400 || !strstr(answer.body, wanted))
            fail_msg("%s: %d %s", cases[i].body, answer.status, answer.body);
        web_release(&answer);
    }
}

static void a_text_of_a_form_is_read_to_its_end(void **state)
{
    (void)state;
    static const char purposes[][12] = {"fine-tune\0x", "fine-tune\0", "\0fine-tune"};
    static const size_t sizes[] = {11, 10, 10};

    for (size_t i = 0; i < COUNT_OF(purposes); i++) {
        int descriptor = web_open(d.port);
        struct web_answer answer;
        char body[512], head[256];
        int size, head_size;

        size = snprintf(body, sizeof(body),
                        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n");

        memcpy(body + size, purposes[i], sizes[i]);
        size += (int)sizes[i];
        size += snprintf(body + size, sizeof(body) - (size_t)size,
                         "\r\n--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n"
                         "{\"query\":\"a\",\"tools\":[],\"answers\":[]}\r\n--b--\r\n");
        head_size = snprintf(head, sizeof(head),
                             "POST /v1/files HTTP/1.1\r\n" HOST CLOSE
                             "Content-Type: multipart/form-data; boundary=b\r\n"
                             "Content-Length: %d\r\n\r\n",
                             size);
        web_send(descriptor, head, (size_t)head_size);
        web_send(descriptor, body, (size_t)size);
        web_receive(descriptor, false, &answer);
        if (answer.status != 400 || !strstr(answer.body, "\"param\":\"purpose\""))
            fail_msg("case %zu: %d %s", i, answer.status, answer.body);
        web_release(&answer);
        close(descriptor);
    }
    assert_int_equal(api_daemon_count_uploads(&d), 0);
}

static int open_narrow(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.connections_per_address = 3});
    return 0;
}

static bool is_answered(int descriptor)
{
    static const char request[] = "GET /v1/plans HTTP/1.1\r\n" HOST "\r\n";
    char byte;

    return send(descriptor, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0 &&
           recv(descriptor, &byte, 1, 0) == 1;
}

static void an_address_has_so_many_connections_and_the_socket_any(void **state)
{
    (void)state;
    int some[3], more[8];

    for (size_t i = 0; i < COUNT_OF(some); i++) {
        some[i] = web_open(d.port);
        assert_true(is_answered(some[i]));
    }
    more[0] = web_open(d.port);
    assert_false(is_answered(more[0]));
    close(more[0]);
    for (size_t i = 0; i < COUNT_OF(more); i++) {
        more[i] = web_open_socket(d.socket);
        assert_true(is_answered(more[i]));
    }
    close(some[0]);
    for (bool answered = false; !answered;) { /* when the server has seen that it was closed */
        some[0] = web_open(d.port);
        answered = is_answered(some[0]);
        if (!answered)
            close(some[0]);
    }
    for (size_t i = 0; i < COUNT_OF(some); i++)
        close(some[i]);
    for (size_t i = 0; i < COUNT_OF(more); i++)
        close(more[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_with_a_control_character_ends_the_connection),
        cmocka_unit_test(a_tab_in_a_header_and_an_upper_byte_are_taken),
        cmocka_unit_test(a_create_has_one_idempotency_key),
        cmocka_unit_test(a_target_may_name_the_host_itself),
        cmocka_unit_test(the_server_as_a_whole_tells_its_methods_and_no_more),
        cmocka_unit_test(who_names_no_host_in_http_1_0_is_answered),
        cmocka_unit_test(a_number_of_no_machine_is_named),
        cmocka_unit_test(labels_have_no_control_characters),
        cmocka_unit_test(a_text_of_a_form_is_read_to_its_end),
    };
    const struct CMUnitTest narrow[] = {
        cmocka_unit_test(an_address_has_so_many_connections_and_the_socket_any),
    };

    return cmocka_run_group_tests(tests, open_it, api_daemon_tear_down) +
           cmocka_run_group_tests(narrow, open_narrow, api_daemon_tear_down);
}

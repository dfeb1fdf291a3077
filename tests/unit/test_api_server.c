/* Proves who is answered and how: hosts, keys, methods, limits, bodies that are too large, slow or in
 * pieces, two requests at once, and a stop that leaves nothing behind. */
#include "tests/support/api_daemon.h"

#include <poll.h>
#include <sys/socket.h>

#define HOST "Host: 127.0.0.1\r\n"
#define CLOSE "Connection: close\r\n"
#define JSON "Content-Type: application/json\r\n"

static int open_with_key(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = "sk-secret"});
    return 0;
}

static int open_small(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.upload_limit_bytes = 100000});
    return 0;
}

static void expect_error(const struct web_answer *answer, int status, const char *code)
{
    char wanted[128];

    snprintf(wanted, sizeof(wanted), "\"code\":\"%s\"", code);
    if (answer->status != status || !strstr(answer->body, wanted) ||
        !strstr(answer->body, "\"message\":\"") || !strstr(answer->body, "\"type\":\"") ||
        !strstr(answer->body, "\"param\":"))
        fail_msg("wanted %d %s, got %d %s", status, code, answer->status, answer->body);
}

static void a_host_that_is_not_ours_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        int status;
    } cases[] = {
        {"127.0.0.1", 200},      {"127.0.0.1:7733", 200}, {"localhost", 200},
        {"LOCALHOST:1", 200},    {"[::1]", 200},          {"[::1]:7733", 200},
        {"localhost.", 200},     {"rebind.example", 403}, {"127.0.0.1.example", 403},
        {"localhost@evil", 403}, {"192.168.1.1", 403},    {"", 403},
        {"[::1]x", 403},         {"localhost:x", 403},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer, "GET /v1/models HTTP/1.1\r\nHost: %s\r\n" CLOSE "\r\n",
                cases[i].host);
        if (answer.status != cases[i].status)
            fail_msg("Host '%s': %d %s", cases[i].host, answer.status, answer.body);
        web_release(&answer);
    }
}

static void a_foreign_origin_is_refused_and_a_known_one_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *origin;
        int status;
    } cases[] = {
        {"http://127.0.0.1:7733", 200},
        {"http://localhost", 200},
        {"http://[::1]:7733", 200},
        {"http://evil.example", 403},
        {"null", 403},
        {"http://localhost.evil", 403},
        {"http://evil@localhost", 403},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer, "GET /v1/models HTTP/1.1\r\n" HOST "Origin: %s\r\n" CLOSE "\r\n",
                cases[i].origin);
        if (answer.status != cases[i].status)
            fail_msg("Origin '%s': %d %s", cases[i].origin, answer.status, answer.body);
        web_release(&answer);
    }
}

static void a_header_that_decides_stands_there_once(void **state)
{
    (void)state;
    static const char *const headers[] = {
        HOST "Host: evil.example\r\n",
        "Host: evil.example\r\n" HOST,
        HOST HOST,
        HOST "hOsT: localhost\r\n",
        HOST "Origin: http://localhost\r\nOrigin: http://evil.example\r\n",
        HOST "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n",
        HOST JSON "Content-Type: text/plain\r\n",
    };

    for (size_t i = 0; i < COUNT_OF(headers); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer, "GET /v1/models HTTP/1.1\r\n%s" CLOSE "\r\n", headers[i]);
        if (answer.status != 400 || !strstr(answer.body, "twice"))
            fail_msg("%s: %d %s", headers[i], answer.status, answer.body);
        web_release(&answer);
    }
}

/* Where the body ends has one answer, or none: what follows is never taken for a request. */
static void a_body_whose_end_is_unclear_ends_the_connection(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "Content-Length: 2\r\nContent-Length: 30\r\n",
        "Content-Length: 2\r\ncontent-length: 2\r\n",
        "Content-Length : 2\r\n",
        "Content-Length\t: 2\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n",
    };
    static const char *const methods[] = {"POST", "GET"};

    for (size_t i = 0; i < COUNT_OF(methods) * COUNT_OF(headers); i++) {
        int descriptor = web_open(d.port);
        struct web_answer answer;
        char text[512];

        snprintf(text, sizeof(text), "%s /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST JSON "%s\r\n{}",
                 methods[i % 2], headers[i / 2]);
        web_send_text(descriptor, text);
        web_receive(descriptor, false, &answer);
        if (answer.status != 400 || !strstr(answer.body, "\"code\":\"invalid_request\""))
            fail_msg("%s %s: %d %s", methods[i % 2], headers[i / 2], answer.status, answer.body);
        web_release(&answer);
        if (!web_is_closed(descriptor, 3000))
            fail_msg("%s %s: the connection goes on", methods[i % 2], headers[i / 2]);
        close(descriptor);
    }
}

static void every_answer_has_its_id_and_its_type_fixed(void **state)
{
    (void)state;
    static const char *const paths[] = {"/healthz", "/v1/models", "/v1/devices", "/nothing",
                                        "/v1/fine_tuning/jobs"};

    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        struct web_answer answer;

        web_call(d.port, "GET", paths[i], &answer);
        assert_non_null(web_header(&answer, "x-request-id"));
        assert_string_equal(web_header(&answer, "X-Content-Type-Options"), "nosniff");
        assert_string_equal(web_header(&answer, "Content-Type"), "application/json");
        assert_true(answer.whole);
        web_release(&answer);
    }
}

static void unknown_paths_are_404_and_wrong_methods_405(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        int status;
        const char *code, *allow;
    } cases[] = {
        {"GET", "/nothing", 404, "not_found", NULL},
        {"GET", "/v1", 404, "not_found", NULL},
        {"GET", "/v1/models/", 404, "not_found", NULL},
        {"GET", "/v1/files/file-x/content/more", 404, "not_found", NULL},
        {"GET", "/v1/a/b/c/d/e/f/g/h/i/j/k/l", 404, "not_found", NULL},
        {"GET", "/v1/files/%zz", 400, "invalid_request", NULL},
        {"GET", "/v1/files?limit=%zz", 400, "invalid_request", NULL},
        {"PUT", "/v1/files", 405, "method_not_allowed", "POST, GET, HEAD"},
        {"DELETE", "/v1/fine_tuning/jobs", 405, "method_not_allowed", "POST, GET, HEAD"},
        {"GET", "/v1/fine_tuning/jobs/ftjob-x/cancel", 405, "method_not_allowed", "POST"},
        {"GET", "/v1/models/nothing", 404, "model_not_found", NULL},
        {"GET", "/v1/models/nothing/adapter.safetensors", 404, "model_not_found", NULL},
        {"GET", "/v1/files/file-nothing", 404, "not_found", NULL},
        {"DELETE", "/v1/files/file-nothing", 404, "not_found", NULL},
        {"GET", "/v1/files/..%2F..%2Fneedled.db/content", 404, "not_found", NULL},
        {"GET", "/v1/fine_tuning/jobs/ftjob-nothing", 404, "not_found", NULL},
        {"POST", "/v1/fine_tuning/jobs/ftjob-nothing/cancel", 404, "not_found", NULL},
        {"GET", "/v1/fine_tuning/jobs/ftjob-nothing/events", 404, "not_found", NULL},
        {"GET", "/v1/fine_tuning/jobs/ftjob-nothing/events?stream=true", 404, "not_found", NULL},
        {"GET", "/v1/fine_tuning/jobs/ftjob-nothing/checkpoints", 404, "not_found", NULL},
        {"DELETE", "/v1/models/needle", 400, "invalid_request", NULL},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_call(d.port, cases[i].method, cases[i].path, &answer);
        if (answer.status != cases[i].status)
            fail_msg("%s %s: %d %s", cases[i].method, cases[i].path, answer.status, answer.body);
        expect_error(&answer, cases[i].status, cases[i].code);
        if (cases[i].allow)
            assert_string_equal(web_header(&answer, "Allow"), cases[i].allow);
        web_release(&answer);
    }
}

static void a_bad_limit_is_refused_by_name_and_unknown_fields_are_not_looked_at(void **state)
{
    (void)state;
    static const char *const lists[] = {"/v1/files", "/v1/fine_tuning/jobs"};
    static const char *const bad[] = {"limit=0", "limit=-1",  "limit=abc",
                                      "limit=",  "limit=1e3", "limit=99999999"};
    struct web_answer answer;
    char path[128];

    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        for (size_t j = 0; j < COUNT_OF(bad); j++) {
            snprintf(path, sizeof(path), "%s?%s", lists[i], bad[j]);
            web_call(d.port, "GET", path, &answer);
            if (answer.status != 400 || !strstr(answer.body, "\"param\":\"limit\""))
                fail_msg("%s: %d %s", path, answer.status, answer.body);
            web_release(&answer);
        }
        snprintf(path, sizeof(path), "%s?limit=5&colour=red&flag", lists[i]);
        web_call(d.port, "GET", path, &answer);
        assert_int_equal(answer.status, 200);
        assert_non_null(strstr(answer.body, "\"has_more\":false"));
        web_release(&answer);
        snprintf(path, sizeof(path), "%s?after=nothing", lists[i]);
        web_call(d.port, "GET", path, &answer);
        assert_int_equal(answer.status, 400);
        assert_non_null(strstr(answer.body, "\"param\":\"after\""));
        web_release(&answer);
    }
    web_call(d.port, "GET", "/v1/files?order=sideways", &answer);
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body, "\"param\":\"order\""));
    web_release(&answer);
}

static void head_has_the_headers_of_get_and_no_body(void **state)
{
    (void)state;
    struct web_answer get, head;

    web_call(d.port, "GET", "/v1/models", &get);
    web_call(d.port, "HEAD", "/v1/models", &head);
    assert_int_equal(head.status, 200);
    assert_int_equal(head.size, 0);
    assert_string_equal(web_header(&head, "Content-Length"), web_header(&get, "Content-Length"));
    assert_string_equal(web_header(&head, "Content-Type"), web_header(&get, "Content-Type"));
    web_release(&get);
    web_release(&head);
}

static void two_requests_sent_at_once_get_two_answers_in_order(void **state)
{
    (void)state;
    int descriptor = web_open(d.port);
    struct web_answer first, second;

    web_send_text(descriptor, "GET /v1/models HTTP/1.1\r\n" HOST "\r\n"
                              "GET /v1/files HTTP/1.1\r\n" HOST CLOSE "\r\n");
    web_receive(descriptor, false, &first);
    web_receive(descriptor, false, &second);
    assert_int_equal(first.status, 200);
    assert_non_null(strstr(first.body, "\"needle\""));
    assert_int_equal(second.status, 200);
    assert_non_null(strstr(second.body, "\"data\":[]"));
    assert_true(web_is_closed(descriptor, 5000));
    close(descriptor);
    web_release(&first);
    web_release(&second);
}

static void a_body_of_a_type_that_pages_may_send_unasked_is_refused(void **state)
{
    (void)state;
    static const char *const types[] = {"Content-Type: text/plain\r\n", "",
                                        "Content-Type: application/x-www-form-urlencoded\r\n",
                                        "Content-Type: multipart/form-data; boundary=b\r\n"};

    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer,
                "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST CLOSE "%sContent-Length: 2\r\n\r\n{}",
                types[i]);
        expect_error(&answer, 415, "unsupported_media_type");
        web_release(&answer);
    }
}

static void a_body_that_is_not_json_is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const bodies[] = {"", "[1]", "{\"model\":\"needle\",\"training_file\":}",
                                         "{} x"};

    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer,
                "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST CLOSE JSON
                "Content-Length: %zu\r\n\r\n%s",
                strlen(bodies[i]), bodies[i]);
        expect_error(&answer, 400, "invalid_request");
        web_release(&answer);
    }
}

static void a_body_in_chunks_is_the_same_body(void **state)
{
    (void)state;
    static const char body[] = "{\"model\":\"needle\",\"training_file\":\"file-doesnotexist\"}";
    struct web_answer whole, chunked;

    web_ask(d.port, &whole,
            "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST CLOSE JSON
            "Content-Length: %zu\r\n\r\n%s",
            strlen(body), body);
    web_ask(d.port, &chunked,
            "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST CLOSE JSON
            "Transfer-Encoding: chunked\r\n\r\n7\r\n%.7s\r\n%zx\r\n%s\r\n0\r\n\r\n",
            body, strlen(body) - 7, body + 7);
    assert_int_equal(chunked.status, whole.status);
    assert_string_equal(chunked.body, whole.body);
    assert_non_null(strstr(whole.body, "\"param\":\"training_file\""));
    web_release(&whole);
    web_release(&chunked);
}

static void a_client_that_asks_first_is_told_to_continue(void **state)
{
    (void)state;
    int descriptor = web_open(d.port);
    struct web_answer answer;
    char *interim;

    web_send_text(descriptor, "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST CLOSE JSON
                              "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    interim = web_read_until(descriptor, "\r\n\r\n", 5000);
    assert_non_null(strstr(interim, "HTTP/1.1 100"));
    free(interim);
    web_send_text(descriptor, "{}");
    web_receive(descriptor, false, &answer);
    assert_int_equal(answer.status, 400);
    web_release(&answer);
    close(descriptor);
}

static void a_body_announced_too_large_is_refused_before_it_is_sent(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "POST /v1/files HTTP/1.1\r\n" HOST
        "Content-Type: multipart/form-data; boundary=b\r\nExpect: 100-continue\r\n"
        "Content-Length: 99999999999\r\n\r\n",
        "POST /v1/files HTTP/1.1\r\n" HOST
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 99999999999\r\n\r\n",
        "POST /v1/fine_tuning/jobs HTTP/1.1\r\n" HOST JSON "Content-Length: 1048577\r\n\r\n",
        "POST /v1/fine_tuning/jobs/x/cancel HTTP/1.1\r\n" HOST JSON
        "Content-Length: 18446744073709551615\r\n\r\n",
    };

    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        int descriptor = web_open(d.port);
        struct web_answer answer;

        web_send_text(descriptor, requests[i]);
        web_receive(descriptor, false, &answer);
        if (answer.interim_count != 0 || answer.status != 413)
            fail_msg("%zu: %d interim, %d", i, answer.interim_count, answer.status);
        if (answer.body[0] == '{') {
            expect_error(&answer, 413, "request_too_large");
            assert_string_equal(web_header(&answer, "Connection"), "close");
        }
        assert_true(web_is_closed(descriptor, 5000));
        web_release(&answer);
        close(descriptor);
    }
    assert_int_equal(api_daemon_count_uploads(&d), 0);
}

static void a_refusal_reaches_a_client_that_is_still_sending(void **state)
{
    (void)state;
    static char piece[16384];
    int descriptor = web_open(d.port);
    struct web_answer answer;

    web_send_text(descriptor, "POST /v1/files HTTP/1.1\r\n" HOST
                              "Content-Type: multipart/form-data; boundary=b\r\n"
                              "Content-Length: 99999999999\r\n\r\n");
    web_receive(descriptor, false, &answer);
    expect_error(&answer, 413, "request_too_large");
    for (int i = 0; i < 4; i++) { /* a reset would make the second one fail */
        struct pollfd about = {.fd = descriptor, .events = POLLERR};

        assert_int_equal(send(descriptor, piece, sizeof(piece), MSG_NOSIGNAL), sizeof(piece));
        assert_int_equal(poll(&about, 1, 50), 0);
    }
    web_release(&answer);
    close(descriptor);
}

/* A chunked form whose file part goes on and on. */
static void send_endless_form(int descriptor, size_t size)
{
    static const char part[] = "--b\r\nContent-Disposition: form-data; name=\"file\"; "
                               "filename=\"a\"\r\n\r\n";
    static char piece[8192];
    char head[512];

    memset(piece, 'x', sizeof(piece));
    snprintf(head, sizeof(head),
             "POST /v1/files HTTP/1.1\r\n" HOST "Content-Type: multipart/form-data; boundary=b\r\n"
             "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n",
             strlen(part), part);
    web_send_text(descriptor, head);
    for (size_t sent = 0; sent < size; sent += sizeof(piece)) {
        web_send_text(descriptor, "2000\r\n");
        web_send(descriptor, piece, sizeof(piece));
        web_send_text(descriptor, "\r\n");
    }
}

static void a_chunked_body_past_the_limit_ends_in_413_and_keeps_nothing(void **state)
{
    (void)state;
    int descriptor = web_open(d.port);
    struct web_answer answer;

    send_endless_form(descriptor, 300000);
    web_receive(descriptor, false, &answer);
    expect_error(&answer, 413, "request_too_large");
    assert_string_equal(web_header(&answer, "Connection"), "close");
    assert_true(web_is_closed(descriptor, 5000));
    web_release(&answer);
    close(descriptor);
    web_call(d.port, "GET", "/v1/models", &answer); /* and the next request works */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    assert_int_equal(api_daemon_count_uploads(&d), 0);
}

static void a_key_is_asked_for_on_every_call_but_health(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "Authorization: Bearer sk-wrong\r\n",
                                        "Authorization: Basic sk-secret\r\n",
                                        "Authorization: Bearer\r\n"};
    struct web_answer answer;

    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        web_ask(d.port, &answer, "GET /v1/files HTTP/1.1\r\n" HOST CLOSE "%s\r\n", wrong[i]);
        expect_error(&answer, 401, "invalid_api_key");
        assert_non_null(strstr(web_header(&answer, "WWW-Authenticate"), "Bearer"));
        web_release(&answer);
        web_ask(d.port, &answer, "GET /nothing HTTP/1.1\r\n" HOST CLOSE "%s\r\n", wrong[i]);
        assert_int_equal(answer.status, 401);
        web_release(&answer);
    }
    web_ask(d.port, &answer,
            "GET /v1/files HTTP/1.1\r\n" HOST CLOSE "Authorization: Bearer sk-secret\r\n\r\n");
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    web_call(d.port, "GET", "/healthz", &answer);
    assert_non_null(
        strstr(answer.body, "\"status\":")); /* ill, since there is no device, but told */
    web_release(&answer);
}

static void the_unix_socket_takes_any_host(void **state)
{
    (void)state;
    int descriptor = web_open_socket(d.socket);
    struct web_answer answer;

    web_send_text(descriptor, "GET /v1/models HTTP/1.1\r\nHost: whatever\r\n" CLOSE "\r\n");
    web_receive(descriptor, false, &answer);
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    close(descriptor);
}

static void an_address_that_is_taken_or_open_to_all_is_refused(void **state)
{
    (void)state;
    struct server_options options = {.state_folder = d.folder,
                                     .database_path = d.database,
                                     .scheduler = d.scheduler,
                                     .feed = d.feed};
    static const char *const bad[] = {"nonsense", "127.0.0.1",       "host.example:1",
                                      "::1:80",   "127.0.0.1:99999", ":80"};
    struct server *server = NULL;
    struct error err = {0};
    char taken[32];

    snprintf(taken, sizeof(taken), "127.0.0.1:%d", d.port);
    options.listen = taken;
    assert_false(server_start(&options, &server, &err));
    assert_non_null(strstr(err.message, taken));
    options.listen = "0.0.0.0:0";
    assert_false(server_start(&options, &server, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.message, "api_key"));
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        options.listen = bad[i];
        assert_false(server_start(&options, &server, &err));
        assert_non_null(strstr(err.message, bad[i]));
    }
    options.listen = NULL;
    options.socket_path = d.socket; /* in use */
    assert_false(server_start(&options, &server, &err));
    assert_non_null(strstr(err.message, d.socket));
    options.listen = "0.0.0.0:0";
    options.socket_path = NULL;
    options.api_key = "sk-secret";
    assert_true(server_start(&options, &server, &err));
    server_stop(server);
}

static void a_header_that_never_ends_is_closed_and_others_are_served(void **state)
{
    (void)state;
    int silent = web_open(d.port), dripping = web_open(d.port);
    struct web_answer answer;

    web_send_text(silent, "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ");
    web_send_text(dripping, "GET /v1/models HTTP/1.1\r\n");
    for (int i = 0; i < 20; i++) { /* a byte a second would please a timeout of silence */
        web_send_text(dripping, "x");
        web_call(d.port, "GET", "/v1/models", &answer);
        assert_int_equal(answer.status, 200);
        web_release(&answer);
        if (web_is_closed(dripping, 1000))
            break;
    }
    assert_true(web_is_closed(dripping, 1000));
    assert_true(web_is_closed(silent, 5000));
    close(silent);
    close(dripping);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define PLAIN(name) cmocka_unit_test_setup_teardown(name, api_daemon_set_up, api_daemon_tear_down)
        PLAIN(a_host_that_is_not_ours_is_refused),
        PLAIN(a_foreign_origin_is_refused_and_a_known_one_is_not),
        PLAIN(a_header_that_decides_stands_there_once),
        PLAIN(a_body_whose_end_is_unclear_ends_the_connection),
        PLAIN(every_answer_has_its_id_and_its_type_fixed),
        PLAIN(unknown_paths_are_404_and_wrong_methods_405),
        PLAIN(a_bad_limit_is_refused_by_name_and_unknown_fields_are_not_looked_at),
        PLAIN(head_has_the_headers_of_get_and_no_body),
        PLAIN(two_requests_sent_at_once_get_two_answers_in_order),
        PLAIN(a_body_of_a_type_that_pages_may_send_unasked_is_refused),
        PLAIN(a_body_that_is_not_json_is_refused_with_its_place),
        PLAIN(a_body_in_chunks_is_the_same_body),
        PLAIN(a_client_that_asks_first_is_told_to_continue),
        PLAIN(a_body_announced_too_large_is_refused_before_it_is_sent),
        PLAIN(a_refusal_reaches_a_client_that_is_still_sending),
        cmocka_unit_test_setup_teardown(a_chunked_body_past_the_limit_ends_in_413_and_keeps_nothing,
                                        open_small, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_key_is_asked_for_on_every_call_but_health, open_with_key,
                                        api_daemon_tear_down),
        PLAIN(the_unix_socket_takes_any_host),
        PLAIN(an_address_that_is_taken_or_open_to_all_is_refused),
        PLAIN(a_header_that_never_ends_is_closed_and_others_are_served),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

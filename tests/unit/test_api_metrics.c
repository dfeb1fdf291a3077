/* Proves that /metrics is Prometheus' text, counts what happened, and says nothing of users. */
#include "tests/support/api_daemon.h"

#include <ctype.h>
#include <sys/socket.h>

static void scrape(struct web_answer *ret_answer)
{
    web_call(d.port, "GET", "/metrics", ret_answer);
    assert_int_equal(ret_answer->status, 200);
}

/* The number of the sample that begins with this; -1: there is none. */
static double sample(const char *text, const char *wanted)
{
    size_t size = strlen(wanted);

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, wanted, size) == 0 && line[size] == ' ')
            return strtod(line + size, NULL);
    }
    return -1;
}

static void the_text_is_prometheus(void **state)
{
    (void)state;
    struct web_answer answer;
    char family[128] = "", type[32] = "", *line, *rest = NULL;
    size_t samples = 0;

    scrape(&answer);
    web_release(&answer);
    scrape(&answer); /* now there is a request to tell of */
    assert_int_equal(strncmp(web_header(&answer, "Content-Type"), "text/plain; version=0.0.4", 25),
                     0);
    for (line = strtok_r(answer.body, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[128], *end = NULL;
        const char *number;

        if (sscanf(line, "# HELP %127s", name) == 1) {
            assert_string_not_equal(name, family); /* each family once */
            snprintf(family, sizeof(family), "%s", name);
            type[0] = '\0';
            continue;
        }
        if (sscanf(line, "# TYPE %127s %31s", name, type) == 2) {
            assert_string_equal(name, family);
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(line, "{ "), line);
        assert_true(type[0] != '\0');
        if (strncmp(name, family, strlen(family)) != 0)
            fail_msg("%s stands under %s", name, family);
        assert_true(strncmp(name, "needled_", 8) == 0 || strncmp(name, "process_", 8) == 0);
        if ((strcmp(type, "counter") == 0) != (strstr(name, "_total") != NULL))
            fail_msg("%s is a %s", name, type);
        for (const char *at = name; *at; at++)
            assert_true(islower((unsigned char)*at) || isdigit((unsigned char)*at) || *at == '_');
        number = strrchr(line, ' ');
        (void)strtod(number, &end);
        assert_true(end > number + 1 && *end == '\0');
        samples++;
    }
    assert_true(samples > 30);
    web_release(&answer);
}

/* ---- a client that leaves ---- */

static bool has_left(void)
{
    static const char wanted[] =
        "needled_http_requests_total{method=\"POST\",route=\"/v1/files\",code=\"499\"}";
    struct web_answer answer;
    bool counted;

    scrape(&answer);
    counted = sample(answer.body, wanted) > 0;
    assert_null(strstr(answer.body, "route=\"/v1/files\",code=\"5"));
    web_release(&answer);
    return counted;
}

static void a_client_that_leaves_its_upload_is_no_fault_of_ours(void **state)
{
    (void)state;
    static const char half[] = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Type: multipart/form-data; boundary=b\r\n"
                               "Content-Length: 100000\r\nExpect: 100-continue\r\n\r\n";
    char proceed[64];
    int client = web_open(d.port);

    assert_int_equal(send(client, half, strlen(half), 0), strlen(half));
    assert_true(recv(client, proceed, sizeof(proceed), 0) > 0); /* the request is known */
    close(client);
    for (int i = 0; i < 6000 && !has_left(); i++)
        usleep(10000);
    assert_true(has_left());
}

static void what_happened_is_counted(void **state)
{
    (void)state;
    struct web_answer answer;
    static const char route[] = "needled_http_request_duration_seconds";
    char name[160];
    double last = 0;
    static const char *const bounds[] = {"0.001", "0.005", "0.02", "0.1", "0.5",
                                         "2",     "10",    "60",   "+Inf"};

    api_daemon_add_job(&d, "ftjob-secret");
    api_daemon_add_job(&d, "ftjob-other");
    api_daemon_end_job(&d, "ftjob-other");
    for (int i = 0; i < 3; i++) {
        web_call(d.port, "GET", "/v1/fine_tuning/jobs/ftjob-secret", &answer);
        web_release(&answer);
    }
    web_call(d.port, "GET", "/v1/fine_tuning/jobs/ftjob-none", &answer);
    web_release(&answer);
    web_call(d.port, "GET", "/nowhere/secret", &answer);
    web_release(&answer);
    scrape(&answer);
    assert_int_equal(sample(answer.body, "needled_jobs{status=\"validating_files\"}"), 1);
    assert_int_equal(sample(answer.body, "needled_jobs{status=\"cancelled\"}"), 1);
    assert_int_equal(sample(answer.body, "needled_jobs{status=\"running\"}"), 0);
    assert_int_equal(sample(answer.body,
                            "needled_http_requests_total{method=\"GET\",route=\"/v1/fine_tuning/"
                            "jobs/{}\",code=\"200\"}"),
                     3);
    assert_int_equal(sample(answer.body,
                            "needled_http_requests_total{method=\"GET\",route=\"/v1/fine_tuning/"
                            "jobs/{}\",code=\"404\"}"),
                     1);
    assert_int_equal(
        sample(answer.body, "needled_http_requests_total{method=\"\",route=\"none\",code=\"404\"}"),
        1);
    for (size_t i = 0; i < COUNT_OF(bounds); i++) {
        double number;

        snprintf(name, sizeof(name),
                 "%s_bucket{method=\"GET\",route=\"/v1/fine_tuning/jobs/{}\",le=\"%s\"}", route,
                 bounds[i]);
        number = sample(answer.body, name);
        assert_true(number >= last);
        last = number;
    }
    assert_int_equal(last, 4);
    snprintf(name, sizeof(name), "%s_count{method=\"GET\",route=\"/v1/fine_tuning/jobs/{}\"}",
             route);
    assert_int_equal(sample(answer.body, name), 4);
    snprintf(name, sizeof(name), "%s_sum{method=\"GET\",route=\"/v1/fine_tuning/jobs/{}\"}", route);
    assert_true(sample(answer.body, name) > 0);
    assert_true(sample(answer.body, "needled_sqlite_database_bytes") > 4096);
    assert_true(sample(answer.body, "needled_state_disk_free_bytes") > 0);
    assert_true(sample(answer.body, "needled_state_disk_writable") == 1);
    assert_true(sample(answer.body, "process_resident_memory_bytes") > 1e6);
    assert_int_equal(sample(answer.body, "needled_event_streams"), 0);
    assert_null(strstr(answer.body, "secret")); /* no id, no path of a user */
    web_release(&answer);
}

static void readers_of_events_are_counted_while_they_read(void **state)
{
    (void)state;
    struct web_answer answer;
    int stream = web_open(d.port);

    api_daemon_add_job(&d, "ftjob-one");
    web_send_text(stream, "GET /v1/fine_tuning/jobs/ftjob-one/events?stream=true HTTP/1.1\r\n"
                          "Host: 127.0.0.1\r\n\r\n");
    free(web_read_until(stream, "job created", 5000));
    scrape(&answer);
    assert_int_equal(sample(answer.body, "needled_event_streams"), 1);
    assert_true(sample(answer.body, "needled_http_requests_in_flight") >= 2);
    web_release(&answer);
    close(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define OPEN(name) cmocka_unit_test_setup_teardown(name, api_daemon_set_up, api_daemon_tear_down)
        OPEN(the_text_is_prometheus),
        OPEN(a_client_that_leaves_its_upload_is_no_fault_of_ours),
        OPEN(what_happened_is_counted),
        OPEN(readers_of_events_are_counted_while_they_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves the event stream of all jobs and what both kinds of stream do with cursors and crowds: rows as
 * ids, from now on or from a cursor, across a restart; types; cursors that are none; a limit on readers
 * that others do not feel; HTTP/1.0; an end that tells when to come again. */
#include "tests/support/api_daemon.h"

#include "daemon/base/clock.h"
#include "store/events.h"

#include <pthread.h>
#include <sys/socket.h>

#define ALL "/v1/events?stream=true"
#define JOB_STREAM(job) "/v1/fine_tuning/jobs/" job "/events?stream=true"
#define LIMIT 12

static struct api_daemon d;

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.stream_limit = LIMIT});
    api_daemon_add_job(&d, "ftjob-a"); /* row 1 */
    api_daemon_add_job(&d, "ftjob-b"); /* row 2 */
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    if (d.server)
        api_daemon_close(&d);
    return 0;
}

static int open_stream(const char *path, const char *headers)
{
    int descriptor = web_open(d.port);
    char request[600];

    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", path,
             headers);
    web_send_text(descriptor, request);
    return descriptor;
}

/* Head and body of an answer that is no stream; one that is fails here, and does not hang. */
static char *read_refusal(const char *path, const char *headers)
{
    int descriptor = open_stream(path, headers);
    char *text = web_read_until(descriptor, "}\n", 10000);

    close(descriptor);
    return text;
}

/* The ids of all frames, as "3 4 ". */
static const char *ids(const char *text)
{
    static char list[4096];

    list[0] = '\0';
    for (const char *at = text; (at = strstr(at, "id: ")); at += 4) {
        size_t used = strlen(list);

        if (at == text || at[-1] == '\n')
            snprintf(list + used, sizeof(list) - used, "%.*s ", (int)strcspn(at + 4, "\n"), at + 4);
    }
    return list;
}

static void expect_ids(int descriptor, const char *until, const char *expected)
{
    char *text = web_read_until(descriptor, until, 10000);

    assert_string_equal(ids(text), expected);
    free(text);
}

static void a_first_visit_hears_of_every_job_from_now_on(void **state)
{
    (void)state;
    int descriptor = open_stream(ALL, "");
    char *head = web_read_until(descriptor, "\r\n\r\n", 5000); /* at once, without an event */
    char *text;

    assert_non_null(strstr(head, " 200 "));
    assert_non_null(strstr(head, "text/event-stream"));
    assert_non_null(strstr(head, "no-cache, no-transform"));
    assert_non_null(strstr(head, "X-Accel-Buffering: no"));
    free(head);
    api_daemon_add_events(&d, "ftjob-a", 1); /* 3 */
    api_daemon_add_events(&d, "ftjob-b", 2); /* 4, 5 */
    text = web_read_until(descriptor, "id: 5\n", 10000);
    assert_string_equal(ids(text), "3 4 5 ");
    assert_non_null(strstr(text, "id: 3\nretry: "));
    assert_non_null(strstr(text, "event: metrics\ndata: {\"id\":\"ftevent-3\""));
    assert_non_null(strstr(text, "\"fine_tuning_job_id\":\"ftjob-a\",\"number\":2}\n\n"));
    assert_non_null(strstr(text, "\"fine_tuning_job_id\":\"ftjob-b\",\"number\":2}\n\n"));
    free(text);
    close(descriptor);
}

static void a_job_that_ends_does_not_end_the_stream_of_all(void **state)
{
    (void)state;
    int descriptor = open_stream(ALL "&after=0", "");

    api_daemon_end_job(&d, "ftjob-a");       /* 3 */
    api_daemon_add_events(&d, "ftjob-b", 1); /* 4 */
    expect_ids(descriptor, "\"number\":2}\n\n", "1 2 3 ");
    expect_ids(descriptor, "id: 4\n", "4 ");
    close(descriptor);
}

static void a_cursor_goes_on_exactly_and_the_header_wins(void **state)
{
    (void)state;
    static const struct {
        const char *path, *headers, *expected;
    } cases[] = {
        {ALL "&after=0", "", "1 2 3 4 5 6 "},
        {ALL "&after=4", "", "5 6 "},
        {ALL "&after=ftevent-4", "", "5 6 "},
        {ALL "&after=1", "Last-Event-ID: 3\r\n", "4 5 6 "},
        {ALL, "Last-Event-ID: ftevent-5\r\n", "6 "},
        {ALL "&after=4", "Last-Event-ID: \r\n", "5 6 "}, /* an empty one is none */
        {"/v1/events?after=4", "Accept: text/event-stream\r\n", "5 6 "},
        {ALL "&after=0&types=state", "", "1 2 "},
        {ALL "&after=1&types=state,metrics", "", "2 3 4 5 6 "},
    };

    api_daemon_add_events(&d, "ftjob-a", 4); /* 3 to 6 */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int descriptor = open_stream(cases[i].path, cases[i].headers);
        char last[32], *text;

        snprintf(last, sizeof(last), "ftevent-%c",
                 cases[i].expected[strlen(cases[i].expected) - 2]);
        text = web_read_until(descriptor, last, 10000);
        if (strcmp(ids(text), cases[i].expected) != 0)
            fail_msg("%s %s: %s", cases[i].path, cases[i].headers, ids(text));
        free(text);
        close(descriptor);
    }
}

static void cursors_that_are_none_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *path, *headers, *param;
    } cases[] = {
        {ALL "&after=7", "", "after"}, /* nothing has that row yet */
        {ALL "&after=-1", "", "after"},
        {ALL "&after=1.5", "", "after"},
        {ALL "&after=ftevent-", "", "after"},
        {ALL "&after=99999999999999999999999999", "", "after"},
        {ALL, "Last-Event-ID: 7\r\n", "Last-Event-ID"},
        {ALL, "Last-Event-ID: 1 OR 1=1\r\n", "Last-Event-ID"},
        {ALL, "Last-Event-ID: %0d%0aid:9\r\n", "Last-Event-ID"},
        {ALL, "Last-Event-ID: \xC3\xA9\r\n", "Last-Event-ID"},
        {ALL, "Last-Event-ID: 0x10\r\n", "Last-Event-ID"},
        {JOB_STREAM("ftjob-a"), "Last-Event-ID: 2\r\n", "Last-Event-ID"},
        {JOB_STREAM("ftjob-a"), "Last-Event-ID: -2\r\n", "Last-Event-ID"},
        {JOB_STREAM("ftjob-a"), "Last-Event-ID: ftevent-2\r\n", "Last-Event-ID"}, /* job b's */
        {JOB_STREAM("ftjob-a") "&after=2", "", "after"},
        {ALL "&types=metric", "", "types"},
        {ALL "&types=state,,done", "", "types"},
        {"/v1/fine_tuning/jobs/ftjob-a/events?types=states", "", "types"},
        {"/v1/events?stream=maybe", "", "stream"},
        {"/v1/events?limit=0", "", "limit"},
        {"/v1/events?after=x", "", "after"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *text = read_refusal(cases[i].path, cases[i].headers);
        char wanted[64];

        snprintf(wanted, sizeof(wanted), "\"param\":\"%s\"", cases[i].param);
        if (!strstr(text, " 400 ") || !strstr(text, wanted))
            fail_msg("%s %s: %s", cases[i].path, cases[i].headers, text);
        free(text);
    }
}

static void a_page_has_the_newest_of_all_jobs_first(void **state)
{
    (void)state;
    struct web_answer answer;

    api_daemon_add_events(&d, "ftjob-a", 2); /* 3, 4 */
    web_call(d.port, "GET", "/v1/events?limit=3", &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "\"first_id\":\"ftevent-4\",\"last_id\":\"ftevent-2\","
                                        "\"has_more\":true"));
    web_release(&answer);
    web_call(d.port, "GET", "/v1/events?limit=3&after=ftevent-2", &answer);
    assert_non_null(strstr(answer.body, "\"first_id\":\"ftevent-1\",\"last_id\":\"ftevent-1\","
                                        "\"has_more\":false"));
    web_release(&answer);
    web_call(d.port, "GET", "/v1/fine_tuning/jobs/ftjob-a/events?types=state,done", &answer);
    assert_non_null(strstr(answer.body, "\"first_id\":\"ftevent-1\",\"last_id\":\"ftevent-1\""));
    web_release(&answer);
    web_call(d.port, "GET", "/v1/events?types=state", &answer);
    assert_non_null(strstr(answer.body, "\"first_id\":\"ftevent-2\",\"last_id\":\"ftevent-1\""));
    web_release(&answer);
    web_call(d.port, "HEAD", ALL, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(web_header(&answer, "Content-Type"), "text/event-stream");
    web_release(&answer);
}

static void more_readers_than_the_limit_are_refused_and_nobody_else_feels_it(void **state)
{
    (void)state;
    int descriptors[LIMIT];
    struct web_answer answer;
    int64_t until;

    for (size_t i = 0; i < LIMIT; i++) {
        descriptors[i] = open_stream(i % 2 ? ALL : JOB_STREAM("ftjob-a"), "");
        free(web_read_until(descriptors[i], "\r\n\r\n", 5000));
    }
    for (int i = 0; i < 3; i++) {
        char *text = read_refusal(i % 2 ? ALL : JOB_STREAM("ftjob-b"), "");

        assert_non_null(strstr(text, " 503 "));
        assert_non_null(strstr(text, "\"code\":\"too_many_streams\""));
        assert_non_null(strstr(text, "Retry-After: "));
        free(text);
    }
    web_call(d.port, "GET", "/v1/events", &answer); /* pages go on */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    api_daemon_add_events(&d, "ftjob-a", 1);
    for (size_t i = 0; i < LIMIT; i++) {
        free(web_read_until(descriptors[i], "event: metrics\n", 10000));
        close(descriptors[i]);
    }
    until = clock_monotonic_ns() + 8 * INT64_C(1000000000);
    do { /* their places come free */
        int descriptor = open_stream(ALL, "");
        char *head = web_read_until(descriptor, "\r\n\r\n", 5000);

        answer.status = atoi(head + strlen("HTTP/1.1 "));
        free(head);
        close(descriptor);
    } while (answer.status == 503 && clock_monotonic_ns() < until);
    assert_int_equal(answer.status, 200);
}

static void http_1_0_gets_a_stream_that_ends_with_the_connection(void **state)
{
    (void)state;
    int descriptor = web_open(d.port);
    char *text;

    web_send_text(descriptor, "GET " JOB_STREAM("ftjob-a") " HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    text = web_read_until(descriptor, "\n\n", 10000);
    assert_null(strstr(text, "chunked"));
    free(text);
    api_daemon_add_events(&d, "ftjob-a", 1);
    api_daemon_end_job(&d, "ftjob-a");
    text = web_read_until(descriptor, "id: 3\n", 10000);
    assert_string_equal(ids(text), "2 3 ");
    free(text);
    assert_true(web_is_closed(descriptor, 10000));
    close(descriptor);
}

static void a_stop_says_when_to_come_again_and_nothing_is_lost_over_it(void **state)
{
    (void)state;
    int all = open_stream(ALL, ""), one = open_stream(JOB_STREAM("ftjob-a"), "");
    struct error err = {0};
    char *text;

    free(web_read_until(all, "\r\n\r\n", 5000));
    free(web_read_until(one, "\n\n", 5000));
    api_daemon_add_events(&d, "ftjob-a", 1); /* 3 */
    expect_ids(all, "ftevent-3", "3 ");
    expect_ids(one, "ftevent-3", "2 ");
    server_stop(d.server);
    text = web_read_until(all, "0\r\n\r\n", 5000);
    assert_non_null(strstr(text, "\nretry: "));
    assert_null(strstr(strstr(text, "\nretry: "), "\n\n")); /* no block: nobody sees an event */
    free(text);
    free(web_read_until(one, "0\r\n\r\n", 5000));
    close(all);
    close(one);
    api_daemon_add_events(&d, "ftjob-b", 2); /* 4, 5, while nobody serves */
    api_daemon_must(server_start(&(struct server_options){.listen = "127.0.0.1:0",
                                                          .state_folder = d.folder,
                                                          .database_path = d.database,
                                                          .scheduler = d.scheduler,
                                                          .feed = d.feed},
                                 &d.server, &err),
                    &err);
    d.port = server_port(d.server);
    all = open_stream(ALL, "Last-Event-ID: 3\r\n");
    expect_ids(all, "ftevent-5", "4 5 ");
    api_daemon_add_events(&d, "ftjob-a", 1); /* 6 */
    expect_ids(all, "ftevent-6", "6 ");
    close(all);
}

static void *write_many(void *context)
{
    struct store *store = NULL;
    struct error err = {0};

    api_daemon_must(store_open(d.database, false, &store, &err), &err);
    for (int i = 0; i < 150; i++) {
        struct event_draft event = {EVENT_INFO, "metrics", "step", NULL, 0};

        api_daemon_must(events_append(store, context, &event, 1, -1, 0, 0, &err), &err);
        events_feed_publish(d.feed, context);
    }
    store_close(store);
    return NULL;
}

static void writers_of_several_jobs_lose_nothing_in_any_stream(void **state)
{
    (void)state;
    static char a[] = "ftjob-a", b[] = "ftjob-b";
    int descriptors[LIMIT];
    pthread_t threads[2];

    for (size_t i = 0; i < LIMIT; i++)
        descriptors[i] = open_stream(i % 3 ? ALL "&after=0" : JOB_STREAM("ftjob-a"), "");
    assert_int_equal(pthread_create(&threads[0], NULL, write_many, a), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, write_many, b), 0);
    for (size_t i = 0; i < LIMIT; i++) {
        const int last = i % 3 ? 302 : 151;
        char until[32], *text;
        int expected = 0;

        snprintf(until, sizeof(until), "id: %d\n", last);
        text = web_read_until(descriptors[i], until, 60000);
        for (const char *at = text; (at = strstr(at, "\nid: ")); at += 5)
            assert_int_equal(atoi(at + 5), ++expected);
        assert_int_equal(expected, last);
        free(text);
        close(descriptors[i]);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_it, close_it)
        TEST(a_first_visit_hears_of_every_job_from_now_on),
        TEST(a_job_that_ends_does_not_end_the_stream_of_all),
        TEST(a_cursor_goes_on_exactly_and_the_header_wins),
        TEST(cursors_that_are_none_are_refused_by_name),
        TEST(a_page_has_the_newest_of_all_jobs_first),
        TEST(more_readers_than_the_limit_are_refused_and_nobody_else_feels_it),
        TEST(http_1_0_gets_a_stream_that_ends_with_the_connection),
        TEST(a_stop_says_when_to_come_again_and_nothing_is_lost_over_it),
        TEST(writers_of_several_jobs_lose_nothing_in_any_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

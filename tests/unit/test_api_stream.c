/* Proves the event stream: every event once and in order, across a reconnect too, then live; comments in
 * silence; a clean end behind `done` and 204 for who comes back; a reader that does not read, leaves or
 * is there at the stop costs nothing and holds up nobody. */
#include "tests/support/api_daemon.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define JOB "ftjob-test"
#define STREAM "/v1/fine_tuning/jobs/" JOB "/events?stream=true"

static struct api_daemon d;

static int open_plain(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){0});
    api_daemon_add_job(&d, JOB); /* event 1 */
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    if (d.server)
        api_daemon_close(&d);
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Asks for the stream; header lines may be "". */
static int open_stream(const char *path, const char *headers)
{
    int descriptor = web_open(d.port);
    char request[512];

    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", path,
             headers);
    web_send_text(descriptor, request);
    return descriptor;
}

/* Checks that the text holds the frames of exactly these events, in order. */
static void expect_frames(const char *text, int first, int last)
{
    const char *at = text;

    for (int number = first; number <= last; number++) {
        char wanted[32], again[64];

        snprintf(wanted, sizeof(wanted), "id: %d\n", number);
        at = strstr(at, wanted);
        if (!at)
            fail_msg("no event %d in order in: %s", number, text);
        at += strlen(wanted);
        snprintf(again, sizeof(again), "id: %d\n", number);
        if (strstr(at, again))
            fail_msg("event %d twice in: %s", number, text);
        assert_non_null(strstr(at, "data: {\"id\":\"ftevent-"));
    }
    if (strstr(at, "\nid: "))
        fail_msg("more than events %d to %d in: %s", first, last, text);
}

static void a_finished_job_is_streamed_whole_and_ends_cleanly(void **state)
{
    (void)state;
    struct web_answer answer;
    int64_t started;

    api_daemon_add_events(&d, JOB, 98);
    api_daemon_end_job(&d, JOB);
    started = now_ms();
    web_call(d.port, "GET", STREAM, &answer);
    assert_true(now_ms() - started < 5000); /* page by page, without a sleep in between */
    assert_int_equal(answer.status, 200);
    assert_true(answer.whole); /* the last chunk came */
    assert_non_null(strstr(web_header(&answer, "Content-Type"), "text/event-stream"));
    assert_string_equal(web_header(&answer, "Cache-Control"), "no-cache, no-transform");
    assert_string_equal(web_header(&answer, "X-Accel-Buffering"), "no");
    expect_frames(answer.body, 1, 100);
    assert_non_null(strstr(answer.body, "id: 1\nretry: "));
    assert_non_null(strstr(answer.body, "id: 100\nevent: done\ndata: {"));
    assert_string_equal(answer.body + answer.size - 2, "\n\n");
    web_release(&answer);
}

static void who_has_read_to_the_end_gets_204(void **state)
{
    (void)state;
    static const struct {
        const char *cursor;
        int status;
    } cases[] = {{"Last-Event-ID: 4\r\n", 204}, {"Last-Event-ID: 400\r\n", 400}};
    struct web_answer answer;

    api_daemon_add_events(&d, JOB, 2);
    api_daemon_end_job(&d, JOB); /* event 4 */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int descriptor = open_stream(STREAM, cases[i].cursor);

        web_receive(descriptor, false, &answer);
        assert_int_equal(answer.status, cases[i].status);
        web_release(&answer);
        close(descriptor);
    }
    web_call(d.port, "GET", STREAM "&after=4", &answer);
    assert_int_equal(answer.status, 204);
    web_release(&answer);
    web_call(d.port, "GET", STREAM "&after=3", &answer);
    assert_int_equal(answer.status, 200);
    expect_frames(answer.body, 4, 4);
    web_release(&answer);
}

static void a_reconnect_goes_on_where_it_was_and_then_live(void **state)
{
    (void)state;
    int descriptor;
    char *first, *second;

    api_daemon_add_events(&d, JOB, 9); /* 2 to 10 */
    descriptor = open_stream(STREAM, "");
    first = web_read_until(descriptor, "id: 4\n", 10000);
    close(descriptor);
    free(first);

    descriptor = open_stream(STREAM "&after=1", "Last-Event-ID: 3\r\n"); /* the header wins */
    first = web_read_until(descriptor, "\"number\":10}", 10000);
    expect_frames(first, 4, 10);
    for (int i = 0; i < 40; i++)
        api_daemon_add_events(&d, JOB, 1); /* 11 to 50, while it is being read */
    api_daemon_end_job(&d, JOB);           /* 51 */
    second = web_read_until(descriptor, "0\r\n\r\n", 10000);
    expect_frames(second, 11, 51);
    free(first);
    free(second);
    close(descriptor);
}

static void an_event_is_sent_as_soon_as_it_is_committed(void **state)
{
    (void)state;
    int descriptor = open_stream("/v1/fine_tuning/jobs/" JOB "/events",
                                 "Accept: text/event-stream\r\n"); /* asks by type */
    int64_t started, quickest_ms = INT64_MAX;

    free(web_read_until(descriptor, "\n\n", 5000));
    for (int i = 2; i < 12; i++) {
        char wanted[32];
        int64_t ms;

        snprintf(wanted, sizeof(wanted), "id: %d\n", i);
        started = now_ms();
        api_daemon_add_events(&d, JOB, 1);
        free(web_read_until(descriptor, wanted, 5000));
        ms = now_ms() - started;
        quickest_ms = ms < quickest_ms ? ms : quickest_ms;
    }
    /* Woken by the feed: the sweep comes each second, and each event right after one. */
    assert_true(quickest_ms < 900);
    close(descriptor);
}

static void an_event_may_be_named_by_its_api_id(void **state)
{
    (void)state;
    struct web_answer answer;
    char path[256];
    const char *at;

    api_daemon_add_events(&d, JOB, 5);
    api_daemon_end_job(&d, JOB); /* 7 */
    web_call(d.port, "GET", "/v1/fine_tuning/jobs/" JOB "/events?limit=2", &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "\"number\":7"));
    assert_non_null(strstr(answer.body, "\"number\":6"));
    assert_non_null(strstr(answer.body, "\"has_more\":true"));
    at = strstr(answer.body, "\"last_id\":\"") + strlen("\"last_id\":\"");
    snprintf(path, sizeof(path), STREAM "&after=%.*s", (int)strcspn(at, "\""), at);
    web_release(&answer);
    web_call(d.port, "GET", path, &answer); /* on a stream: newer than */
    expect_frames(answer.body, 7, 7);
    web_release(&answer);
    web_call(d.port, "GET", "/v1/fine_tuning/jobs/" JOB "/events?limit=3&after=4", &answer);
    assert_non_null(strstr(answer.body, "\"number\":3")); /* on a page: older than */
    assert_null(strstr(answer.body, "\"number\":4"));
    assert_non_null(strstr(answer.body, "\"has_more\":false"));
    web_release(&answer);
    web_call(d.port, "GET", STREAM "&after=ftevent-999999", &answer);
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body, "\"param\":\"after\""));
    web_release(&answer);
}

static void silence_is_broken_by_comment_lines(void **state)
{
    (void)state;
    int descriptor = open_stream(STREAM, "");
    int64_t started;
    char *text;

    free(web_read_until(descriptor, "\n\n", 5000));
    started = now_ms();
    text = web_read_until(descriptor, ":\n", 15000);
    assert_true(now_ms() - started > 5000);
    assert_null(strstr(text, ":\n\n")); /* no blank line: some clients would see an event */
    free(text);
    close(descriptor);
}

static void head_of_a_stream_has_no_body(void **state)
{
    (void)state;
    struct web_answer answer;

    web_call(d.port, "HEAD", STREAM, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(web_header(&answer, "Content-Type"), "text/event-stream");
    web_release(&answer);
}

static void a_stop_with_open_streams_is_quick_and_ends_them_cleanly(void **state)
{
    (void)state;
    int descriptors[40];
    int64_t started;

    for (size_t i = 0; i < COUNT_OF(descriptors); i++) {
        descriptors[i] = open_stream(STREAM, "");
        free(web_read_until(descriptors[i], "\n\n", 5000));
    }
    started = now_ms();
    api_daemon_close(&d);
    assert_true(now_ms() - started < 8000); /* before a comment is due */
    for (size_t i = 0; i < COUNT_OF(descriptors); i++) {
        char *rest = web_read_until(descriptors[i], "0\r\n\r\n", 1000);

        assert_true(web_is_closed(descriptors[i], 20000));
        free(rest);
        close(descriptors[i]);
    }
}

static long resident_kb(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0, resident = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A reader on a thread of its own: over HTTP/1.0, so that no chunk's size stands between the lines. */
struct follower {
    int descriptor, last_wanted, last;
    bool out_of_order;
};

static void *follow_to_the_end(void *context)
{
    static const char mark[] = "\nid: ";
    struct follower *follower = context;
    char piece[65536];
    size_t matched = 0; /* of the mark; with all of it, a number is read */
    int number = 0;

    while (follower->last < follower->last_wanted && !follower->out_of_order) {
        ssize_t count = recv(follower->descriptor, piece, sizeof(piece), 0);

        if (count <= 0)
            break;
        for (ssize_t i = 0; i < count; i++) {
            if (matched < sizeof(mark) - 1) {
                matched = piece[i] == mark[matched] ? matched + 1 : piece[i] == mark[0];
                number = 0;
            } else if (piece[i] != '\n') {
                number = number * 10 + piece[i] - '0';
            } else {
                follower->out_of_order |= number != follower->last + 1;
                follower->last = number;
                matched = 1;
            }
        }
    }
    return NULL;
}

static void readers_that_do_not_read_stay_bounded_and_hold_up_nobody(void **state)
{
    (void)state;
    static const size_t data_size = 400;
    struct event_draft drafts[500];
    struct follower follower = {.last_wanted = 100001}; /* the job's first is there */
    int descriptors[8], small = 4096;
    char *data = malloc(data_size + 16);
    struct error err = {0};
    struct web_answer answer;
    pthread_t thread;
    int64_t quickest_ms = INT64_MAX;
    long before;

    assert_non_null(data);
    memset(data, 'x', data_size);
    memcpy(data, "{\"a\":\"", 6);
    memcpy(data + data_size, "\"}", 3);
    for (size_t i = 0; i < COUNT_OF(drafts); i++)
        drafts[i] = (struct event_draft){EVENT_INFO, "metrics", "step", data, 0};
    for (size_t i = 0; i < COUNT_OF(descriptors); i++) {
        descriptors[i] = open_stream(STREAM, "");
        setsockopt(descriptors[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    }
    follower.descriptor = web_open(d.port);
    web_send_text(follower.descriptor, "GET " STREAM " HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    assert_int_equal(pthread_create(&thread, NULL, follow_to_the_end, &follower), 0);
    before = resident_kb();
    for (int i = 0; i < 200; i++) { /* 100,000 events: 40 MB, 320 MB over all readers */
        api_daemon_must(events_append(d.store, JOB, drafts, COUNT_OF(drafts), -1, 0, 0, &err),
                        &err);
        events_feed_publish(d.feed, JOB);
        if (i % 50 == 0) {
            int64_t started = now_ms();

            web_call(d.port, "GET", "/v1/models", &answer);
            assert_int_equal(answer.status, 200);
            if (now_ms() - started < quickest_ms)
                quickest_ms = now_ms() - started;
            web_release(&answer);
        }
    }
/* Sanitizers keep freed memory for a while, and memory of their own for each byte of it. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (resident_kb() - before > 60 * 1024)
        fail_msg("memory grew by %ld kB", resident_kb() - before);
#endif
    assert_true(before > 0);
    assert_true(quickest_ms < 2000);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(follower.out_of_order);
    assert_int_equal(follower.last, follower.last_wanted);
    close(follower.descriptor);
    for (size_t i = 0; i < COUNT_OF(descriptors); i++)
        close(descriptors[i]);
    free(data);
}

static int count_sockets(void)
{
    int count = 0;
    struct dirent *entry;
    DIR *folder = opendir("/proc/self/fd");

    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[300], target[64] = "";

        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strncmp(target, "socket:", 7) == 0)
            count++;
    }
    closedir(folder);
    return count;
}

static void readers_that_leave_are_noticed(void **state)
{
    (void)state;
    struct web_answer answer;
    int64_t until;
    int before = count_sockets();

    for (int round = 0; round < 30; round++) {
        int descriptor = open_stream(STREAM, "");
        struct linger at_once = {.l_onoff = 1, .l_linger = 0};

        free(web_read_until(descriptor, "\n\n", 5000));
        if (round % 2)
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(descriptor);
    }
    until = now_ms() + 8000; /* shorter than the silence after which a comment is due */
    while (count_sockets() > before && now_ms() < until)
        usleep(50000);
    assert_int_equal(count_sockets(), before);
    web_call(d.port, "GET", "/v1/models", &answer);
    assert_int_equal(answer.status, 200);
    web_release(&answer);
}

static void many_writers_and_readers_lose_nothing(void **state)
{
    (void)state;
    int descriptors[16];

    for (size_t i = 0; i < COUNT_OF(descriptors); i++)
        descriptors[i] = open_stream(STREAM, "");
    for (int i = 0; i < 300; i++)
        api_daemon_add_events(&d, JOB, 1);
    api_daemon_end_job(&d, JOB); /* 302 */
    for (size_t i = 0; i < COUNT_OF(descriptors); i++) {
        struct web_answer answer;

        web_receive(descriptors[i], false, &answer);
        assert_true(answer.whole);
        expect_frames(answer.body, 1, 302);
        web_release(&answer);
        close(descriptors[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define PLAIN(name) cmocka_unit_test_setup_teardown(name, open_plain, close_it)
        PLAIN(a_finished_job_is_streamed_whole_and_ends_cleanly),
        PLAIN(who_has_read_to_the_end_gets_204),
        PLAIN(a_reconnect_goes_on_where_it_was_and_then_live),
        PLAIN(an_event_is_sent_as_soon_as_it_is_committed),
        PLAIN(an_event_may_be_named_by_its_api_id),
        PLAIN(silence_is_broken_by_comment_lines),
        PLAIN(head_of_a_stream_has_no_body),
        PLAIN(a_stop_with_open_streams_is_quick_and_ends_them_cleanly),
        PLAIN(readers_that_do_not_read_stay_bounded_and_hold_up_nobody),
        PLAIN(readers_that_leave_are_noticed),
        PLAIN(many_writers_and_readers_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

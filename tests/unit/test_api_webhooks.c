/* Proves that webhooks are told of ended jobs, signed as the standard says, once taken and no more, later
 * again when not, over a restart too; that a dead receiver delays nobody, and that nothing is called that
 * the setting does not list (test_api_outbound has its rules). */
#include "tests/support/api_daemon.h"

#include "api/hookcall.h"
#include "daemon/base/json.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define HOSTS "127.0.0.1, *.example.com"
#define ALL                                                                                        \
    "[\"fine_tuning.job.succeeded\",\"fine_tuning.job.failed\",\"fine_tuning.job.cancelled\"]"
#define OK "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.webhook_hosts = HOSTS});
    return 0;
}

static int open_unlisted(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){0});
    return 0;
}

static int open_any(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.webhook_hosts = "*"});
    return 0;
}

/* ---- a receiver ---- */

static int listen_at(int *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(descriptor, 16), 0);
    assert_int_equal(getsockname(descriptor, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return descriptor;
}

struct call {
    char text[8192]; /* the whole request */
    const char *body;
};

static bool waits(int listener, int timeout_ms)
{
    struct pollfd about = {.fd = listener, .events = POLLIN};

    return poll(&about, 1, timeout_ms) == 1;
}

/* The next request, answered with that. */
static void take_call(int listener, const char *reply, struct call *ret_call)
{
    size_t size = 0, wanted = SIZE_MAX;
    int descriptor;

    if (!waits(listener, 60000))
        fail_msg("no call came");
    descriptor = accept(listener, NULL, NULL);
    memset(ret_call, 0, sizeof(*ret_call));
    while (size < wanted) {
        ssize_t got = read(descriptor, ret_call->text + size, sizeof(ret_call->text) - 1 - size);
        const char *end;

        assert_true(got > 0);
        size += (size_t)got;
        end = strstr(ret_call->text, "\r\n\r\n");
        if (end) {
            const char *length = strcasestr(ret_call->text, "content-length: ");

            ret_call->body = end + 4;
            wanted = (size_t)(ret_call->body - ret_call->text) + strtoul(length + 16, NULL, 10);
        }
    }
    assert_int_equal(write(descriptor, reply, strlen(reply)), strlen(reply));
    close(descriptor);
}

static const char *call_header(const struct call *call, const char *name)
{
    static char values[4][512];
    static size_t turn;
    char wanted[64];
    const char *at;
    char *value = values[turn++ % 4];

    snprintf(wanted, sizeof(wanted), "\r\n%s: ", name);
    at = strcasestr(call->text, wanted);
    if (!at)
        fail_msg("no header %s in %s", name, call->text);
    snprintf(value, 512, "%.*s", (int)strcspn(at + strlen(wanted), "\r"), at + strlen(wanted));
    return value;
}

/* ---- the daemon's side ---- */

static void post(const char *path, const char *body, int status, char *ret_body, size_t capacity)
{
    struct web_answer answer;

    web_ask(d.port, &answer,
            "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            path, strlen(body), body);
    if (answer.status != status)
        fail_msg("%s %s: %d %s", path, body, answer.status, answer.body);
    snprintf(ret_body, capacity, "%s", answer.body);
    web_release(&answer);
}

static void member(const char *text, const char *name, char *ret_text, size_t capacity)
{
    struct json *root = NULL;

    assert_true(json_parse(text, strlen(text), &root, NULL));
    if (!json_member(root, name) || !json_text(json_member(root, name)))
        fail_msg("no text %s in %s", name, text);
    snprintf(ret_text, capacity, "%s", json_text(json_member(root, name)));
    json_free(root);
}

struct hook {
    char id[STORE_ID_SIZE], secret[WEBHOOK_SECRET_SIZE];
};

static struct hook make_hook(int port, const char *types)
{
    struct hook hook;
    char body[512], answer[4096];

    snprintf(body, sizeof(body),
             "{\"name\":\"mine\",\"url\":\"http://127.0.0.1:%d/hook\",\"event_types\":%s}", port,
             types);
    post("/v1/webhook_endpoints", body, 200, answer, sizeof(answer));
    member(answer, "id", hook.id, sizeof(hook.id));
    member(answer, "signing_secret", hook.secret, sizeof(hook.secret));
    return hook;
}

static void end_job(const char *id)
{
    api_daemon_add_job(&d, id);
    api_daemon_end_job(&d, id);
}

/* The last deliveries of a hook, once they have these words. */
static void wait_for_delivery(const struct hook *hook, const char *words)
{
    struct web_answer answer;
    char path[128];

    snprintf(path, sizeof(path), "/v1/webhook_endpoints/%s/deliveries", hook->id);
    for (int i = 0; i < 1200; i++) {
        bool found;

        web_call(d.port, "GET", path, &answer);
        found = strstr(answer.body, words) != NULL;
        if (i == 1199 && !found)
            fail_msg("no %s in %s", words, answer.body);
        web_release(&answer);
        if (found)
            return;
        usleep(50000); /* the call's own end is seen by the receiver only */
    }
}

static void expect_signed(const struct call *call, const struct hook *hook, int count)
{
    char text[8192], signature[HOOKCALL_SIGNATURE_SIZE], wanted[64];
    const char *given = call_header(call, "webhook-signature");
    int found = 0;

    snprintf(text, sizeof(text), "%s.%s.%s", call_header(call, "webhook-id"),
             call_header(call, "webhook-timestamp"), call->body);
    assert_true(hookcall_sign(hook->secret, text, signature));
    snprintf(wanted, sizeof(wanted), "v1,%s", signature);
    if (!strstr(given, wanted))
        fail_msg("'%s' is not in '%s'", wanted, given);
    for (const char *at = given; (at = strstr(at, "v1,")); at++)
        found++;
    assert_int_equal(found, count);
}

/* ---- tests ---- */

static void a_webhook_that_is_not_well_described_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"url\":\"http://127.0.0.1/\",\"event_types\":" ALL "}", "name"},
        {"{\"name\":\"a\",\"event_types\":" ALL "}", "url"},
        {"{\"name\":\"a\",\"url\":\"http://127.0.0.1/\"}", "event_types"},
        {"{\"name\":\"a\",\"url\":\"http://127.0.0.1/\",\"event_types\":[]}", "event_types"},
        {"{\"name\":\"a\",\"url\":\"http://127.0.0.1/\",\"event_types\":[\"batch.completed\"]}",
         "event_types"},
        {"{\"name\":\"a\",\"url\":\"http://10.0.0.1/\",\"event_types\":" ALL "}", "url"},
        {"{\"name\":\"a\",\"url\":\"http://localhost/\",\"event_types\":" ALL "}", "url"},
        {"{\"name\":\"a\",\"url\":\"http://127.0.0.1/\",\"event_types\":" ALL
         ",\"signing_secret\":\"mine\"}",
         "signing_secret"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char answer[4096], words[64];

        post("/v1/webhook_endpoints", cases[i].body, 400, answer, sizeof(answer));
        snprintf(words, sizeof(words), "\"param\":\"%s\"", cases[i].param);
        if (!strstr(answer, words))
            fail_msg("%s: %s", cases[i].body, answer);
    }
}

static void without_the_setting_no_webhook_is_made(void **state)
{
    (void)state;
    char answer[4096];

    post("/v1/webhook_endpoints",
         "{\"name\":\"a\",\"url\":\"http://127.0.0.1/\",\"event_types\":" ALL "}", 400, answer,
         sizeof(answer));
    assert_non_null(strstr(answer, "webhook_hosts"));
}

static void the_end_of_a_job_is_told_signed_and_once(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL);
    struct web_answer answer;
    struct call call;
    char id[STORE_ID_SIZE], type[64];

    assert_int_equal(strncmp(hook.secret, "whsec_", 6), 0);
    web_call(d.port, "GET", "/v1/webhook_endpoints", &answer);
    assert_non_null(strstr(answer.body, hook.id));
    assert_null(strstr(answer.body, hook.secret)); /* shown once */
    web_release(&answer);

    end_job("ftjob-one");
    take_call(listener, OK, &call);
    assert_int_equal(strncmp(call.text, "POST /hook HTTP/1.1\r\n", 21), 0);
    expect_signed(&call, &hook, 1);
    assert_string_equal(call_header(&call, "content-type"), "application/json");
    assert_int_equal(strncmp(call_header(&call, "user-agent"), "needled/", 8), 0);
    member(call.body, "id", id, sizeof(id));
    assert_string_equal(id, call_header(&call, "webhook-id"));
    member(call.body, "type", type, sizeof(type));
    assert_string_equal(type, "fine_tuning.job.cancelled");
    assert_non_null(strstr(call.body, "\"object\":\"event\""));
    assert_non_null(strstr(call.body, "\"data\":{\"id\":\"ftjob-one\"}"));
    wait_for_delivery(&hook, "\"status\":\"delivered\"");
    assert_false(waits(listener, 1000));
    close(listener);
}

static void what_a_webhook_does_not_want_is_not_told(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);

    (void)make_hook(port, "[\"fine_tuning.job.succeeded\",\"fine_tuning.job.failed\"]");
    end_job("ftjob-one");
    assert_false(waits(listener, 1500));
    close(listener);
}

static void what_is_not_taken_comes_again_the_same(void **state)
{
    (void)state;
    static const char *const refusals[] = {
        "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"};
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL);
    struct call first, second;

    end_job("ftjob-one");
    take_call(listener, refusals[0], &first);
    wait_for_delivery(&hook, "\"last_error\":\"answered 500, 2xx is needed\"");
    take_call(listener, OK, &second);
    assert_string_equal(first.body, second.body);
    assert_string_equal(call_header(&first, "webhook-id"), call_header(&second, "webhook-id"));
    expect_signed(&second, &hook, 1);
    wait_for_delivery(&hook, "\"attempts\":2");
    close(listener);
}

static void a_clock_that_is_set_back_delays_no_delivery(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL);
    struct call call;

    end_job("ftjob-one");
    take_call(listener, "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", &call);
    wait_for_delivery(&hook, "\"attempts\":1");
    /* as if an hour had been taken from the clock: what waits five seconds would wait for that, too */
    api_daemon_change(&d, "UPDATE deliveries SET next_unix_s = next_unix_s + 3600");
    take_call(listener, OK, &call);
    wait_for_delivery(&hook, "\"attempts\":2");
    close(listener);
}

static void a_dead_receiver_delays_nobody(void **state)
{
    (void)state;
    int silent_port, live_port, silent = listen_at(&silent_port), live = listen_at(&live_port);
    struct hook dead = make_hook(silent_port, ALL); /* accepts and says nothing */
    struct call call;

    (void)make_hook(live_port, ALL);
    for (int i = 0; i < 5; i++) {
        char id[32];
        struct timespec before, after;

        snprintf(id, sizeof(id), "ftjob-%d", i);
        clock_gettime(CLOCK_MONOTONIC, &before);
        end_job(id);
        take_call(live, OK, &call);
        clock_gettime(CLOCK_MONOTONIC, &after);
        assert_non_null(strstr(call.body, id));
        assert_true(after.tv_sec - before.tv_sec < 12); /* a call that waits waits 15 s */
    }
    assert_true(waits(silent, 60000));
    wait_for_delivery(&dead, "\"status\":\"waiting\"");
    close(silent);
    close(live);
}

static void a_restart_forgets_no_delivery(void **state)
{
    (void)state;
    struct server_options options = {.listen = "127.0.0.1:0",
                                     .state_folder = d.folder,
                                     .database_path = d.database,
                                     .webhook_hosts = HOSTS,
                                     .scheduler = d.scheduler,
                                     .feed = d.feed};
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL);
    struct error err = {0};
    struct call call;

    server_stop(d.server);
    d.server = NULL;
    end_job("ftjob-one"); /* nobody is there to tell it */
    assert_false(waits(listener, 500));
    api_daemon_must(server_start(&options, &d.server, &err), &err);
    d.port = server_port(d.server);
    take_call(listener, OK, &call);
    expect_signed(&call, &hook, 1);
    close(listener);
}

static void a_redirect_is_not_followed(void **state)
{
    (void)state;
    int port, other_port, listener = listen_at(&port), other = listen_at(&other_port);
    struct hook hook = make_hook(port, ALL);
    struct call call;
    char reply[256];

    snprintf(reply, sizeof(reply),
             "HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n"
             "Connection: close\r\n\r\n",
             other_port);
    end_job("ftjob-one");
    take_call(listener, reply, &call);
    wait_for_delivery(&hook, "redirects are not followed");
    assert_false(waits(other, 500));
    close(listener);
    close(other);
}

static void a_private_address_behind_a_pattern_is_not_called(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL); /* "*" lists any host */

    end_job("ftjob-one");
    wait_for_delivery(&hook, "no public address");
    assert_false(waits(listener, 200));
    close(listener);
}

static void a_receiver_that_is_gone_for_good_is_switched_off(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL);
    struct web_answer answer;
    struct call call;
    char path[128], text[4096];

    end_job("ftjob-one");
    take_call(listener, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
              &call);
    wait_for_delivery(&hook, "\"last_status_code\":410");
    snprintf(path, sizeof(path), "/v1/webhook_endpoints/%s", hook.id);
    web_call(d.port, "GET", path, &answer);
    assert_non_null(strstr(answer.body, "\"enabled\":false"));
    web_release(&answer);
    end_job("ftjob-two");
    assert_false(waits(listener, 1000));
    post(path, "{\"name\":\"again\"}", 200, text, sizeof(text));
    assert_non_null(strstr(text, "\"enabled\":true"));
    end_job("ftjob-three");
    take_call(listener, OK, &call);
    close(listener);
}

static void a_rotated_secret_signs_and_the_old_one_too_when_kept(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);
    struct hook old = make_hook(port, ALL), fresh = old;
    char path[128], answer[4096];
    struct call call;

    snprintf(path, sizeof(path), "/v1/webhook_endpoints/%s/rotate_secret", old.id);
    post(path, "{\"keep_old_secret_active_for_24_hours\":true}", 200, answer, sizeof(answer));
    member(answer, "signing_secret", fresh.secret, sizeof(fresh.secret));
    assert_string_not_equal(old.secret, fresh.secret);
    end_job("ftjob-one");
    take_call(listener, OK, &call);
    expect_signed(&call, &old, 2);
    expect_signed(&call, &fresh, 2);
    post(path, "{}", 200, answer, sizeof(answer));
    member(answer, "signing_secret", fresh.secret, sizeof(fresh.secret));
    end_job("ftjob-two");
    take_call(listener, OK, &call);
    expect_signed(&call, &fresh, 1);
    close(listener);
}

static void a_trial_tells_the_receivers_status(void **state)
{
    (void)state;
    int port, listener = listen_at(&port), descriptor = web_open(d.port);
    struct hook hook = make_hook(port, ALL);
    struct web_answer answer;
    struct call call;
    char text[512];

    snprintf(text, sizeof(text),
             "POST /v1/webhook_endpoints/%s/test HTTP/1.1\r\nHost: 127.0.0.1\r\n"
             "Content-Type: application/json\r\nContent-Length: 42\r\n\r\n"
             "{\"event_type\":\"fine_tuning.job.succeeded\"}",
             hook.id);
    web_send_text(descriptor, text);
    take_call(listener, "HTTP/1.1 418 Tea\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
              &call);
    expect_signed(&call, &hook, 1);
    web_receive(descriptor, false, &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "\"status_code\":418"));
    web_release(&answer);
    close(descriptor);
    close(listener);
    snprintf(text, sizeof(text), "/v1/webhook_endpoints/%s/test", hook.id);
    post(text, "{}", 400, text, sizeof(text));
    assert_non_null(strstr(text, "webhook_unreachable"));
}

static void a_key_hears_of_its_own_jobs_and_an_admin_of_all(void **state)
{
    (void)state;
    int own_port, all_port, own = listen_at(&own_port), all = listen_at(&all_port);
    char sql[128];
    struct hook hook = make_hook(own_port, ALL);
    struct call call;

    (void)make_hook(all_port, ALL);
    snprintf(sql, sizeof(sql), "UPDATE webhooks SET all_jobs = 0, owner = 'key-1' WHERE id = '%s'",
             hook.id);
    api_daemon_change(&d, sql);
    end_job("ftjob-other");
    take_call(all, OK, &call);
    assert_false(waits(own, 500));
    api_daemon_add_job(&d, "ftjob-own");
    api_daemon_change(&d, "UPDATE jobs SET owner = 'key-1' WHERE id = 'ftjob-own'");
    api_daemon_end_job(&d, "ftjob-own");
    take_call(all, OK, &call);
    take_call(own, OK, &call);
    assert_non_null(strstr(call.body, "ftjob-own"));
    close(own);
    close(all);
}

static void a_deleted_webhook_is_told_nothing(void **state)
{
    (void)state;
    int port, listener = listen_at(&port);
    struct hook hook = make_hook(port, ALL);
    struct web_answer answer;
    char path[128];

    snprintf(path, sizeof(path), "/v1/webhook_endpoints/%s", hook.id);
    web_call(d.port, "DELETE", path, &answer);
    assert_non_null(strstr(answer.body, "\"object\":\"webhook_endpoint.deleted\""));
    web_release(&answer);
    end_job("ftjob-one");
    assert_false(waits(listener, 500));
    web_call(d.port, "GET", path, &answer);
    assert_int_equal(answer.status, 404);
    web_release(&answer);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define OPEN(name) cmocka_unit_test_setup_teardown(name, open_it, api_daemon_tear_down)
        OPEN(a_webhook_that_is_not_well_described_is_refused_by_name),
        cmocka_unit_test_setup_teardown(without_the_setting_no_webhook_is_made, open_unlisted,
                                        api_daemon_tear_down),
        OPEN(the_end_of_a_job_is_told_signed_and_once),
        OPEN(what_a_webhook_does_not_want_is_not_told),
        OPEN(what_is_not_taken_comes_again_the_same),
        OPEN(a_clock_that_is_set_back_delays_no_delivery),
        OPEN(a_dead_receiver_delays_nobody),
        OPEN(a_restart_forgets_no_delivery),
        OPEN(a_redirect_is_not_followed),
        cmocka_unit_test_setup_teardown(a_private_address_behind_a_pattern_is_not_called, open_any,
                                        api_daemon_tear_down),
        OPEN(a_receiver_that_is_gone_for_good_is_switched_off),
        OPEN(a_rotated_secret_signs_and_the_old_one_too_when_kept),
        OPEN(a_trial_tells_the_receivers_status),
        OPEN(a_key_hears_of_its_own_jobs_and_an_admin_of_all),
        OPEN(a_deleted_webhook_is_told_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

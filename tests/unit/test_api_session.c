/* Proves how a browser signs in: the key once, then a cookie that scripts and other sites do not get; that
 * it does what its key may do, from pages of this server alone, and ends with its key and where it is signed
 * out, copies and streams included, over a restart too. */
#include "tests/support/api_daemon.h"

#include "api/session.h"
#include "api/visitors.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "store/sessions.h"

static int open_with_setting(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = "sk-setting"});
    return 0;
}

static int open_behind_tls(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = "sk-setting",
                                                .public_url = "https://needled.example"});
    return 0;
}

/* headers: lines with their ends; body NULL: none. */
static void ask(const char *method, const char *path, const char *headers, const char *body,
                struct web_answer *ret_answer)
{
    web_ask(d.port, ret_answer,
            "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n%s%sContent-Length: "
            "%zu\r\n\r\n%s",
            method, path, d.port, headers, body ? "Content-Type: application/json\r\n" : "",
            body ? strlen(body) : 0, body ? body : "");
}

static void expect(const char *method, const char *path, const char *headers, const char *body,
                   int status, const char *words)
{
    struct web_answer answer;

    ask(method, path, headers, body, &answer);
    if (answer.status != status || !strstr(answer.body, words))
        fail_msg("%s %s with %s: wanted %d with %s, got %d %s", method, path, headers, status,
                 words, answer.status, answer.body);
    web_release(&answer);
}

struct cookie {
    char header[400]; /* "Cookie: NAME=VALUE\r\n" */
};

static struct cookie sign_in(const char *key)
{
    struct web_answer answer;
    struct cookie cookie;
    char body[160], name[64];
    const char *set;

    snprintf(body, sizeof(body), "{\"key\":\"%s\"}", key);
    ask("POST", "/v1/session", "", body, &answer);
    if (answer.status != 200)
        fail_msg("sign in: %d %s", answer.status, answer.body);
    set = web_header(&answer, "Set-Cookie");
    assert_non_null(set);
    snprintf(name, sizeof(name), "needled_session_%d=", d.port);
    assert_int_equal(strncmp(set, name, strlen(name)), 0);
    assert_non_null(strstr(set, "; HttpOnly; SameSite=Strict"));
    assert_non_null(strstr(set, "; Path=/; Max-Age=604800;"));
    assert_null(strstr(set, key));
    assert_null(strstr(answer.body, key));
    snprintf(cookie.header, sizeof(cookie.header), "Cookie: %.*s\r\n", (int)strcspn(set, ";"), set);
    web_release(&answer);
    return cookie;
}

static void make_key(const char *scope, char ret_id[64], char ret_secret[80])
{
    struct web_answer answer;
    struct json *root = NULL;
    struct error err = {0};
    char body[80];

    snprintf(body, sizeof(body), "{\"name\":\"laptop\",\"scope\":\"%s\"}", scope);
    ask("POST", "/v1/keys", "Authorization: Bearer sk-setting\r\n", body, &answer);
    assert_int_equal(answer.status, 201);
    api_daemon_must(json_parse(answer.body, answer.size, &root, &err), &err);
    snprintf(ret_id, 64, "%s", json_text(json_member(root, "id")));
    snprintf(ret_secret, 80, "%s", json_text(json_member(root, "key")));
    json_free(root);
    web_release(&answer);
}

static void a_cookie_stands_for_its_key(void **state)
{
    (void)state;
    char id[64], secret[80], headers[600];
    struct cookie setting = sign_in("sk-setting"), reader;

    expect("GET", "/v1/session", "", NULL, 200, "\"signed_in\":false");
    expect("GET", "/v1/keys", setting.header, NULL, 200, "[");
    expect("GET", "/v1/session", setting.header, NULL, 200, "\"scope\":\"admin\"");
    make_key("read", id, secret);
    reader = sign_in(secret);
    expect("GET", "/v1/session", reader.header, NULL, 200, "\"name\":\"laptop\"");
    expect("GET", "/v1/devices", reader.header, NULL, 200, "[");
    expect("GET", "/v1/keys", reader.header, NULL, 403, "missing_scope");
    /* A key that is given decides, also a wrong one. */
    snprintf(headers, sizeof(headers), "%sAuthorization: Bearer none\r\n", setting.header);
    expect("GET", "/v1/devices", headers, NULL, 401, "invalid_api_key");
}

static void a_wrong_key_gets_no_cookie(void **state)
{
    (void)state;
    struct web_answer answer;

    ask("POST", "/v1/session", "", "{\"key\":\"sk-settin\"}", &answer);
    assert_int_equal(answer.status, 401);
    assert_null(web_header(&answer, "Set-Cookie"));
    web_release(&answer);
    expect("POST", "/v1/session", "", "{}", 400, "key");
    expect("POST", "/v1/session", "", "{\"key\":7}", 400, "key");
    expect("POST", "/v1/session", "Origin: https://evil.example\r\n", "{\"key\":\"sk-setting\"}",
           403, "origin_not_allowed");
}

static void a_changed_cookie_is_none(void **state)
{
    (void)state;
    struct cookie cookie = sign_in("sk-setting"), changed;
    size_t size = strlen(cookie.header) - 2;
    const size_t start = (size_t)(strchr(cookie.header, '=') - cookie.header) + 1;

    for (size_t at = start; at < size; at++) { /* each of its characters */
        changed = cookie;
        changed.header[at] = changed.header[at] == '1' ? '2' : '1';
        expect("GET", "/v1/devices", changed.header, NULL, 401, "invalid_api_key");
    }
    for (size_t cut = start; cut < size; cut += 7) {
        snprintf(changed.header, sizeof(changed.header), "%.*s\r\n", (int)cut, cookie.header);
        expect("GET", "/v1/devices", changed.header, NULL, 401, "invalid_api_key");
    }
}

static void changes_by_cookie_come_from_own_pages_alone(void **state)
{
    (void)state;
    const char *body = "{\"name\":\"made by a page\"}";
    struct cookie cookie = sign_in("sk-setting");
    char own[1000];
    struct {
        const char *name;
        char headers[700];
        int status;
    } cases[] = {
        {.name = "no header", .status = 403},
        {.name = "another port", .status = 403},
        {.name = "a host of ours by another name", .status = 403},
        {.name = "another site", .status = 403},
        {.name = "no origin", .status = 201},
        {.name = "its own", .status = 201},
    };

    snprintf(own, sizeof(own), "%sX-Needled-Request: page\r\n", cookie.header);
    snprintf(cases[0].headers, 700, "%sOrigin: http://127.0.0.1:%d\r\n", cookie.header, d.port);
    snprintf(cases[1].headers, 700, "%sOrigin: http://127.0.0.1:1\r\n", own);
    snprintf(cases[2].headers, 700, "%sOrigin: http://localhost:%d\r\n", own, d.port);
    snprintf(cases[3].headers, 700, "%sOrigin: https://evil.example\r\n", own);
    snprintf(cases[4].headers, 700, "%s", own);
    snprintf(cases[5].headers, 700, "%sOrigin: http://127.0.0.1:%d\r\n", own, d.port);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        ask("POST", "/v1/keys", cases[i].headers, body, &answer);
        if (answer.status != cases[i].status ||
            (answer.status == 403 && !strstr(answer.body, "origin_not_allowed")))
            fail_msg("%s: %d %s", cases[i].name, answer.status, answer.body);
        web_release(&answer);
    }
}

static void a_revoked_key_ends_its_cookie(void **state)
{
    (void)state;
    char id[64], secret[80], path[128];
    struct cookie cookie;

    make_key("admin", id, secret);
    cookie = sign_in(secret);
    expect("GET", "/v1/keys", cookie.header, NULL, 200, id);
    snprintf(path, sizeof(path), "/v1/keys/%s", id);
    expect("DELETE", path, "Authorization: Bearer sk-setting\r\n", NULL, 200, id);
    expect("GET", "/v1/keys", cookie.header, NULL, 401, "invalid_api_key");
    expect("GET", "/v1/session", cookie.header, NULL, 200, "\"signed_in\":false");
}

/* The cookie goes on, or is over, in a server that was stopped and started. */
static void restart(void)
{
    const struct server_options options = {.listen = "127.0.0.1:0",
                                           .api_key = "sk-setting",
                                           .state_folder = d.folder,
                                           .database_path = d.database,
                                           .scheduler = d.scheduler,
                                           .feed = d.feed};
    struct error err = {0};

    server_stop(d.server);
    d.server = NULL;
    api_daemon_must(server_start(&options, &d.server, &err), &err);
    d.port = server_port(d.server);
}

/* The same cookie for the port that the server has now. */
static struct cookie renamed(const struct cookie *cookie)
{
    struct cookie now;

    snprintf(now.header, sizeof(now.header), "Cookie: needled_session_%d%s", d.port,
             strchr(cookie->header, '='));
    return now;
}

/* The end of the one session there is, in the database. */
static int64_t end_of_session(void)
{
    struct session_record *sessions = NULL;
    struct error err = {0};
    int64_t expires_unix_s;
    size_t count = 0;

    api_daemon_must(sessions_list(d.store, 8, &sessions, &count, &err), &err);
    assert_int_equal(count, 1);
    expires_unix_s = sessions[0].expires_unix_s;
    free(sessions);
    return expires_unix_s;
}

/* A cookie of the setting's key whose session ends then. */
static struct cookie cookie_until(int64_t unix_s)
{
    struct cookie cookie;
    char sql[128];

    api_daemon_change(&d, "DELETE FROM sessions");
    cookie = sign_in("sk-setting");
    snprintf(sql, sizeof(sql), "UPDATE sessions SET expires_unix_s = %lld", (long long)unix_s);
    api_daemon_change(&d, sql);
    restart();
    return renamed(&cookie);
}

static void a_session_ends_and_is_renewed_before(void **state)
{
    (void)state;
    const int64_t now = clock_unix_s();
    struct web_answer answer;
    struct cookie cookie = cookie_until(now - 1);

    expect("GET", "/v1/devices", cookie.header, NULL, 401, "invalid_api_key");
    expect("GET", "/v1/session", cookie.header, NULL, 200, "\"signed_in\":false");
    cookie = cookie_until(now + 600);
    expect("GET", "/v1/devices", cookie.header, NULL, 200, "[");
    ask("GET", "/v1/session", cookie.header, NULL, &answer);
    assert_non_null(web_header(&answer, "Set-Cookie")); /* old: for longer */
    web_release(&answer);
    assert_true(end_of_session() >= now + SESSION_S);
    cookie = cookie_until(now + SESSION_S - 60);
    ask("GET", "/v1/session", cookie.header, NULL, &answer);
    assert_null(web_header(&answer, "Set-Cookie")); /* fresh */
    assert_non_null(strstr(answer.body, "\"signed_in\":true"));
    web_release(&answer);
}

static void a_session_goes_on_after_a_restart_and_its_end_too(void **state)
{
    (void)state;
    struct cookie stays = sign_in("sk-setting"), goes = sign_in("sk-setting");
    char own[500];

    snprintf(own, sizeof(own), "%sX-Needled-Request: page\r\n", goes.header);
    expect("DELETE", "/v1/session", own, NULL, 200, "\"signed_in\":false");
    restart();
    stays = renamed(&stays);
    goes = renamed(&goes);
    expect("GET", "/v1/devices", stays.header, NULL, 200, "[");
    expect("GET", "/v1/devices", goes.header, NULL, 401, "invalid_api_key");
}

static void another_key_in_the_settings_ends_sessions_of_the_one_before(void **state)
{
    (void)state;
    const struct server_options options = {.api_key = "sk-another"};
    struct cookie cookie = sign_in("sk-setting");
    struct error err = {0};

    api_daemon_must(server_reload(d.server, &options, &err), &err);
    expect("GET", "/v1/devices", cookie.header, NULL, 401, "invalid_api_key");
}

static void a_key_has_so_many_sessions_and_its_oldest_ends(void **state)
{
    (void)state;
    char id[64], secret[80];
    struct cookie other, first, second, last;

    make_key("read", id, secret);
    other = sign_in(secret);
    first = sign_in("sk-setting");
    api_daemon_change(&d,
                      "UPDATE sessions SET expires_unix_s = expires_unix_s - 60 WHERE owner = ''");
    restart(); /* the first is older by a minute */
    other = renamed(&other);
    first = renamed(&first);
    second = sign_in("sk-setting");
    for (size_t i = 2; i < VISITORS_PER_KEY; i++)
        last = sign_in("sk-setting");
    expect("GET", "/v1/devices", first.header, NULL, 200, "[");
    last = sign_in("sk-setting");
    expect("GET", "/v1/devices", first.header, NULL, 401, "invalid_api_key");
    expect("GET", "/v1/devices", second.header, NULL, 200, "[");
    expect("GET", "/v1/devices", last.header, NULL, 200, "[");
    expect("GET", "/v1/devices", other.header, NULL, 200, "[");
}

static void behind_tls_the_cookie_is_secure(void **state)
{
    (void)state;
    struct web_answer answer;

    ask("POST", "/v1/session", "", "{\"key\":\"sk-setting\"}", &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(web_header(&answer, "Set-Cookie"), "; Secure"));
    web_release(&answer);
}

static void signing_out_ends_the_session_and_its_copies(void **state)
{
    (void)state;
    struct cookie cookie = sign_in("sk-setting"), other = sign_in("sk-setting");
    struct web_answer answer;
    char own[500];

    /* Asked by a page of somebody else it goes on. */
    expect("DELETE", "/v1/session", cookie.header, NULL, 403, "origin_not_allowed");
    expect("GET", "/v1/devices", cookie.header, NULL, 200, "[");
    snprintf(own, sizeof(own), "%sX-Needled-Request: page\r\n", cookie.header);
    ask("DELETE", "/v1/session", own, NULL, &answer);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(web_header(&answer, "Set-Cookie"), "=; Path=/; Max-Age=0;"));
    assert_non_null(strstr(answer.body, "\"signed_in\":false"));
    web_release(&answer);
    expect("GET", "/v1/devices", cookie.header, NULL, 401, "invalid_api_key");
    expect("GET", "/v1/session", cookie.header, NULL, 200, "\"signed_in\":false");
    expect("DELETE", "/v1/session", own, NULL, 200,
           "\"signed_in\":false"); /* nothing more to end */
    expect("GET", "/v1/devices", other.header, NULL, 200, "[");
}

static void a_database_that_takes_nothing_keeps_nobody_out_and_ends_nothing(void **state)
{
    (void)state;
    struct cookie kept = sign_in("sk-setting"), cookie;
    char own[500];

    api_daemon_change(&d, "CREATE TRIGGER full BEFORE INSERT ON sessions BEGIN SELECT"
                          " RAISE(ABORT, 'full'); END;"
                          "CREATE TRIGGER stuck BEFORE DELETE ON sessions BEGIN SELECT"
                          " RAISE(ABORT, 'full'); END");
    cookie = sign_in("sk-setting");
    expect("GET", "/v1/devices", cookie.header, NULL, 200, "[");
    /* It would be there again after a restart: so it is said that it goes on. */
    snprintf(own, sizeof(own), "%sX-Needled-Request: page\r\n", kept.header);
    expect("DELETE", "/v1/session", own, NULL, 409, "full");
    expect("GET", "/v1/devices", kept.header, NULL, 200, "[");
    api_daemon_change(&d, "DROP TRIGGER full; DROP TRIGGER stuck");
    expect("DELETE", "/v1/session", own, NULL, 200, "\"signed_in\":false");
}

static void signing_in_again_ends_the_session_before(void **state)
{
    (void)state;
    struct cookie cookie = sign_in("sk-setting");

    expect("POST", "/v1/session", cookie.header, "{\"key\":\"none\"}", 401, "invalid_api_key");
    expect("GET", "/v1/devices", cookie.header, NULL, 200, "[");
    expect("POST", "/v1/session", cookie.header, "{\"key\":\"sk-setting\"}", 200, "admin");
    expect("GET", "/v1/devices", cookie.header, NULL, 401, "invalid_api_key");
}

static void signing_out_ends_the_streams_of_that_session_alone(void **state)
{
    (void)state;
    const struct cookie cookies[] = {sign_in("sk-setting"), sign_in("sk-setting")};
    int streams[COUNT_OF(cookies)];
    char text[700];

    api_daemon_add_job(&d, "ftjob-one");
    for (size_t i = 0; i < COUNT_OF(cookies); i++) {
        streams[i] = web_open(d.port);
        snprintf(text, sizeof(text),
                 "GET /v1/fine_tuning/jobs/ftjob-one/events?stream=true HTTP/1.1\r\n"
                 "Host: 127.0.0.1:%d\r\n%s\r\n",
                 d.port, cookies[i].header);
        web_send_text(streams[i], text);
        free(web_read_until(streams[i], "job created", 5000));
    }
    snprintf(text, sizeof(text), "%sX-Needled-Request: page\r\n", cookies[0].header);
    expect("DELETE", "/v1/session", text, NULL, 200, "\"signed_in\":false");
    free(web_read_until(streams[0], "\r\n0\r\n\r\n", 5000)); /* its chunks end properly */
    api_daemon_add_events(&d, "ftjob-one", 1);
    free(web_read_until(streams[1], "\"step\":1", 5000));
    api_daemon_end_job(&d, "ftjob-one");
    close(streams[0]);
    close(streams[1]);
}

static void without_keys_nobody_signs_in(void **state)
{
    (void)state;
    struct web_answer answer;

    expect("GET", "/v1/session", "", NULL, 200, "\"key_needed\":false,\"signed_in\":true");
    ask("POST", "/v1/session", "", "{\"key\":\"any\"}", &answer);
    assert_int_equal(answer.status, 200);
    assert_null(web_header(&answer, "Set-Cookie"));
    web_release(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cookie_stands_for_its_key, open_with_setting,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_key_gets_no_cookie, open_with_setting,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_changed_cookie_is_none, open_with_setting,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(changes_by_cookie_come_from_own_pages_alone,
                                        open_with_setting, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_revoked_key_ends_its_cookie, open_with_setting,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_session_ends_and_is_renewed_before, open_with_setting,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_session_goes_on_after_a_restart_and_its_end_too,
                                        open_with_setting, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(another_key_in_the_settings_ends_sessions_of_the_one_before,
                                        open_with_setting, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_key_has_so_many_sessions_and_its_oldest_ends,
                                        open_with_setting, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(signing_out_ends_the_session_and_its_copies,
                                        open_with_setting, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(
            a_database_that_takes_nothing_keeps_nobody_out_and_ends_nothing, open_with_setting,
            api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(signing_in_again_ends_the_session_before, open_with_setting,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(signing_out_ends_the_streams_of_that_session_alone,
                                        open_with_setting, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(behind_tls_the_cookie_is_secure, open_behind_tls,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(without_keys_nobody_signs_in, api_daemon_set_up,
                                        api_daemon_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Proves who may do what with which key: scopes route by route, owners, limits, the Unix socket's own user;
 * that a secret is shown once and kept as a digest, and that a revoked key is over at once. */
#include "tests/support/api_daemon.h"

#include "api/router.h"
#include "daemon/base/json.h"
#include "store/keys.h"

#include <sys/socket.h>
#include <sys/wait.h>

#define NOBODY 65534 /* a user that is neither root nor the daemon's */

struct made {
    char id[STORE_ID_SIZE], secret[80];
};

static int open_with_setting(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = "sk-setting"});
    return 0;
}

/* key NULL: none is sent; body NULL: none. */
static void ask_on(int descriptor, const char *method, const char *path, const char *key,
                   const char *body, struct web_answer *ret_answer)
{
    char text[4096];

    snprintf(text, sizeof(text),
             "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s%s%s%sContent-Length: "
             "%zu\r\n\r\n%s",
             method, path, key ? "Authorization: Bearer " : "", key ? key : "", key ? "\r\n" : "",
             body ? "Content-Type: application/json\r\n" : "", body ? strlen(body) : 0,
             body ? body : "");
    web_send_text(descriptor, text);
    web_receive(descriptor, strcmp(method, "HEAD") == 0, ret_answer);
    close(descriptor);
}

static void ask(const char *method, const char *path, const char *key, const char *body,
                struct web_answer *ret_answer)
{
    ask_on(web_open(d.port), method, path, key, body, ret_answer);
}

static int status_of(const char *method, const char *path, const char *key, const char *body)
{
    struct web_answer answer;
    int status;

    ask(method, path, key, body, &answer);
    status = answer.status;
    web_release(&answer);
    return status;
}

static void copy_member(const struct web_answer *answer, const char *name, char *ret_text,
                        size_t capacity)
{
    struct json *root = NULL;
    struct error err = {0};

    api_daemon_must(json_parse(answer->body, strlen(answer->body), &root, &err), &err);
    assert_non_null(json_member(root, name));
    snprintf(ret_text, capacity, "%s", json_text(json_member(root, name)));
    json_free(root);
}

/* Over the socket, where the test's user needs no key. */
static struct made make_key(const char *body)
{
    struct web_answer answer;
    struct made made;

    ask_on(web_open_socket(d.socket), "POST", "/v1/keys", NULL, body, &answer);
    if (answer.status != 201)
        fail_msg("%s: %d %s", body, answer.status, answer.body);
    copy_member(&answer, "id", made.id, sizeof(made.id));
    copy_member(&answer, "key", made.secret, sizeof(made.secret));
    web_release(&answer);
    return made;
}

static void revoke_key(const struct made *key)
{
    struct web_answer answer;
    char path[128];

    snprintf(path, sizeof(path), "/v1/keys/%s", key->id);
    ask_on(web_open_socket(d.socket), "DELETE", path, NULL, NULL, &answer);
    assert_int_equal(answer.status, 200);
    assert_null(strstr(answer.body, "\"revoked_at\":null"));
    web_release(&answer);
}

static void expect(const struct web_answer *answer, int status, const char *words)
{
    if (answer->status != status || !strstr(answer->body, words))
        fail_msg("wanted %d with %s, got %d %s", status, words, answer->status, answer->body);
}

static void a_secret_is_shown_once_and_kept_as_its_digest(void **state)
{
    (void)state;
    struct made key = make_key("{\"name\":\"laptop\",\"scope\":\"read\"}");
    static const char *const files[] = {"needled.db", "needled.db-wal"};
    struct key_record record;
    struct web_answer answer;
    struct error err = {0};

    assert_int_equal(strncmp(key.secret, "needle_ft_", 10), 0);
    assert_int_equal(strlen(key.secret), 53);
    api_daemon_must(keys_get(d.store, key.id, &record, &err), &err);
    assert_string_equal(record.hint, key.secret + 49);
    ask_on(web_open_socket(d.socket), "GET", "/v1/keys", NULL, NULL, &answer);
    expect(&answer, 200, "\"name\":\"laptop\"");
    expect(&answer, 200, "\"last_used_at\":null");
    assert_null(strstr(answer.body, key.secret));
    assert_null(strstr(answer.body, record.secret_sha256));
    web_release(&answer);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[600];
        size_t size = 0;
        char *bytes;

        snprintf(path, sizeof(path), "%s/%s", d.folder, files[i]);
        bytes = scratch_read(path, &size);
        assert_null(memmem(bytes, size, key.secret, strlen(key.secret)));
        free(bytes);
    }
    assert_int_equal(status_of("GET", "/v1/models", key.secret, NULL), 200);
    ask_on(web_open_socket(d.socket), "GET", "/v1/keys", NULL, NULL, &answer);
    assert_null(strstr(answer.body, "\"last_used_at\":null"));
    web_release(&answer);
}

static void a_key_that_is_not_well_described_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{}", "name"},
        {"{\"name\":\"\"}", "name"},
        {"{\"name\":\"a\\nb\"}", "name"},
        {"{\"name\":7}", "name"},
        {"{\"name\":\"a\",\"scope\":\"root\"}", "scope"},
        {"{\"name\":\"a\",\"jobs_max\":0}", "jobs_max"},
        {"{\"name\":\"a\",\"bytes_max\":-1}", "bytes_max"},
        {"{\"name\":\"a\",\"key\":\"needle_ft_mine\"}", "key"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;
        char words[64];

        ask("POST", "/v1/keys", NULL, cases[i].body, &answer);
        snprintf(words, sizeof(words), "\"param\":\"%s\"", cases[i].param);
        expect(&answer, 400, words);
        web_release(&answer);
    }
    assert_int_equal(status_of("GET", "/v1/models", NULL, NULL), 200); /* none was made */
}

static void the_first_key_closes_the_door_for_good(void **state)
{
    (void)state;
    struct web_answer answer;
    struct made key;

    assert_int_equal(status_of("GET", "/v1/models", NULL, NULL), 200);
    assert_int_equal(status_of("GET", "/v1/models", "any", NULL), 200);
    key = make_key("{\"name\":\"first\"}");
    ask("GET", "/v1/models", NULL, NULL, &answer);
    expect(&answer, 401, "\"code\":\"invalid_api_key\"");
    assert_non_null(web_header(&answer, "WWW-Authenticate"));
    web_release(&answer);
    assert_int_equal(status_of("GET", "/v1/models", "any", NULL), 401);
    assert_int_equal(status_of("GET", "/v1/models", key.secret, NULL), 200);
    assert_int_equal(status_of("GET", "/healthz", NULL, NULL) / 100 == 4, 0);
    revoke_key(&key);
    assert_int_equal(status_of("GET", "/v1/models", key.secret, NULL), 401);
    assert_int_equal(status_of("GET", "/v1/models", NULL, NULL), 401);
}

static void a_refusal_leads_to_a_page_that_helps(void **state)
{
    (void)state;
    char url[256], wanted[64];
    struct web_answer answer;
    struct json *root = NULL;

    (void)make_key("{\"name\":\"first\"}");
    ask("GET", "/v1/models", NULL, NULL, &answer);
    assert_true(json_parse(answer.body, strlen(answer.body), &root, NULL));
    snprintf(url, sizeof(url), "%s", json_text(json_member(json_member(root, "error"), "url")));
    json_free(root);
    web_release(&answer);
    snprintf(wanted, sizeof(wanted), "http://127.0.0.1");
    assert_int_equal(strncmp(url, wanted, strlen(wanted)), 0);
    ask("GET", url + strlen(wanted), NULL, NULL, &answer);
    expect(&answer, 200, "needlectl key create");
    assert_int_equal(strncmp(web_header(&answer, "Content-Type"), "text/plain", 10), 0);
    web_release(&answer);
}

/* A route's path with something in place of each {}. */
static void fill_path(const char *path, char *ret_path, size_t capacity)
{
    size_t used = 0;

    for (; *path && used + 3 < capacity; path++) {
        ret_path[used++] = *path == '{' ? '1' : *path;
        path += *path == '{';
    }
    ret_path[used] = '\0';
}

static void each_route_asks_for_its_scope(void **state)
{
    (void)state;
    const struct made keys[KEY_SCOPE_COUNT] = {
        make_key("{\"name\":\"r\",\"scope\":\"read\"}"),
        make_key("{\"name\":\"s\",\"scope\":\"submit\"}"),
        make_key("{\"name\":\"a\",\"scope\":\"admin\"}"),
    };
    const struct route *routes;
    size_t count = 0, refused = 0;

    routes = router_routes(&count);
    for (size_t i = 0; i < count; i++) {
        const struct route *route = &routes[i];
        enum key_scope needed = route->access == ROUTE_ADMIN    ? KEY_ADMIN
                                : route->access == ROUTE_SUBMIT ? KEY_SUBMIT
                                                                : KEY_READ;
        char path[160];

        if (route->access == ROUTE_OPEN || route->access == ROUTE_WHO ||
            route->access == ROUTE_LINK)
            continue;
        if (strcmp(route->method, "GET") != 0)
            assert_true(route->access != ROUTE_READ || strstr(route->path, "/estimate"));
        fill_path(route->path, path, sizeof(path));
        assert_int_equal(status_of(route->method, path, NULL, NULL), 401);
        for (int scope = KEY_READ; scope < KEY_SCOPE_COUNT; scope++) {
            bool may = scope >= (int)needed;
            struct web_answer answer;

            ask(route->method, path, keys[scope].secret,
                strcmp(route->method, "POST") == 0 ? "{}" : NULL, &answer);
            if (may ? answer.status == 401 || answer.status == 403 : answer.status != 403)
                fail_msg("%s %s as %s: %d %s", route->method, path, key_scope_name(scope),
                         answer.status, answer.body);
            if (!may)
                expect(&answer, 403, "\"code\":\"missing_scope\"");
            refused += !may;
            web_release(&answer);
        }
    }
    assert_true(refused > 10);
}

static void upload(const char *key, int wanted, const char *words, char ret_id[STORE_ID_SIZE])
{
    static const char line[] = "{\"query\":\"a\",\"tools\":[],\"answers\":[]}\n";
    struct web_answer answer;
    char body[512];

    snprintf(body, sizeof(body),
             "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n--b\r\n"
             "Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n%s\r\n"
             "--b--\r\n",
             line);
    web_ask(d.port, &answer,
            "POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            "Authorization: Bearer %s\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            key, strlen(body), body);
    expect(&answer, wanted, words);
    if (wanted == 200)
        copy_member(&answer, "id", ret_id, STORE_ID_SIZE);
    web_release(&answer);
}

static void what_a_key_made_is_seen_by_all_and_changed_by_it_and_admins(void **state)
{
    (void)state;
    struct made mine = make_key("{\"name\":\"mine\"}");
    struct made other = make_key("{\"name\":\"other\"}");
    struct made admin = make_key("{\"name\":\"admin\",\"scope\":\"admin\"}");
    char first[STORE_ID_SIZE], second[STORE_ID_SIZE], path[128];
    struct web_answer answer;

    upload(mine.secret, 200, "\"id\"", first);
    upload(mine.secret, 200, "\"id\"", second);
    snprintf(path, sizeof(path), "/v1/files/%s", first);
    assert_int_equal(status_of("GET", path, other.secret, NULL), 200);
    ask("DELETE", path, other.secret, NULL, &answer);
    expect(&answer, 403, "\"code\":\"not_owner\"");
    web_release(&answer);
    assert_int_equal(status_of("DELETE", path, mine.secret, NULL), 200);
    snprintf(path, sizeof(path), "/v1/files/%s", second);
    assert_int_equal(status_of("DELETE", path, admin.secret, NULL), 200);
}

static void each_call_that_changes_a_thing_asks_whose_it_is(void **state)
{
    (void)state;
    static const char *const things[] = {"/v1/files/{}", "/v1/fine_tuning/jobs/{}", "/v1/models/{}",
                                         "/v1/uploads/{}"};
    static const char *const shown[] = {"/v1/fine_tuning/jobs/1", "/v1/models/1"};
    struct made mine = make_key("{\"name\":\"mine\"}");
    const struct route *routes;
    size_t count = 0, refused = 0;

    /* A row of another owner in each table, under the id that fill_path puts in. */
    api_daemon_change(
        &d, "INSERT INTO files (id, filename, purpose, size_bytes, created_unix_s, sha256,"
            " line_count, example_count, owner) VALUES ('1', 'a', 'fine-tune', 1, 1, '', 1,"
            " 1, 'key-other');"
            "INSERT INTO reservations (id, owner, filename, size_bytes, created_unix_s,"
            " expires_unix_s, lifetime_s, state) VALUES ('1', 'key-other', 'a', 1, 1,"
            " 9999999999, 0, 'open');"
            "INSERT INTO models (id, base_model, job_id, artifact, size_bytes,"
            " created_unix_s, sha256, device, numerics, step, owner) VALUES ('1', 'needle',"
            " 'j', 'a', 1, 1, '', '', '', 0, 'key-other')");
    api_daemon_add_job(&d, "1");
    api_daemon_change(&d, "UPDATE jobs SET owner = 'key-other'");
    routes = router_routes(&count);
    for (size_t i = 0; i < count; i++) {
        bool is_thing = false;
        char path[160];

        for (size_t j = 0; j < COUNT_OF(things); j++)
            is_thing = is_thing || strncmp(routes[i].path, things[j], strlen(things[j])) == 0;
        if (!is_thing || routes[i].access != ROUTE_SUBMIT)
            continue;
        struct web_answer answer;

        fill_path(routes[i].path, path, sizeof(path));
        ask(routes[i].method, path, mine.secret,
            strcmp(routes[i].method, "POST") == 0 ? "{}" : NULL, &answer);
        expect(&answer, 403, "\"code\":\"not_owner\"");
        web_release(&answer);
        refused++;
    }
    assert_true(refused >= 4);
    for (size_t i = 0; i < COUNT_OF(shown); i++) { /* so that nobody offers it to others */
        struct web_answer answer;

        ask("GET", shown[i], mine.secret, NULL, &answer);
        expect(&answer, 200, "\"created_by\":\"key-other\"");
        web_release(&answer);
    }
}

static void a_key_stores_no_more_than_its_bytes(void **state)
{
    (void)state;
    struct made key = make_key("{\"name\":\"small\",\"bytes_max\":60}");
    struct made free_one = make_key("{\"name\":\"free\"}");
    char id[STORE_ID_SIZE], path[128];

    upload(key.secret, 200, "\"id\"", id);
    upload(key.secret, 402, "\"code\":\"quota_exceeded\"", NULL);
    upload(free_one.secret, 200, "\"id\"", path);
    snprintf(path, sizeof(path), "/v1/files/%s", id);
    assert_int_equal(status_of("DELETE", path, key.secret, NULL), 200);
    upload(key.secret, 200, "\"id\"", id);
}

static void a_revoked_key_loses_its_streams_and_only_those(void **state)
{
    (void)state;
    struct made gone = make_key("{\"name\":\"gone\",\"scope\":\"read\"}");
    struct made stays = make_key("{\"name\":\"stays\",\"scope\":\"read\"}");
    const struct made *keys[] = {&gone, &stays};
    int streams[2];

    api_daemon_add_job(&d, "ftjob-one");
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
        char text[512];

        streams[i] = web_open(d.port);
        snprintf(text, sizeof(text),
                 "GET /v1/fine_tuning/jobs/ftjob-one/events?stream=true HTTP/1.1\r\n"
                 "Host: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n",
                 keys[i]->secret);
        web_send_text(streams[i], text);
        free(web_read_until(streams[i], "job created", 5000));
    }
    revoke_key(&gone);
    free(web_read_until(streams[0], "\r\n0\r\n\r\n", 5000)); /* its chunks end properly */
    api_daemon_add_events(&d, "ftjob-one", 1);
    free(web_read_until(streams[1], "\"step\":1", 5000));
    api_daemon_end_job(&d, "ftjob-one");
    close(streams[0]);
    close(streams[1]);
}

/* In a process of another user: the status of a GET over the socket. */
static int status_as_nobody(const char *key)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct web_answer answer;

        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
            _exit(99);
        ask_on(web_open_socket(d.socket), "GET", "/v1/models", key, NULL, &answer);
        _exit(answer.status - 200);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return 200 + WEXITSTATUS(status);
}

static void on_the_socket_the_daemons_user_needs_no_key_and_others_do(void **state)
{
    (void)state;
    struct web_answer answer;
    struct made key;

    if (geteuid() == 0) { /* who is not root cannot become somebody else */
        assert_int_equal(chmod(d.folder, 0711), 0);
        assert_int_equal(chmod(d.socket, 0666), 0);
        assert_int_equal(status_as_nobody(NULL), 401);
        assert_int_equal(status_as_nobody("any"), 401);
        key = make_key("{\"name\":\"first\"}");
        assert_int_equal(status_as_nobody(key.secret), 200);
    } else {
        key = make_key("{\"name\":\"first\"}");
    }
    ask_on(web_open_socket(d.socket), "GET", "/v1/keys", NULL, NULL, &answer);
    expect(&answer, 200, key.id);
    web_release(&answer);
    /* One that is given decides: a wrong key is no better than a right one. */
    ask_on(web_open_socket(d.socket), "GET", "/v1/models", "needle_ft_wrong", NULL, &answer);
    expect(&answer, 401, "you need none");
    web_release(&answer);
    ask_on(web_open_socket(d.socket), "GET", "/v1/keys", key.secret, NULL, &answer);
    expect(&answer, 403, "missing_scope");
    web_release(&answer);
}

static void the_key_of_the_settings_is_an_admin(void **state)
{
    (void)state;
    struct web_answer answer;

    assert_int_equal(status_of("GET", "/v1/keys", NULL, NULL), 401);
    ask("POST", "/v1/keys", "sk-setting", "{\"name\":\"by setting\",\"scope\":\"read\"}", &answer);
    expect(&answer, 201, "\"key\":\"needle_ft_");
    web_release(&answer);
}

static void keys_and_their_last_use_survive_a_restart(void **state)
{
    (void)state;
    struct server_options options = {.listen = "0.0.0.0:0",
                                     .state_folder = d.folder,
                                     .database_path = d.database,
                                     .scheduler = d.scheduler,
                                     .feed = d.feed};
    struct made key, gone;
    struct key_record record;
    struct error err = {0};
    struct server *server = NULL;

    assert_false(server_start(&options, &server, &err)); /* open to all without a key */
    key = make_key("{\"name\":\"kept\"}");
    gone = make_key("{\"name\":\"gone\"}");
    assert_int_equal(status_of("GET", "/v1/models", key.secret, NULL), 200);
    revoke_key(&gone);
    server_stop(d.server);
    d.server = NULL;
    api_daemon_must(keys_get(d.store, key.id, &record, &err), &err);
    assert_true(record.last_used_unix_s > 0);
    api_daemon_must(server_start(&options, &d.server, &err), &err);
    d.port = server_port(d.server);
    assert_int_equal(status_of("GET", "/v1/models", key.secret, NULL), 200);
    assert_int_equal(status_of("GET", "/v1/models", gone.secret, NULL), 401);
    assert_int_equal(status_of("GET", "/v1/models", NULL, NULL), 401);
}

static void a_preflight_of_another_site_is_given_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *origin;
        int status;
    } cases[] = {{"http://evil.example", 403}, {"http://localhost:3000", 405}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer,
                "OPTIONS /v1/fine_tuning/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\n"
                "Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n",
                cases[i].origin);
        assert_int_equal(answer.status, cases[i].status);
        assert_null(strcasestr(answer.head, "access-control-"));
        web_release(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define PLAIN(name) cmocka_unit_test_setup_teardown(name, api_daemon_set_up, api_daemon_tear_down)
        PLAIN(a_secret_is_shown_once_and_kept_as_its_digest),
        PLAIN(a_key_that_is_not_well_described_is_refused_by_name),
        PLAIN(the_first_key_closes_the_door_for_good),
        PLAIN(a_refusal_leads_to_a_page_that_helps),
        PLAIN(each_route_asks_for_its_scope),
        PLAIN(what_a_key_made_is_seen_by_all_and_changed_by_it_and_admins),
        PLAIN(each_call_that_changes_a_thing_asks_whose_it_is),
        PLAIN(a_key_stores_no_more_than_its_bytes),
        PLAIN(a_revoked_key_loses_its_streams_and_only_those),
        PLAIN(on_the_socket_the_daemons_user_needs_no_key_and_others_do),
        cmocka_unit_test_setup_teardown(the_key_of_the_settings_is_an_admin, open_with_setting,
                                        api_daemon_tear_down),
        PLAIN(keys_and_their_last_use_survive_a_restart),
        PLAIN(a_preflight_of_another_site_is_given_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

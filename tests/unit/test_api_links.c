/* Proves that a signed link needs no key, works for its own path and method and until its end alone,
 * outlives a restart, and gives bytes whole or by range. */
#include "tests/support/api_daemon.h"

#include "api/links.h"
#include "api/request.h"
#include "daemon/base/clock.h"
#include "store/files.h"
#include "store/settings.h"

#define KEY "a-key-of-the-tests"
#define ID "file-abcdefghijklmnopqrstuvwx"
#define CONTENT "0123456789"
#define WITH_KEY "Authorization: Bearer " KEY "\r\n"

/* A file record and its bytes, as an upload leaves them. */
static void add_file(void)
{
    struct file_record file = {.id = ID,
                               .filename = "a.jsonl",
                               .purpose = "fine-tune",
                               .size_bytes = sizeof(CONTENT) - 1,
                               .created_unix_s = 1700000000,
                               .sha256 = "84d89877f0d4041efb6bf91a16f0248f"
                                         "2fd573e6af05c19f96bedb9f882f7882"};
    struct error err = {0};
    char path[600];

    snprintf(path, sizeof(path), "%s/uploads/" ID, d.folder);
    scratch_write(path, CONTENT, sizeof(CONTENT) - 1);
    api_daemon_must(files_insert(d.store, &file, "{}", &err), &err);
}

static int open_with_key(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = KEY});
    add_file();
    return 0;
}

/* A link signed with the server's own secret. */
static const char *make_link(const char *method, int64_t expires_unix_s)
{
    static char url[LINKS_URL_BYTES];
    const char *const segments[] = {"v1", "files", ID, "bytes"};
    const struct link link = {method, segments, COUNT_OF(segments), expires_unix_s, -1};
    struct request request = {.host = "localhost"};
    struct links links;
    struct error err = {0};

    api_daemon_must(links_open(&links, d.store, NULL, &err), &err);
    api_daemon_must(links_make(&links, &request, &link, url, &err), &err);
    return url + strlen("http://localhost");
}

static void expect(const char *method, const char *path, const char *headers, int status,
                   const char *part)
{
    struct web_answer answer;

    web_ask(d.port, &answer, "%s %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n",
            method, path, headers);
    if (answer.status != status || !strstr(answer.body, part))
        fail_msg("%s %s: %d %s", method, path, answer.status, answer.body);
    web_release(&answer);
}

static void a_link_needs_no_key_and_gives_the_bytes(void **state)
{
    (void)state;
    struct web_answer answer;
    char path[512];

    expect("GET", "/v1/files/" ID "/content", "", 401, "");
    web_follow(d.port, WITH_KEY, "/v1/files/" ID "/content", path, sizeof(path), &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, CONTENT);
    assert_string_equal(web_header(&answer, "Content-Length"), "10");
    assert_string_equal(web_header(&answer, "Accept-Ranges"), "bytes");
    assert_int_equal(strlen(web_header(&answer, "ETag")), 66);
    web_release(&answer);
    expect("GET", path, WITH_KEY, 200, CONTENT); /* a client that keeps its key is as welcome */
}

static void a_link_that_was_changed_is_none(void **state)
{
    (void)state;
    static const char *const others[] = {
        "/v1/files/" ID "/bytes",
        "/v1/files/" ID "/bytes?expires=99999999999",
        "/v1/files/" ID "/bytes?expires=99999999999&signature=",
        "/v1/files/" ID "/bytes?expires=x&signature=00",
    };
    char path[512], *at;

    for (size_t i = 0; i < COUNT_OF(others); i++)
        expect("GET", others[i], WITH_KEY, 403, "\"invalid_link\"");
    snprintf(path, sizeof(path), "%s", make_link("GET", clock_unix_s() + 60));
    expect("GET", path, "", 200, CONTENT);
    at = strstr(path, "signature=") + strlen("signature=");
    *at = *at == '0' ? '1' : '0';
    expect("GET", path, "", 403, "\"invalid_link\"");
    snprintf(path, sizeof(path), "%s", make_link("GET", clock_unix_s() + 60));
    at = strstr(path, "expires=") + strlen("expires=");
    *at = '9';
    expect("GET", path, "", 403, "\"invalid_link\"");
    snprintf(path, sizeof(path), "%s&size=5", make_link("GET", clock_unix_s() + 60));
    expect("GET", path, "", 403, "\"invalid_link\"");
    snprintf(path, sizeof(path), "%s", make_link("GET", clock_unix_s() + 60));
    at = strstr(path, ID) + strlen(ID) - 1;
    *at = 'y';
    expect("GET", path, "", 403, "\"invalid_link\"");
    expect("GET", make_link("PUT", clock_unix_s() + 60), "", 403, "\"invalid_link\"");
}

static void a_link_ends(void **state)
{
    (void)state;

    expect("GET", make_link("GET", clock_unix_s()), "", 404, "has expired");
    expect("GET", make_link("GET", 1), "", 404, "\"not_found\"");
}

static void an_escaped_path_is_the_same_path(void **state)
{
    (void)state;
    char path[512];

    snprintf(path, sizeof(path), "/v1/files/%%66%s", strstr(make_link("GET", 99999999999), "ile-"));
    expect("GET", path, "", 200, CONTENT);
}

static void a_link_outlives_a_restart(void **state)
{
    (void)state;
    char before[SETTING_VALUE_SIZE], after[SETTING_VALUE_SIZE];
    struct links links = {0};
    struct error err = {0};

    api_daemon_must(settings_get_or_set(d.store, "link_secret", "another", before, &err), &err);
    assert_string_not_equal(before, "another");
    assert_int_equal(strlen(before), 48);
    api_daemon_must(links_open(&links, d.store, NULL, &err), &err);
    api_daemon_must(settings_get_or_set(d.store, "link_secret", "another", after, &err), &err);
    assert_string_equal(before, after);
    assert_string_equal(links.secret, before);
}

static void a_link_begins_where_the_client_reached_us(void **state)
{
    (void)state;
    static const struct {
        const char *public_url, *host, *start;
    } cases[] = {
        {NULL, "127.0.0.1:7733", "http://127.0.0.1:7733/v1/x/a%2Fb:c?expires=7&"},
        {NULL, "[::1]:80", "http://[::1]:80/v1/x/"},
        {NULL, "a b", "http://localhost/v1/x/"},
        {NULL, NULL, "http://localhost/v1/x/"},
        {"https://tune.example/api/", "127.0.0.1", "https://tune.example/api/v1/x/"},
    };
    const char *const segments[] = {"v1", "x", "a/b:c"};
    const struct link link = {"GET", segments, COUNT_OF(segments), 7, 3};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct links links = {.secret = "s", .public_url = cases[i].public_url};
        struct request request = {.host = cases[i].host};
        char url[LINKS_URL_BYTES];
        struct error err = {0};

        api_daemon_must(links_make(&links, &request, &link, url, &err), &err);
        if (strncmp(url, cases[i].start, strlen(cases[i].start)) != 0)
            fail_msg("%zu: %s", i, url);
        assert_non_null(strstr(url, "&size=3&signature="));
    }
}

static void a_part_of_the_bytes_can_be_had(void **state)
{
    (void)state;
    static const struct {
        const char *headers;
        int status;
        const char *body, *range;
    } cases[] = {
        {"Range: bytes=0-3\r\n", 206, "0123", "bytes 0-3/10"},
        {"Range: bytes=7-\r\n", 206, "789", "bytes 7-9/10"},
        {"Range: bytes=-2\r\n", 206, "89", "bytes 8-9/10"},
        {"Range: bytes=-200\r\n", 206, CONTENT, "bytes 0-9/10"},
        {"Range: bytes=9-9\r\n", 206, "9", "bytes 9-9/10"},
        {"Range: bytes=5-99\r\n", 206, "56789", "bytes 5-9/10"},
        {"Range: bytes=10-\r\n", 416, NULL, "bytes */10"},
        {"Range: bytes=-0\r\n", 416, NULL, "bytes */10"},
        {"Range: bytes=3-1\r\n", 200, CONTENT, NULL},
        {"Range: bytes=0-1,3-4\r\n", 200, CONTENT, NULL},
        {"Range: lines=0-1\r\n", 200, CONTENT, NULL},
        {"Range: bytes=-\r\n", 200, CONTENT, NULL},
        {"Range: bytes=0-3\r\nIf-Range: \"other\"\r\n", 200, CONTENT, NULL},
        {"Range: bytes=0-3\r\nIf-Range: \"84d89877f0d4041efb6bf91a16f0248f"
         "2fd573e6af05c19f96bedb9f882f7882\"\r\n",
         206, "0123", "bytes 0-3/10"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const char *range;
        struct web_answer answer;

        web_ask(d.port, &answer,
                "GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n",
                make_link("GET", clock_unix_s() + 60), cases[i].headers);
        range = web_header(&answer, "Content-Range");
        if (answer.status != cases[i].status ||
            (cases[i].body && strcmp(answer.body, cases[i].body) != 0) ||
            (range == NULL) != (cases[i].range == NULL) ||
            (range && strcmp(range, cases[i].range) != 0))
            fail_msg("%s: %d %s %s", cases[i].headers, answer.status, range ? range : "",
                     answer.body);
        web_release(&answer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_link_needs_no_key_and_gives_the_bytes, open_with_key,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_link_that_was_changed_is_none, open_with_key,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_link_ends, open_with_key, api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(an_escaped_path_is_the_same_path, open_with_key,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_link_outlives_a_restart, open_with_key,
                                        api_daemon_tear_down),
        cmocka_unit_test_setup_teardown(a_part_of_the_bytes_can_be_had, open_with_key,
                                        api_daemon_tear_down),
        cmocka_unit_test(a_link_begins_where_the_client_reached_us),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

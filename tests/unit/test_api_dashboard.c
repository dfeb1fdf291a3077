/* Proves how the dashboard's files are served: types, the policy that shuts other origins out, tags that
 * spare the bytes, the smaller coding; and that it needs no key. */
#include "tests/support/api_daemon.h"

static struct api_daemon served;

static void open_served(void)
{
    api_daemon_open(&served, (struct server_options){.api_key = "key-of-the-operator"});
}

static void ask(struct web_answer *answer, const char *path, const char *headers)
{
    web_ask(served.port, answer, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, headers);
}

static void files_have_their_type_and_the_policy(void **state)
{
    (void)state;
    static const struct {
        const char *path, *type, *inside;
    } files[] = {
        {"/", "text/html; charset=utf-8", "<!doctype html>"},
        {"/dashboard/index.html", "text/html; charset=utf-8", "<!doctype html>"},
        {"/dashboard/app.js", "text/javascript; charset=utf-8", "app"},
        {"/dashboard/style.css", "text/css; charset=utf-8", ""},
        {"/dashboard/dygraphs.js", "text/javascript; charset=utf-8", "dygraphs"},
        {"/dashboard/dygraphs.css", "text/css; charset=utf-8", "dygraph"},
    };

    open_served();
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct web_answer answer;
        const char *policy;

        ask(&answer, files[i].path, "");
        if (answer.status != 200)
            fail_msg("%s: %d", files[i].path, answer.status);
        assert_string_equal(web_header(&answer, "Content-Type"), files[i].type);
        assert_non_null(strstr(answer.body, files[i].inside));
        policy = web_header(&answer, "Content-Security-Policy");
        assert_non_null(policy);
        assert_non_null(strstr(policy, "default-src 'none'; script-src 'self'; style-src 'self';"));
        assert_non_null(strstr(policy, "frame-ancestors 'none'"));
        assert_null(strstr(policy, "unsafe"));
        assert_string_equal(web_header(&answer, "X-Content-Type-Options"), "nosniff");
        assert_string_equal(web_header(&answer, "Referrer-Policy"), "no-referrer");
        assert_string_equal(web_header(&answer, "Cache-Control"), "no-cache");
        assert_null(web_header(&answer, "Content-Encoding"));
        web_release(&answer);
    }
    api_daemon_close(&served);
}

static void a_tag_spares_the_bytes(void **state)
{
    (void)state;
    struct web_answer first, second;
    char header[160];

    open_served();
    ask(&first, "/dashboard/dygraphs.js", "");
    assert_non_null(web_header(&first, "ETag"));
    snprintf(header, sizeof(header), "If-None-Match: \"other\", %s\r\n",
             web_header(&first, "ETag"));
    ask(&second, "/dashboard/dygraphs.js", header);
    assert_int_equal(second.status, 304);
    assert_int_equal(second.size, 0);
    assert_string_equal(web_header(&second, "ETag"), web_header(&first, "ETag"));
    web_release(&second);
    ask(&second, "/dashboard/dygraphs.css", header); /* another file's */
    assert_int_equal(second.status, 200);
    web_release(&second);
    web_release(&first);
    api_daemon_close(&served);
}

static void who_takes_gzip_gets_it_under_its_own_tag(void **state)
{
    (void)state;
    struct web_answer plain, small, refused;

    open_served();
    ask(&plain, "/dashboard/dygraphs.js", "");
    ask(&small, "/dashboard/dygraphs.js", "Accept-Encoding: br, gzip, deflate\r\n");
    ask(&refused, "/dashboard/dygraphs.js", "Accept-Encoding: gzip;q=0\r\n");
    assert_string_equal(web_header(&small, "Content-Encoding"), "gzip");
    assert_string_equal(web_header(&small, "Vary"), "Accept-Encoding");
    assert_memory_equal(small.body, "\x1f\x8b", 2);
    assert_true(small.size < plain.size / 2);
    assert_string_not_equal(web_header(&small, "ETag"), web_header(&plain, "ETag"));
    assert_null(web_header(&refused, "Content-Encoding"));
    assert_int_equal(refused.size, plain.size);
    web_release(&plain);
    web_release(&small);
    web_release(&refused);
    api_daemon_close(&served);
}

static void what_is_no_file_of_it_is_not_found(void **state)
{
    (void)state;
    static const char *const paths[] = {"/dashboard/", "/dashboard/none.js",
                                        "/dashboard/pages/none.js", "/dashboard/..%2Fopenapi.yaml",
                                        "/dashboard/pages/a/b.js"};

    open_served();
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        struct web_answer answer;

        ask(&answer, paths[i], "Authorization: Bearer key-of-the-operator\r\n");
        if (answer.status != 404)
            fail_msg("%s: %d", paths[i], answer.status);
        web_release(&answer);
    }
    api_daemon_close(&served);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_have_their_type_and_the_policy),
        cmocka_unit_test(a_tag_spares_the_bytes),
        cmocka_unit_test(who_takes_gzip_gets_it_under_its_own_tag),
        cmocka_unit_test(what_is_no_file_of_it_is_not_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

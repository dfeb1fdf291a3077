/* Proves that an upload in three calls ends as a file with its bytes, that each call at a wrong time or
 * of a wrong size has its word, and that what is over is put away, bytes and all. */
#include "tests/support/api_daemon.h"

#include "api/links.h"
#include "api/request.h"
#include "daemon/base/clock.h"
#include "daemon/sched/datasets.h"
#include "store/reservations.h"

#include <assert.h>
#include <pthread.h>
#include <sqlite3.h>

#define KEY "a-key-of-the-tests"
#define AS_CLIENT "Host: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer " KEY "\r\n"
#define LINE "{\"query\":\"is it raining\",\"tools\":[],\"answers\":[]}\n"
#define SIZE "50"
#define DAYS "\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":86400}"
static_assert(sizeof(LINE) - 1 == 50, "the size that is announced");

static int open_with_key(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){.api_key = KEY, .upload_limit_bytes = 1000});
    return 0;
}

/* The value of a string field. */
static void read_field(const char *json, const char *name, char ret_value[600])
{
    const char *at;
    char wanted[64];

    snprintf(wanted, sizeof(wanted), "\"%s\":\"", name);
    at = strstr(json, wanted);
    if (!at)
        fail_msg("no '%s' in %s", name, json);
    at += strlen(wanted);
    snprintf(ret_value, 600, "%.*s", (int)strcspn(at, "\""), at);
}

static void reserve(const char *body, char ret_id[600], char ret_path[600])
{
    static const char here[] = "http://127.0.0.1/";
    struct web_answer answer;
    char url[600];

    web_ask(d.port, &answer,
            "POST /v1/files HTTP/1.1\r\n" AS_CLIENT
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            strlen(body), body);
    if (answer.status != 201)
        fail_msg("%d %s", answer.status, answer.body);
    assert_non_null(strstr(answer.body, "\"expires_at\":"));
    read_field(answer.body, "id", ret_id);
    read_field(answer.body, "url", url);
    assert_memory_equal(url, here, strlen(here));
    snprintf(ret_path, 600, "%s", url + strlen(here) - 1);
    web_release(&answer);
}

/* The client sends no key and its library's own type. */
static void put(const char *path, const char *bytes, struct web_answer *ret_answer)
{
    web_ask(d.port, ret_answer,
            "PUT %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            "Content-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n%s",
            path, strlen(bytes), bytes);
}

static void complete(const char *id, struct web_answer *ret_answer)
{
    web_ask(d.port, ret_answer,
            "POST /v1/files/%s/complete HTTP/1.1\r\n" AS_CLIENT "Content-Length: 0\r\n\r\n", id);
}

static void expect(struct web_answer *answer, int status, const char *code)
{
    char wanted[80];

    snprintf(wanted, sizeof(wanted), "\"code\":\"%s\"", code);
    if (answer->status != status || (code[0] && !strstr(answer->body, wanted)))
        fail_msg("%d %s, not %d %s", answer->status, answer->body, status, code);
    web_release(answer);
}

static void three_calls_make_a_file(void **state)
{
    (void)state;
    struct web_answer answer;
    char id[600], path[600], file[600];

    reserve("{\"name\":\"folder/../a b.jsonl\",\"bytes\":" SIZE "," DAYS "}", id, path);
    put(path, LINE, &answer);
    expect(&answer, 200, "");
    assert_int_equal(api_daemon_count_uploads(&d), 1);
    complete(id, &answer);
    assert_int_equal(answer.status, 201);
    read_field(answer.body, "id", file);
    assert_string_not_equal(file, id);
    assert_memory_equal(file, "file-", 5);
    assert_non_null(strstr(answer.body, "\"filename\":\"a b.jsonl\""));
    assert_non_null(strstr(answer.body, "\"bytes\":" SIZE));
    assert_non_null(strstr(answer.body, "\"line_count\":1"));
    assert_null(strstr(answer.body, "\"expires_at\":null"));
    web_release(&answer);
    snprintf(path, sizeof(path), "/v1/files/%s/content", file);
    web_follow(d.port, "Authorization: Bearer " KEY "\r\n", path, NULL, 0, &answer);
    assert_string_equal(answer.body, LINE);
    web_release(&answer);
}

static void give_up(const char *id, struct web_answer *ret_answer)
{
    web_ask(d.port, ret_answer, "DELETE /v1/uploads/%s HTTP/1.1\r\n" AS_CLIENT "\r\n", id);
}

static void an_upload_is_given_up_with_its_bytes_until_it_is_a_file(void **state)
{
    (void)state;
    struct web_answer answer;
    char id[600], path[600];

    for (int i = 0; i < 2; i++) {
        reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", id, path);
        if (i == 1) {
            put(path, LINE, &answer);
            expect(&answer, 200, "");
        }
        give_up(id, &answer);
        assert_non_null(strstr(answer.body, "\"deleted\":true"));
        expect(&answer, 200, "");
        assert_int_equal(api_daemon_count_uploads(&d), 0);
        put(path, LINE, &answer);
        expect(&answer, 404, "not_found");
        give_up(id, &answer);
        expect(&answer, 404, "not_found");
    }
    reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", id, path);
    put(path, LINE, &answer);
    expect(&answer, 200, "");
    complete(id, &answer);
    expect(&answer, 201, "");
    give_up(id, &answer);
    expect(&answer, 409, "invalid_upload");
    assert_int_equal(api_daemon_count_uploads(&d), 1);
}

static void a_call_at_the_wrong_time_says_so(void **state)
{
    (void)state;
    struct web_answer answer;
    char id[600], path[600];

    reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", id, path);
    complete(id, &answer);
    expect(&answer, 409, "invalid_upload");
    put(path, LINE, &answer);
    expect(&answer, 200, "");
    put(path, LINE, &answer);
    expect(&answer, 409, "invalid_upload");
    assert_int_equal(api_daemon_count_uploads(&d), 1);
    complete(id, &answer);
    expect(&answer, 201, "");
    complete(id, &answer);
    expect(&answer, 409, "invalid_upload");
    put(path, LINE, &answer);
    expect(&answer, 409, "invalid_upload");
    assert_int_equal(api_daemon_count_uploads(&d), 1);
    complete("upload-nothing", &answer);
    expect(&answer, 404, "not_found");
}

static void bytes_that_do_not_fit_leave_nothing_and_the_link_open(void **state)
{
    (void)state;
    static const struct {
        const char *head, *body;
        int status;
    } cases[] = {
        {"Content-Length: 3\r\n", "abc", 400},
        {"Content-Length: 0\r\n", "", 400},
        {"Content-Length: 51\r\n", LINE "x", 400},
        {"Transfer-Encoding: chunked\r\n", "3\r\n{}\n\r\n0\r\n\r\n", 400},
        {"Transfer-Encoding: chunked\r\n", "33\r\n" LINE "x\r\n0\r\n\r\n", 400},
        {"Content-Length: " SIZE "\r\n", "no json, and as long as it was announced to be: 50", 400},
    };
    struct web_answer answer;
    char id[600], path[600];

    reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", id, path);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        web_ask(d.port, &answer,
                "PUT %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s\r\n%s", path,
                cases[i].head, cases[i].body);
        if (answer.status != cases[i].status || !strstr(answer.body, "\"invalid_upload\""))
            fail_msg("%zu: %d %s", i, answer.status, answer.body);
        web_release(&answer);
        assert_int_equal(api_daemon_count_uploads(&d), 0);
    }
    web_ask(d.port, &answer,
            "PUT %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            "Transfer-Encoding: chunked\r\n\r\n32\r\n" LINE "\r\n0\r\n\r\n",
            path);
    expect(&answer, 200, "");
}

static void lines_that_are_none_are_named(void **state)
{
    (void)state;
    struct web_answer answer;
    char id[600], path[600];

    reserve("{\"name\":\"a.jsonl\",\"bytes\":7}", id, path);
    put(path, "no json", &answer);
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body, "\"lines\":[{\"file\":\"a.jsonl\",\"line\":1"));
    web_release(&answer);
}

static void a_reservation_is_checked_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int status;
        const char *part;
    } cases[] = {
        {"{\"name\":\"a\",\"bytes\":1001}", 413, "\"param\":\"bytes\""},
        {"{\"name\":\"a\",\"bytes\":99999999999999}", 413, "\"param\":\"bytes\""},
        {"{\"name\":\"a\",\"bytes\":0}", 400, "\"param\":\"bytes\""},
        {"{\"name\":\"a\",\"bytes\":-1}", 400, "\"param\":\"bytes\""},
        {"{\"name\":\"a\",\"bytes\":1.5}", 400, "\"param\":\"bytes\""},
        {"{\"name\":\"a\"}", 400, "\"param\":\"bytes\""},
        {"{\"bytes\":1}", 400, "\"param\":\"name\""},
        {"{\"name\":\"\",\"bytes\":1}", 400, "\"param\":\"name\""},
        {"{\"name\":\"a\",\"bytes\":1,\"size\":2}", 400, "\"param\":\"size\""},
        {"{\"name\":\"a\",\"bytes\":1,\"purpose\":\"vision\"}", 400, "\"param\":\"purpose\""},
        {"{\"name\":\"a\",\"bytes\":1,\"expires_after\":{\"anchor\":\"now\",\"seconds\":3600}}",
         400, "\"invalid_expiry\""},
        {"{\"name\":\"a\",\"bytes\":1,\"expires_after\":{\"anchor\":\"created_at\"}}", 400,
         "\"invalid_expiry\""},
        {"{\"name\":\"a\",\"bytes\":1,\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":3599"
         "}}",
         400, "\"invalid_expiry\""},
        {"{\"name\":\"a\",\"bytes\":1,\"expires_after\":{\"seconds\":3600}}", 400,
         "\"invalid_expiry\""},
        {"[]", 400, "\"invalid_request\""},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;

        web_ask(d.port, &answer,
                "POST /v1/files HTTP/1.1\r\n" AS_CLIENT
                "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                strlen(cases[i].body), cases[i].body);
        if (answer.status != cases[i].status || !strstr(answer.body, cases[i].part))
            fail_msg("%zu: %d %s", i, answer.status, answer.body);
        web_release(&answer);
    }
}

static void what_is_over_is_not_found_and_put_away(void **state)
{
    (void)state;
    struct web_answer answer;
    struct error err = {0};
    char ids[2][600], paths[2][600];

    for (int i = 0; i < 2; i++)
        reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", ids[i], paths[i]);
    put(paths[0], LINE, &answer);
    expect(&answer, 200, "");
    api_daemon_change(&d, "UPDATE reservations SET expires_unix_s = 1");
    put(paths[1], LINE, &answer); /* the link still is good: the row decides */
    expect(&answer, 404, "not_found");
    complete(ids[0], &answer);
    expect(&answer, 404, "not_found");
    api_daemon_must(datasets_sweep(d.folder, d.store, &err), &err);
    assert_int_equal(api_daemon_count_uploads(&d), 0);
    complete(ids[0], &answer);
    expect(&answer, 404, "not_found");
}

static void a_link_for_a_put_ends(void **state)
{
    (void)state;
    const char *segments[] = {"v1", "uploads", NULL};
    struct link link = {"PUT", segments, COUNT_OF(segments), clock_unix_s(), 50};
    struct request request = {.host = "x"};
    char id[600], path[600], url[LINKS_URL_BYTES];
    struct web_answer answer;
    struct links links;
    struct error err = {0};

    reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", id, path);
    segments[2] = id;
    api_daemon_must(links_open(&links, d.store, NULL, &err), &err);
    api_daemon_must(links_make(&links, &request, &link, url, &err), &err);
    put(url + strlen("http://x"), LINE, &answer);
    expect(&answer, 404, "not_found");
    web_call(d.port, "GET", path, &answer);
    expect(&answer, 401, "invalid_api_key"); /* the path alone opens nothing */
}

/* A file's own life: kept while a job needs it, then put away by the server itself. */
static void a_file_that_has_expired_goes_unless_a_job_needs_it(void **state)
{
    (void)state;
    struct web_answer answer;
    struct error err = {0};
    char id[600], path[600], sql[600];

    for (int i = 0; i < 2; i++) {
        reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "," DAYS "}", id, path);
        put(path, LINE, &answer);
        expect(&answer, 200, "");
        complete(id, &answer);
        read_field(answer.body, "id", id);
        web_release(&answer);
    }
    api_daemon_add_job(&d, "ftjob-needs-it");
    snprintf(sql, sizeof(sql), "UPDATE jobs SET training_file = '%s'", id);
    api_daemon_change(&d, sql);
    api_daemon_change(&d, "UPDATE files SET expires_unix_s = 5");
    api_daemon_must(datasets_sweep(d.folder, d.store, &err), &err);
    assert_int_equal(api_daemon_count_uploads(&d), 1);
    snprintf(path, sizeof(path), "/v1/files/%s", id);
    web_ask(d.port, &answer, "GET %s HTTP/1.1\r\n" AS_CLIENT "\r\n", path);
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    api_daemon_end_job(&d, "ftjob-needs-it");
    api_daemon_must(datasets_sweep(d.folder, d.store, &err), &err);
    assert_int_equal(api_daemon_count_uploads(&d), 0);
    web_ask(d.port, &answer, "GET %s HTTP/1.1\r\n" AS_CLIENT "\r\n", path);
    expect(&answer, 404, "not_found");
}

struct putter {
    pthread_t thread;
    const char *path;
    int status;
};

static void *put_once(void *context)
{
    struct putter *putter = context;
    struct web_answer answer;

    put(putter->path, LINE, &answer);
    putter->status = answer.status;
    web_release(&answer);
    return NULL;
}

static void of_two_puts_at_once_one_is_kept(void **state)
{
    (void)state;

    for (int round = 0; round < 5; round++) {
        struct putter both[2];
        struct web_answer answer;
        char id[600], path[600];

        reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", id, path);
        for (int i = 0; i < 2; i++) {
            both[i].path = path;
            assert_int_equal(pthread_create(&both[i].thread, NULL, put_once, &both[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(both[i].thread, NULL);
        assert_int_equal(both[0].status + both[1].status, 200 + 409);
        complete(id, &answer);
        expect(&answer, 201, "");
        assert_int_equal(api_daemon_count_uploads(&d), round + 1);
    }
}

static void what_a_killed_daemon_had_begun_goes_at_the_start(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool stays;
    } cases[] = {
        {"file-a.1234567890.tmp", false}, /* not whole */
        {"file-stranded", false},         /* whole, before its row or after it */
        {"file-notes.txt", true},         /* somebody else's */
        {"tmp", true},
    };
    struct error err = {0};
    struct web_answer answer;
    char ids[3][600], path[700];

    for (size_t i = 0; i < COUNT_OF(ids); i++) { /* a file, a deleted one, and one not completed */
        reserve("{\"name\":\"a.jsonl\",\"bytes\":" SIZE "}", ids[i], path);
        put(path, LINE, &answer);
        expect(&answer, 200, "");
        if (i < 2) {
            complete(ids[i], &answer);
            expect(&answer, 201, "");
        }
    }
    api_daemon_change(&d, "DELETE FROM files WHERE seq = 2"); /* its bytes stay */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(path, sizeof(path), "%s/uploads/%s", d.folder, cases[i].name);
        scratch_write(path, "x", 1);
    }
    api_daemon_must(datasets_recover(d.folder, d.store, &err), &err);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(path, sizeof(path), "%s/uploads/%s", d.folder, cases[i].name);
        if ((access(path, F_OK) == 0) != cases[i].stays)
            fail_msg("%s", cases[i].name);
    }
    assert_int_equal(api_daemon_count_uploads(&d), 4);
    complete(ids[2], &answer);
    expect(&answer, 201, "");
}

static void the_server_puts_away_by_itself(void **state)
{
    (void)state;
    struct reservation_record reservation = {
        .id = "upload-old", .filename = "a", .size_bytes = 1, .expires_unix_s = 1};
    struct error err = {0};
    bool gone = false;

    api_daemon_must(reservations_insert(d.store, &reservation, 1, 0, &err), &err);
    while (!gone) { /* bounded by the run's time limit */
        sqlite3 *db = NULL;
        sqlite3_stmt *statement = NULL;

        usleep(20000);
        assert_int_equal(sqlite3_open(d.database, &db), SQLITE_OK);
        assert_int_equal(
            sqlite3_prepare_v2(db, "SELECT count(*) FROM reservations", -1, &statement, NULL),
            SQLITE_OK);
        gone = sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_int(statement, 0) == 0;
        sqlite3_finalize(statement);
        sqlite3_close(db);
    }
}

static void a_limit_counts_files_and_reservations(void **state)
{
    (void)state;
    struct reservation_record reservation = {.id = "upload-1",
                                             .owner = "key-1",
                                             .filename = "a",
                                             .size_bytes = 60,
                                             .created_unix_s = clock_unix_s(),
                                             .expires_unix_s = clock_unix_s() + 100};
    struct file_record file = {.id = "file-1",
                               .filename = "a",
                               .purpose = "fine-tune",
                               .size_bytes = 30,
                               .owner = "key-1"};
    struct error err = {0};

    api_daemon_must(files_insert_within(d.store, &file, NULL, 100, &err), &err);
    api_daemon_must(reservations_insert(d.store, &reservation, 2, 100, &err), &err);
    snprintf(file.id, sizeof(file.id), "file-2");
    file.size_bytes = 11;
    assert_false(files_insert_within(d.store, &file, NULL, 100, &err));
    assert_string_equal(err.word, "quota_exceeded");
    file.size_bytes = 10;
    api_daemon_must(files_insert_within(d.store, &file, NULL, 100, &err), &err);
    snprintf(reservation.id, sizeof(reservation.id), "upload-2");
    assert_false(reservations_insert(d.store, &reservation, 2, 100, &err));
    assert_string_equal(err.word, "quota_exceeded");
    snprintf(reservation.owner, sizeof(reservation.owner), "key-2");
    api_daemon_must(reservations_insert(d.store, &reservation, 2, 100, &err), &err);
    snprintf(reservation.id, sizeof(reservation.id), "upload-3");
    assert_false(reservations_insert(d.store, &reservation, 1, 0, &err));
    assert_string_equal(err.word, "quota_exceeded");
}

static void names_can_be_searched(void **state)
{
    (void)state;
    static const char *const names[] = {"Alpha.jsonl", "beta.jsonl", "50%.jsonl"};
    static const struct {
        const char *search;
        int count;
    } cases[] = {{"ALPHA", 1}, {"jsonl", 3}, {"%25", 1}, {"_", 0}, {"a.json", 2}, {"", 3}};
    struct error err = {0};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct file_record file = {.purpose = "fine-tune"};

        snprintf(file.id, sizeof(file.id), "file-%zu", i);
        snprintf(file.filename, sizeof(file.filename), "%s", names[i]);
        api_daemon_must(files_insert(d.store, &file, NULL, &err), &err);
    }
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;
        int count = 0;

        web_ask(d.port, &answer, "GET /v1/files?limit=100&search=%s HTTP/1.1\r\n" AS_CLIENT "\r\n",
                cases[i].search);
        for (const char *at = answer.body; (at = strstr(at, "\"object\":\"file\"")); at++)
            count++;
        if (count != cases[i].count)
            fail_msg("'%s': %d of %s", cases[i].search, count, answer.body);
        web_release(&answer);
    }
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, open_with_key, api_daemon_tear_down)
    const struct CMUnitTest tests[] = {
        EACH(three_calls_make_a_file),
        EACH(an_upload_is_given_up_with_its_bytes_until_it_is_a_file),
        EACH(a_call_at_the_wrong_time_says_so),
        EACH(bytes_that_do_not_fit_leave_nothing_and_the_link_open),
        EACH(lines_that_are_none_are_named),
        EACH(a_reservation_is_checked_by_name),
        EACH(what_is_over_is_not_found_and_put_away),
        EACH(a_link_for_a_put_ends),
        EACH(a_file_that_has_expired_goes_unless_a_job_needs_it),
        EACH(of_two_puts_at_once_one_is_kept),
        EACH(what_a_killed_daemon_had_begun_goes_at_the_start),
        EACH(the_server_puts_away_by_itself),
        EACH(a_limit_counts_files_and_reservations),
        EACH(names_can_be_searched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

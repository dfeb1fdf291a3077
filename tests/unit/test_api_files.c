/* Proves that uploads come back byte for byte whatever their form and size, that a refused one leaves
 * nothing, and that listing, content and deletion agree. */
#include "tests/support/api_daemon.h"

#include "store/files.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOST "Host: 127.0.0.1\r\n"
#define FORM "Content-Type: multipart/form-data; boundary=bnd\r\n"
#define PURPOSE_PART                                                                               \
    "--bnd\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nfine-tune\r\n"
#define FILE_HEAD(name)                                                                            \
    "--bnd\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" name "\"\r\n"            \
    "Content-Type: application/octet-stream\r\n\r\n"
#define LINE                                                                                       \
    "{\"query\":\"is it raining in Oslo\",\"tools\":[{\"name\":\"get_weather\",\"description\":"   \
    "\"Weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":"          \
    "\"string\"}}}}],\"answers\":[{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}]}"

static void upload(const char *body, struct web_answer *ret_answer)
{
    web_ask(d.port, ret_answer,
            "POST /v1/files HTTP/1.1\r\n" HOST FORM "Connection: close\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            strlen(body), body);
}

/* The value of a string field, in a buffer good until the fourth next call. */
static const char *field(const char *json, const char *name)
{
    static _Thread_local char values[4][256];
    static _Thread_local unsigned next;
    char *value = values[next++ % 4], wanted[64];
    const char *at;

    snprintf(wanted, sizeof(wanted), "\"%s\":\"", name);
    at = strstr(json, wanted);
    if (!at)
        fail_msg("no '%s' in %s", name, json);
    at += strlen(wanted);
    snprintf(value, 256, "%.*s", (int)strcspn(at, "\""), at);
    return value;
}

static void expect_content(const char *id, const char *content, size_t size)
{
    struct web_answer answer;
    char path[128];

    snprintf(path, sizeof(path), "/v1/files/%s/content", id);
    web_follow(d.port, "", path, NULL, 0, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(web_header(&answer, "Content-Type"), "application/octet-stream");
    assert_int_equal(answer.size, size);
    assert_memory_equal(answer.body, content, size);
    web_release(&answer);
}

static void a_file_comes_back_byte_for_byte_in_either_order_of_parts(void **state)
{
    (void)state;
    static const char content[] = LINE "\n" LINE "\r\n\r\n\r\n";
    static const char *const bodies[] = {
        PURPOSE_PART FILE_HEAD("a.jsonl") LINE "\n" LINE "\r\n\r\n\r\n\r\n--bnd--\r\n",
        FILE_HEAD("a.jsonl") LINE "\n" LINE "\r\n\r\n\r\n\r\n" PURPOSE_PART "--bnd--\r\n",
        "--bnd\r\nContent-Disposition: form-data; name=\"another[part]\"\r\n\r\n"
        "ignored\r\n" PURPOSE_PART FILE_HEAD("a.jsonl") LINE "\n" LINE "\r\n\r\n\r\n\r\n--bnd--",
    };

    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        struct web_answer answer;

        upload(bodies[i], &answer);
        if (answer.status != 200)
            fail_msg("%zu: %d %s", i, answer.status, answer.body);
        assert_non_null(strstr(answer.body, "\"object\":\"file\""));
        assert_string_equal(field(answer.body, "filename"), "a.jsonl");
        assert_string_equal(field(answer.body, "purpose"), "fine-tune");
        assert_string_equal(field(answer.body, "status"), "processed");
        expect_content(field(answer.body, "id"), content, sizeof(content) - 1);
        web_release(&answer);
    }
}

static void a_form_that_lacks_something_is_refused_by_name_and_keeps_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
        int status;
    } cases[] = {
        {PURPOSE_PART "--bnd--", "\"file\"", 400},
        {FILE_HEAD("a") LINE "\r\n--bnd--", "\"purpose\"", 400},
        {PURPOSE_PART PURPOSE_PART FILE_HEAD("a") LINE "\r\n--bnd--", "\"purpose\"", 400},
        {PURPOSE_PART FILE_HEAD("a") LINE "\r\n" FILE_HEAD("b") LINE "\r\n--bnd--", "\"file\"",
         400},
        {"--bnd\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nvision\r\n" FILE_HEAD(
             "a") LINE "\r\n--bnd--",
         "\"purpose\"", 400},
        {PURPOSE_PART FILE_HEAD("a") LINE, "null", 400},
        {PURPOSE_PART FILE_HEAD("a") "not json\r\n--bnd--", "\"file\"", 400},
        {"", "null", 400},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;
        char wanted[64];

        upload(cases[i].body, &answer);
        snprintf(wanted, sizeof(wanted), "\"param\":%s", cases[i].param);
        if (answer.status != cases[i].status || !strstr(answer.body, wanted))
            fail_msg("%zu: %d %s", i, answer.status, answer.body);
        web_release(&answer);
        assert_int_equal(api_daemon_count_uploads(&d), 0);
    }
}

static void a_refused_file_names_its_lines(void **state)
{
    (void)state;
    struct web_answer answer;

    upload(PURPOSE_PART FILE_HEAD("a") "not json\n" LINE "\r\n--bnd--", &answer);
    assert_int_equal(answer.status, 400);
    assert_non_null(strstr(answer.body, "\"lines\":[{"));
    assert_non_null(strstr(answer.body, "\"line\":1"));
    web_release(&answer);
}

static void a_name_is_a_label_and_no_path(void **state)
{
    (void)state;
    struct web_answer answer;

    upload(PURPOSE_PART FILE_HEAD("../../../../var/needled-escape.jsonl") LINE "\r\n--bnd--",
           &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(field(answer.body, "filename"), "needled-escape.jsonl");
    assert_int_equal(api_daemon_count_uploads(&d), 1);
    assert_int_not_equal(access("/var/needled-escape.jsonl", F_OK), 0);
    web_release(&answer);
}

struct parallel {
    char query[32], id[128];
    size_t size;
};

/* A large upload in small pieces. */
static void *upload_in_pieces(void *context)
{
    struct parallel *own = context;
    char head[600], line[512];
    struct web_answer answer;
    int descriptor = web_open(d.port), count = 400;
    int line_size = snprintf(line, sizeof(line),
                             "{\"query\":\"%s\",\"tools\":[{\"name\":\"t\",\"description\":\"d\","
                             "\"parameters\":{\"type\":\"object\",\"properties\":{}}}],"
                             "\"answers\":[]}\n",
                             own->query);

    own->size = (size_t)(line_size * count);
    snprintf(head, sizeof(head),
             "POST /v1/files HTTP/1.1\r\n" HOST FORM
             "Content-Length: %zu\r\n\r\n" PURPOSE_PART FILE_HEAD("same.jsonl"),
             strlen(PURPOSE_PART FILE_HEAD("same.jsonl")) + own->size + strlen("\r\n--bnd--"));
    web_send_text(descriptor, head);
    for (int i = 0; i < count; i++)
        web_send(descriptor, line, (size_t)line_size);
    web_send_text(descriptor, "\r\n--bnd--");
    web_receive(descriptor, false, &answer);
    if (answer.status == 200)
        snprintf(own->id, sizeof(own->id), "%s", field(answer.body, "id"));
    web_release(&answer);
    close(descriptor);
    return NULL;
}

static void two_uploads_at_once_with_one_name_are_two_files(void **state)
{
    (void)state;
    struct parallel both[2] = {{.query = "the first one"}, {.query = "the second, longer one"}};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, upload_in_pieces, &both[0]), 0);
    upload_in_pieces(&both[1]);
    pthread_join(thread, NULL);
    assert_true(both[0].id[0] && both[1].id[0]);
    assert_string_not_equal(both[0].id, both[1].id);
    for (int i = 0; i < 2; i++) {
        struct web_answer answer;
        char path[256];

        snprintf(path, sizeof(path), "/v1/files/%s/content", both[i].id);
        web_follow(d.port, "", path, NULL, 0, &answer);
        assert_int_equal(answer.size, both[i].size);
        assert_non_null(strstr(answer.body, both[i].query));
        assert_null(strstr(answer.body, both[1 - i].query));
        web_release(&answer);
    }
}

static void an_upload_that_rotted_is_not_handed_out(void **state)
{
    (void)state;
    struct web_answer answer;
    char call[128], path[1024], id[64];
    size_t size;
    char *bytes;

    upload(PURPOSE_PART FILE_HEAD("a.jsonl") LINE "\r\n--bnd--\r\n", &answer);
    snprintf(id, sizeof(id), "%s", field(answer.body, "id"));
    web_release(&answer);
    snprintf(path, sizeof(path), "%s/uploads/%s", d.folder, id);
    bytes = scratch_read(path, &size);
    bytes[size / 2] ^= 1;
    scratch_write(path, bytes, size);
    free(bytes);
    snprintf(call, sizeof(call), "/v1/files/%s/content", id);
    web_follow(d.port, "", call, NULL, 0, &answer);
    assert_int_equal(answer.status, 410);
    assert_non_null(strstr(answer.body, "its file on the disk is damaged: its SHA-256 is "));
    web_release(&answer);
}

static void what_is_no_file_in_an_uploads_place_is_answered_as_gone(void **state)
{
    (void)state;
    struct web_answer answer;
    char call[128], path[1024], id[64];

    upload(PURPOSE_PART FILE_HEAD("a.jsonl") LINE "\r\n--bnd--\r\n", &answer);
    snprintf(id, sizeof(id), "%s", field(answer.body, "id"));
    web_release(&answer);
    snprintf(path, sizeof(path), "%s/uploads/%s", d.folder, id);
    snprintf(call, sizeof(call), "/v1/files/%s/content", id);
    assert_int_equal(unlink(path), 0);
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(kind == 0 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
        web_follow(d.port, "", call, NULL, 0, &answer);
        if (answer.status != 410 || !strstr(answer.body, "\"gone\"") ||
            !strstr(answer.body, "something else in its place"))
            fail_msg("%d: %s", answer.status, answer.body);
        web_release(&answer);
        assert_int_equal(remove(path), 0);
    }
}

static void an_upload_that_is_broken_off_leaves_nothing(void **state)
{
    (void)state;
    int descriptor = web_open(d.port);
    struct web_answer answer;

    web_send_text(descriptor, "POST /v1/files HTTP/1.1\r\n" HOST FORM
                              "Content-Length: 100000\r\n\r\n" PURPOSE_PART FILE_HEAD("a") LINE);
    while (api_daemon_count_uploads(&d) == 0)
        usleep(1000); /* until the server has begun to write */
    close(descriptor);
    while (api_daemon_count_uploads(&d) > 0)
        usleep(
            1000); /* the end of the connection takes it away; the run's time limit bounds this */
    web_call(d.port, "GET", "/v1/files", &answer);
    assert_non_null(strstr(answer.body, "\"data\":[]"));
    web_release(&answer);
}

static void a_list_is_walked_to_its_end_by_its_cursor(void **state)
{
    (void)state;
    char ids[5][256], path[400] = "/v1/files?limit=2&order=asc";
    struct web_answer answer;
    int seen = 0, pages = 0;

    for (int i = 0; i < 5; i++) {
        upload(PURPOSE_PART FILE_HEAD("a.jsonl") LINE "\r\n--bnd--", &answer);
        assert_int_equal(answer.status, 200);
        snprintf(ids[i], sizeof(ids[i]), "%s", field(answer.body, "id"));
        web_release(&answer);
    }
    for (bool more = true; more; pages++) {
        web_call(d.port, "GET", path, &answer);
        assert_int_equal(answer.status, 200);
        assert_string_equal(field(answer.body, "first_id"), ids[seen]);
        seen += pages < 2 ? 2 : 1;
        assert_string_equal(field(answer.body, "last_id"), ids[seen - 1]);
        snprintf(path, sizeof(path), "/v1/files?limit=2&order=asc&after=%s", ids[seen - 1]);
        more = strstr(answer.body, "\"has_more\":true") != NULL;
        web_release(&answer);
    }
    assert_int_equal(pages, 3);
    web_call(d.port, "GET", "/v1/files?limit=1", &answer); /* newest first is the default */
    assert_string_equal(field(answer.body, "first_id"), ids[4]);
    web_release(&answer);
    web_call(d.port, "GET", "/v1/files?purpose=fine-tune-results", &answer);
    assert_non_null(strstr(answer.body, "\"data\":[]"));
    web_release(&answer);
}

static void a_deleted_file_is_gone_from_list_and_disk(void **state)
{
    (void)state;
    struct web_answer answer;
    char path[400];

    upload(PURPOSE_PART FILE_HEAD("a.jsonl") LINE "\r\n--bnd--", &answer);
    snprintf(path, sizeof(path), "/v1/files/%s", field(answer.body, "id"));
    web_release(&answer);
    web_ask(d.port, &answer,
            "DELETE %s HTTP/1.1\r\n" HOST
            "Content-Type: application/json\r\nConnection: close\r\n\r\n",
            path);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.body, "\"deleted\":true"));
    web_release(&answer);
    assert_int_equal(api_daemon_count_uploads(&d), 0);
    web_call(d.port, "GET", path, &answer);
    assert_int_equal(answer.status, 404);
    web_release(&answer);
    web_call(d.port, "DELETE", path, &answer);
    assert_int_equal(answer.status, 404);
    web_release(&answer);
}

#define EXPIRY_PART(name, value)                                                                   \
    "--bnd\r\nContent-Disposition: form-data; name=\"expires_after[" name "]\"\r\n\r\n" value "\r" \
    "\n"

static void a_file_may_be_kept_for_a_time_alone(void **state)
{
    (void)state;
    static const struct {
        const char *parts;
        int status;
        const char *param;
    } cases[] = {
        {EXPIRY_PART("anchor", "created_at") EXPIRY_PART("seconds", "3600"), 200, ""},
        {EXPIRY_PART("seconds", "2592000") EXPIRY_PART("anchor", "created_at"), 200, ""},
        {EXPIRY_PART("anchor", "created_at") EXPIRY_PART("seconds", "3599"), 400, "seconds"},
        {EXPIRY_PART("anchor", "created_at") EXPIRY_PART("seconds", "2592001"), 400, "seconds"},
        {EXPIRY_PART("anchor", "created_at") EXPIRY_PART("seconds", "1e5"), 400, "seconds"},
        {EXPIRY_PART("anchor", "created_at") EXPIRY_PART("seconds", ""), 400, "seconds"},
        {EXPIRY_PART("anchor", "created_at"), 400, "seconds"},
        {EXPIRY_PART("anchor", "last_used") EXPIRY_PART("seconds", "3600"), 400, "anchor"},
        {EXPIRY_PART("seconds", "3600"), 400, "anchor"},
        {EXPIRY_PART("seconds", "3600") EXPIRY_PART("seconds", "3600"), 400, "seconds"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct web_answer answer;
        char body[2000], wanted[80];
        int64_t created, expires;

        snprintf(body, sizeof(body), "%s" PURPOSE_PART FILE_HEAD("a") LINE "\r\n--bnd--",
                 cases[i].parts);
        upload(body, &answer);
        snprintf(wanted, sizeof(wanted), "\"param\":\"expires_after[%s]\"", cases[i].param);
        if (answer.status != cases[i].status ||
            (answer.status != 200 && !strstr(answer.body, wanted)))
            fail_msg("%zu: %d %s", i, answer.status, answer.body);
        if (answer.status == 200) {
            created = strtoll(strstr(answer.body, "\"created_at\":") + 13, NULL, 10);
            expires = strtoll(strstr(answer.body, "\"expires_at\":") + 13, NULL, 10);
            assert_int_equal(expires - created, i == 0 ? 3600 : 2592000);
        }
        web_release(&answer);
    }
    assert_int_equal(api_daemon_count_uploads(&d), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define PLAIN(name) cmocka_unit_test_setup_teardown(name, api_daemon_set_up, api_daemon_tear_down)
        PLAIN(a_file_comes_back_byte_for_byte_in_either_order_of_parts),
        PLAIN(a_form_that_lacks_something_is_refused_by_name_and_keeps_nothing),
        PLAIN(a_refused_file_names_its_lines),
        PLAIN(a_name_is_a_label_and_no_path),
        PLAIN(two_uploads_at_once_with_one_name_are_two_files),
        PLAIN(an_upload_that_rotted_is_not_handed_out),
        PLAIN(what_is_no_file_in_an_uploads_place_is_answered_as_gone),
        PLAIN(an_upload_that_is_broken_off_leaves_nothing),
        PLAIN(a_list_is_walked_to_its_end_by_its_cursor),
        PLAIN(a_deleted_file_is_gone_from_list_and_disk),
        PLAIN(a_file_may_be_kept_for_a_time_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

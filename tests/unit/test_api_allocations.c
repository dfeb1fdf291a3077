/*
 * Proves that where memory runs out a request is answered so (507), and not as one that is malformed,
 * forged, too long or not allowed; that an answer has all its headers or is none; and that a filter lets
 * through what it was asked for.
 */
#include "tests/support/allocations.h"
#include "tests/support/test.h"

#include "api/jobfilter.h"
#include "api/links.h"
#include "api/objects.h"
#include "api/outbound.h"
#include "api/request.h"
#include "api/router.h"
#include "daemon/base/json.h"
#include "daemon/sched/scheduler.h"

#include <microhttpd.h>

#define ID "file-abcdefghijklmnopqrstuvwx"

static const struct links links = {.secret = "a secret of the tests"};

/* ---- requests ------------------------------------------------------------------------------------------- */

/* As request_new leaves one that has been read; what there was no memory for is told by its flag. */
static void begin(struct request *request, const char *target)
{
    *request = (struct request){.method = "GET", .url = target};
    arena_init(&request->arena, 65536);
    response_init(&request->response);
}

static void release(struct request *request)
{
    response_release(&request->response);
    arena_release(&request->arena);
}

/* What was refused for want of memory; anything else fails the story with what it was. */
static bool take_refusal(const struct request *request, struct error *err)
{
    const struct response *response = &request->response;

    if (response->status == 507)
        return error_set(err, ERR_NO_MEMORY, "507");
    return error_set(err, ERR_INVALID, "answered %u: %s", response->status,
                     response->bytes ? response->bytes : "");
}

static bool match(void *context, struct error *err)
{
    static const char *const targets[] = {"http://a.example/v1/files/" ID "/content",
                                          "/v1/files/" ID "/content", "/v1/files/" ID "/content"};
    const size_t *const which = context;
    struct request request;
    bool ok = true;

    begin(&request, targets[*which]);
    if (*which == 2) /* its first allocation is another */
        ok = request_add_query(&request, "a", "b%20c");
    request_read_path(&request);
    if (*which < 2)
        ok = request_add_query(&request, "a", "b%20c");
    assert_false(request.malformed);
    ok = router_match(&request) && ok;
    if (ok) {
        assert_string_equal(request.params[0], ID);
        assert_string_equal(request_query(&request, "a"), "b c");
    } else {
        (void)take_refusal(&request, err);
    }
    release(&request);
    return ok;
}

static void a_request_that_there_is_no_memory_to_read_is_not_malformed(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    for (size_t which = 0; which < 3; which++)
        allocations_fail_each(match, NULL, &which, 1);
}

/* ---- links -------------------------------------------------------------------------------------------------- */

static const char *const segments[] = {"v1", "files", ID, "bytes"};
static const struct link to_file = {"GET", segments, COUNT_OF(segments), 99999999999, -1};

static bool make_link(void *context, struct error *err)
{
    const struct request request = {.host = "a.example"};

    return links_make(&links, &request, &to_file, context, err);
}

static bool check_link(void *context, struct error *err)
{
    const char *url = context;
    struct request request;
    int64_t size_bytes = 0;
    bool ok;

    begin(&request, "/v1/files/" ID "/bytes");
    request_read_path(&request);
    ok = !request.no_memory && request_add_query(&request, "expires", "99999999999") &&
         request_add_query(&request, "signature", strstr(url, "signature=") + 10);
    if (!ok)
        (void)error_set(err, ERR_NO_MEMORY, "the request");
    else if (!links_check(&links, &request, &size_bytes))
        ok = take_refusal(&request, err);
    release(&request);
    return ok;
}

static void a_link_is_neither_too_long_nor_forged_for_want_of_memory(void **state)
{
    char url[LINKS_URL_BYTES];
    struct error err = {0};

    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(make_link, NULL, url, 1);
    assert_true(make_link(url, &err));
    allocations_fail_each(check_link, NULL, url, 1);
}

/* ---- webhooks ------------------------------------------------------------------------------------------ */

static bool check_good_url(void *context, struct error *err)
{
    (void)context;
    return outbound_check_url("a.example", "https://a.example:8443/x?y=1", err);
}

/* Refused it is in any case, for what it is or for want of memory. */
static bool check_bad_url(void *context, struct error *err)
{
    (void)context;
    assert_false(outbound_check_url("a.example", "https://user:secret@a.example/", err));
    return err->code == ERR_INVALID;
}

static void a_webhooks_address_is_not_judged_without_memory(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(check_good_url, NULL, NULL, 1);
    allocations_fail_each(check_bad_url, NULL, NULL, 1);
}

/* ---- filters -------------------------------------------------------------------------------------------- */

static bool read_filter(void *context, struct error *err)
{
    struct query_field second = {"metadata[b]", "2", NULL};
    struct query_field first = {"metadata[a]", "1", &second};
    struct query_field status = {"status", "queued", &first};
    const struct request request = {.query = &status};
    struct jobfilter filter;

    (void)context;
    if (!jobfilter_read(&request, &filter, err))
        return false;
    assert_string_equal(filter.wanted.metadata_json, "[[\"a\",\"1\"],[\"b\",\"2\"]]");
    assert_string_equal(filter.wanted.states, ",queued,");
    jobfilter_release(&filter);
    return true;
}

static void a_filter_is_whole_or_there_is_none(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(read_filter, NULL, NULL, 1);
}

/* ---- answers -------------------------------------------------------------------------------------------- */

static bool build_redirect(void *context, struct error *err)
{
    struct response response;
    struct MHD_Response *built = NULL;
    bool ok;

    (void)context;
    response_init(&response);
    ok = response_set_redirect(&response, "http://a.example/x", err);
    if (ok)
        built = response_build(&response, "req-1");
    if (built) {
        assert_string_equal(MHD_get_response_header(built, "Location"), "http://a.example/x");
        assert_string_equal(MHD_get_response_header(built, "x-request-id"), "req-1");
        assert_string_equal(MHD_get_response_header(built, "Cache-Control"), "no-store");
        assert_string_equal(MHD_get_response_header(built, "X-Content-Type-Options"), "nosniff");
        MHD_destroy_response(built);
    } else if (ok) {
        ok = error_set(err, ERR_NO_MEMORY, "nothing was built");
    }
    response_release(&response);
    return ok;
}

static void show_texts(struct job_record *job)
{
    *job =
        (struct job_record){.id = "ftjob-1",
                            .base_model = "needle-3",
                            .state = JOB_FAILED,
                            .hyperparameters_json = (char *)(uintptr_t) "{\"n_epochs\":2}",
                            .plan_json = (char *)(uintptr_t) "{\"total_steps\":3}",
                            .metadata_json = (char *)(uintptr_t) "{\"a\":\"b\"}",
                            .inputs_json = (char *)(uintptr_t) "{\"training_files\":[\"a\",\"b\"]}",
                            .error_lines_json = (char *)(uintptr_t) "[{\"line\":1}]",
                            .warnings_json = (char *)(uintptr_t) "[{\"rule\":\"device\"}]"};
}

/* The context is what is printed where there is memory; NULL as long as it is not known. */
static bool print_job(void *context, struct error *err)
{
    const struct job_outlook outlook = {.kept_unix_s = 1000, .kept_step = 3};
    char **wanted = context, *text = NULL;
    struct job_record job;
    struct json *json;
    bool ok;

    show_texts(&job);
    json = objects_job(&job, &outlook);
    ok = json_print_text(json, &text, err);
    json_free(json);
    if (ok && *wanted)
        assert_string_equal(text, *wanted);
    if (*wanted)
        free(text);
    else
        *wanted = text;
    return ok;
}

static void a_jobs_answer_is_whole_or_there_is_none(void **state)
{
    struct error err = {0};
    char *wanted = NULL;

    (void)state;
    if (!allocations_can_fail)
        skip();
    assert_true(print_job(&wanted, &err));
    allocations_fail_each(print_job, NULL, &wanted, 1);
    free(wanted);
}

/* There is always an answer: the refusal, or that there was no memory for it. */
static bool refuse(void *context, struct error *err)
{
    struct response response;
    char bytes[2048];
    size_t size = 0;
    bool ok;

    (void)context;
    response_init(&response);
    response_refuse(&response, 409, "conflict", NULL, "it is there already");
    ok = response.status == 409;
    if (!ok) {
        assert_int_equal(response.status, 507);
        assert_non_null(strstr(response.static_bytes, "\"insufficient_storage\""));
        (void)error_set(err, ERR_NO_MEMORY, "507");
        allocations_fail_at = 0;
        assert_true(response_print(&response, "req-1", bytes, sizeof(bytes), &size));
        bytes[size] = '\0';
        assert_non_null(strstr(bytes, "HTTP/1.1 507 "));
        assert_non_null(strstr(bytes, "no memory for the answer"));
    } else {
        assert_non_null(strstr(response.bytes, "it is there already"));
    }
    response_release(&response);
    return ok;
}

static void an_answer_has_all_its_headers_or_is_none(void **state)
{
    (void)state;
    if (!allocations_can_fail)
        skip();
    allocations_fail_each(build_redirect, NULL, NULL, 1);
    allocations_fail_each(refuse, NULL, NULL, 1);
    allocations_in_a_row = 1000;
    allocations_fail_each(refuse, NULL, NULL, 1);
    allocations_in_a_row = 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_there_is_no_memory_to_read_is_not_malformed),
        cmocka_unit_test(a_link_is_neither_too_long_nor_forged_for_want_of_memory),
        cmocka_unit_test(a_webhooks_address_is_not_judged_without_memory),
        cmocka_unit_test(a_filter_is_whole_or_there_is_none),
        cmocka_unit_test(a_jobs_answer_is_whole_or_there_is_none),
        cmocka_unit_test(an_answer_has_all_its_headers_or_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

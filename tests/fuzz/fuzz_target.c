/* A request's target: path and query are split and decoded, matched with the routes, read as a page, as a
 * cursor of events and as a signed link, or refused with an answer. */
#include "tests/fuzz/fuzz.h"

#include "api/jobfilter.h"
#include "api/links.h"
#include "api/page.h"
#include "api/request.h"
#include "api/router.h"
#include "store/events.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_MAX ((size_t)1 << 20)

static struct store *open_store(void)
{
    static struct store *store;
    char path[256];
    struct error err = {0};

    if (store)
        return store;
    (void)snprintf(path, sizeof(path), "%s/needled.db", fuzz_folder());
    fuzz_promise(store_open(path, true, &store, &err), "a database can be made");
    return store;
}

/* Where a stream or page of events begins: the header Last-Event-ID has the same texts. */
static void resolve(const char *cursor)
{
    int64_t number = -1, row = -1;
    struct error err = {0};
    bool ok = events_resolve(open_store(), "ftjob-1", cursor, &number, &err);

    fuzz_promise_reason(ok, &err);
    fuzz_promise(!ok || number >= 0, "a cursor is no negative number");
    err = (struct error){0};
    ok = events_resolve_row(cursor, &row, &err);
    fuzz_promise_reason(ok, &err);
    fuzz_promise(!ok || row >= 0, "a cursor is no negative row");
}

/* Of no job there is: the statement is made and run. */
static void list(const struct request *request)
{
    const struct store_page page = {.after = "", .limit = 20};
    struct jobfilter filter;
    struct job_record *jobs = NULL;
    size_t count = 0;
    bool has_more = false;
    struct error err = {0};
    const bool ok = jobfilter_read(request, &filter, &err);

    fuzz_promise_reason(ok, &err);
    if (!ok)
        return;
    fuzz_promise(jobs_list(open_store(), &filter.wanted, &page, &jobs, &count, &has_more, &err),
                 err.message);
    fuzz_promise(count == 0 && !has_more, "there is no job");
    jobs_free(jobs, count);
    jobfilter_release(&filter);
}

static void answer(struct request *request)
{
    const struct links links = {.secret = "0123456789abcdef0123456789abcdef"};
    struct store_page page;
    struct error err = {0};
    int64_t size = 0;

    if (!router_match(request)) {
        fuzz_promise(request->response.status == 204 || request->response.bytes != NULL,
                     "a refusal has its answer");
        return;
    }
    fuzz_promise(page_read(request, 20, 100, &page, &err) ? page.limit >= 1 && page.limit <= 100
                                                          : err.message[0] != '\0',
                 "a page is bounded or refused");
    if (request_query(request, "after"))
        resolve(request_query(request, "after"));
    fuzz_promise(!links_check(&links, request, &size), "nobody guesses a signature");
    fuzz_promise(request->response.status == 403, "a forged link is refused as one");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "DELETE", "OPTIONS"};
    char *target = fuzz_text(bytes, size), *query = strchr(target, '?');
    struct request request = {.method = methods[size % COUNT_OF(methods)], .url = target};

    arena_init(&request.arena, ARENA_MAX);
    response_init(&request.response);
    if (query)
        *query++ = '\0';
    request_read_path(&request);
    for (char *rest = NULL, *field = query ? strtok_r(query, "&", &rest) : NULL;
         field && !request.malformed; field = strtok_r(NULL, "&", &rest)) {
        char *value = strchr(field, '=');

        if (value)
            *value++ = '\0';
        (void)request_add_query(&request, field, value); /* malformed says it */
    }
    list(&request);
    answer(&request);
    resolve(target);
    response_release(&request.response);
    arena_release(&request.arena);
    free(target);
    return 0;
}

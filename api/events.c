#include "api/handlers.h"
#include "api/objects.h"
#include "api/page.h"
#include "api/request.h"
#include "api/stream.h"
#include "api/tail.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "store/events.h"
#include "store/jobs.h"

#include <stdio.h>
#include <string.h>

#define EVENTS_DEFAULT 20
#define STREAM_TYPE "text/event-stream"
#define CLOSING_EVENT_S 30 /* see stream.c */

/* ---- what pages and streams share ---- */

static bool wants_stream(const struct request *request, bool *ret_wants, struct error *err)
{
    const char *stream = request_query(request, "stream");

    if (!stream) {
        *ret_wants = text_accepts(request->accept, STREAM_TYPE);
        return true;
    }
    *ret_wants = strcmp(stream, "true") == 0 || strcmp(stream, "1") == 0;
    if (*ret_wants || strcmp(stream, "false") == 0 || strcmp(stream, "0") == 0)
        return true;
    return error_set_param(err, ERR_INVALID, "stream",
                           "stream is '%.40s', 'true' or 'false' is needed", stream);
}

static bool answer_page(struct request *request, struct event_record *events, size_t count,
                        bool has_more, struct error *err)
{
    struct json *data = json_new_array();

    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, objects_event(&events[i]));
    events_free(events, count);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

/* Where the stream starts, or "". The header wins, since a URL stays the same when its reader comes
 * again. */
static const char *read_cursor(const struct request *request, const char **ret_name)
{
    const char *after = request_query(request, "after");

    if (request->last_event_id && request->last_event_id[0]) {
        *ret_name = "Last-Event-ID";
        return request->last_event_id;
    }
    *ret_name = "after";
    return after ? after : "";
}

/* The reason for a refused cursor names where it came from. */
static bool refuse_cursor(struct error *err, const char *name)
{
    if (err->code == ERR_INVALID)
        (void)snprintf(err->param, sizeof(err->param), "%s", name); /* short names */
    return false;
}

/* Ids count up and are kept: one from the future is of another database, and would hide what comes. */
static bool check_reached(int64_t wanted, int64_t newest, const char *name, struct error *err)
{
    return wanted <= newest ||
           error_set_param(err, ERR_INVALID, name,
                           "there is no event %lld yet: the newest is %lld (leave %s out to start "
                           "anew)",
                           (long long)wanted, (long long)newest, name);
}

static bool start_stream(struct request *request, const struct tail_cursor *cursor,
                         struct error *err)
{
    struct stream *stream = NULL;

    if (!request->head && !stream_new(request->services->streams, cursor, request->owner,
                                      request->session, &stream, err))
        return false;
    response_set_stream(&request->response, stream);
    return true;
}

/* ---- of one job ---- */

/* "state,done" as ",state,done,". */
static bool read_types(const struct request *request, char *ret_types, size_t capacity,
                       struct error *err)
{
    const char *at = request_query(request, "types");
    size_t used = 0;

    ret_types[0] = '\0';
    while (at && *at) {
        const size_t size = strcspn(at, ",");
        char type[24];

        (void)snprintf(type, sizeof(type), "%.*s", (int)(size < sizeof(type) ? size : 0), at);
        if (!event_type_is_known(type) || used + size + 3 > capacity)
            return error_set_param(err, ERR_INVALID, "types",
                                   "'%.*s' is no type of event, or comes too often: there is "
                                   "message, metrics, validation, checkpoint, state, done",
                                   (int)(size < 40 ? size : 40), at);
        used += (size_t)snprintf(ret_types + used, capacity - used, "%s%s,", used ? "" : ",", type);
        at += size + (at[size] == ',');
    }
    return true;
}

static bool answer_job_page(struct request *request, struct error *err)
{
    struct tail_cursor wanted; /* for its types alone */
    struct event_record *events = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;

    if (!page_read(request, EVENTS_DEFAULT, LIMIT_EVENT_PAGE, &page, err) ||
        !read_types(request, wanted.types, sizeof(wanted.types), err))
        return false;
    page.ascending = false;
    return events_list(request->store,
                       &(struct events_filter){.job_id = request->params[0], .types = wanted.types},
                       &page, &events, &count, &has_more, err) &&
           answer_page(request, events, count, has_more, err);
}

/* The job's newest event: its number, and whether it is the last there will be. */
static bool find_newest(struct request *request, const struct job_record *job, int64_t *ret_number,
                        bool *ret_last, struct error *err)
{
    struct store_page newest = {.after = "", .limit = 1};
    struct event_record *events = NULL;
    size_t count = 0;
    bool has_more = false;

    if (!events_list(request->store, &(struct events_filter){.job_id = job->id, .types = ""},
                     &newest, &events, &count, &has_more, err))
        return false;
    *ret_number = count == 1 ? events[0].number : 0;
    *ret_last =
        count == 1 && job_state_is_final(job->state) &&
        (strcmp(events[0].type, "done") == 0 ||
         (job->finished_unix_s > 0 && clock_unix_s() - job->finished_unix_s > CLOSING_EVENT_S));
    events_free(events, count);
    return true;
}

static bool answer_job_stream(struct request *request, const struct job_record *job,
                              struct error *err)
{
    struct tail_cursor cursor = {.row = -1};
    const char *name, *after = read_cursor(request, &name);
    int64_t newest = 0;
    bool last = false;

    (void)snprintf(cursor.job_id, sizeof(cursor.job_id), "%s", job->id); /* as long */
    if (after[0] && !events_resolve(request->store, job->id, after, &cursor.number, err))
        return refuse_cursor(err, name);
    if (!find_newest(request, job, &newest, &last, err))
        return false;
    /* Before the end: 204 would hide all there is from a reader that remembers another database. */
    if (!check_reached(cursor.number, newest, name, err))
        return false;
    if (last && cursor.number >= newest) { /* read to its end: the reader need not come again */
        response_set_empty(&request->response, 204);
        return true;
    }
    return start_stream(request, &cursor, err);
}

bool events_handle_list(struct request *request, struct error *err)
{
    struct job_record job = {0};
    bool stream = false, ok;

    if (!wants_stream(request, &stream, err) ||
        !jobs_get(request->store, request->params[0], &job, err)) /* an unknown job is 404 */
        return false;
    ok = stream ? answer_job_stream(request, &job, err) : answer_job_page(request, err);
    job_record_release(&job);
    return ok;
}

/* ---- of all jobs ---- */

static bool answer_all_page(struct request *request, const char *types, struct error *err)
{
    struct event_record *events = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;

    if (!page_read(request, EVENTS_DEFAULT, LIMIT_EVENT_PAGE, &page, err))
        return false;
    page.ascending = false;
    return events_list_all(request->store, types, &page, &events, &count, &has_more, err) &&
           answer_page(request, events, count, has_more, err);
}

bool events_handle_list_all(struct request *request, struct error *err)
{
    struct tail_cursor cursor = {0};
    const char *name, *after = read_cursor(request, &name);
    int64_t newest = 0;
    bool stream = false;

    if (!wants_stream(request, &stream, err) ||
        !read_types(request, cursor.types, sizeof(cursor.types), err))
        return false;
    if (!stream)
        return answer_all_page(request, cursor.types, err);
    if (!events_newest_row(request->store, &newest, err))
        return false;
    cursor.row = newest; /* a first visit hears what comes from now on */
    if (after[0] && !events_resolve_row(after, &cursor.row, err))
        return refuse_cursor(err, name);
    return check_reached(cursor.row, newest, name, err) && start_stream(request, &cursor, err);
}

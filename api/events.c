#include "api/handlers.h"
#include "api/objects.h"
#include "api/page.h"
#include "api/request.h"
#include "api/stream.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "store/events.h"
#include "store/jobs.h"

#include <string.h>

#define EVENTS_DEFAULT 20
#define STREAM_TYPE "text/event-stream"
#define CLOSING_EVENT_S 30 /* see stream.c */

static bool wants_stream(const struct request *request)
{
    const char *stream = request_query(request, "stream");

    if (stream)
        return strcmp(stream, "true") == 0 || strcmp(stream, "1") == 0;
    return text_accepts(request->accept, STREAM_TYPE);
}

static bool answer_page(struct request *request, struct error *err)
{
    struct event_record *events = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;
    struct json *data;

    if (!page_read(request, EVENTS_DEFAULT, LIMIT_EVENT_PAGE, &page, err))
        return false;
    page.ascending = false;
    if (!events_list(request->store, request->params[0], &page, &events, &count, &has_more, err))
        return false;
    data = json_new_array();
    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, objects_event(&events[i]));
    events_free(events, count);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

/* Where the stream starts: the header wins, since a URL stays the same when its reader comes again. */
static bool read_cursor(struct request *request, int64_t *ret_number, struct error *err)
{
    const char *after = request->last_event_id;

    *ret_number = 0;
    if (!after || !after[0])
        after = request_query(request, "after");
    if (!after || !after[0])
        return true;
    return events_resolve(request->store, request->params[0], after, ret_number, err);
}

/* True when everything there will ever be has number <= after. */
static bool is_read_to_its_end(struct request *request, const struct job_record *job, int64_t after,
                               bool *ret_over, struct error *err)
{
    struct store_page newest = {.after = "", .limit = 1};
    struct event_record *events = NULL;
    size_t count = 0;
    bool has_more = false;

    *ret_over = false;
    if (!job_state_is_final(job->state))
        return true;
    if (!events_list(request->store, job->id, &newest, &events, &count, &has_more, err))
        return false;
    if (count == 1 && events[0].number <= after)
        *ret_over =
            strcmp(events[0].type, "done") == 0 ||
            (job->finished_unix_s > 0 && clock_unix_s() - job->finished_unix_s > CLOSING_EVENT_S);
    events_free(events, count);
    return true;
}

static bool answer_stream(struct request *request, const struct job_record *job, struct error *err)
{
    struct stream *stream;
    int64_t after = 0;
    bool over = false;

    if (!read_cursor(request, &after, err) || !is_read_to_its_end(request, job, after, &over, err))
        return false;
    if (over) {
        response_set_empty(&request->response, 204);
        return true;
    }
    if (request->head) {
        response_set_stream(&request->response, NULL);
        return true;
    }
    stream = stream_new(request->services->streams, job->id, after);
    if (!stream)
        return error_set(err, ERR_NO_MEMORY, "no memory for the stream");
    response_set_stream(&request->response, stream);
    return true;
}

bool events_handle_list(struct request *request, struct error *err)
{
    struct job_record job = {0};
    bool ok;

    if (!jobs_get(request->store, request->params[0], &job, err)) /* an unknown job is 404 */
        return false;
    ok = wants_stream(request) ? answer_stream(request, &job, err) : answer_page(request, err);
    job_record_release(&job);
    return ok;
}

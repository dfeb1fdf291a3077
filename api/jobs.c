#include "api/handlers.h"
#include "api/jobfilter.h"
#include "api/objects.h"
#include "api/page.h"
#include "api/request.h"
#include "api/router.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/scheduler.h"
#include "store/checkpoints.h"
#include "store/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS_DEFAULT 20
#define CHECKPOINTS_DEFAULT 10

/* A create of the platform's shape is answered 201, as there; all else 200. */
static unsigned status_of(const struct request *request, const struct job_record *job)
{
    return request->route->handle == jobs_handle_create && job->inputs_json ? 201 : 200;
}

static bool answer_job(struct request *request, const char *id, struct error *err)
{
    struct job_record job = {0};
    struct job_outlook outlook;
    bool ok;

    if (!jobs_get(request->store, id, &job, err))
        return false;
    ok = scheduler_look_ahead(request->services->scheduler, request->store, &job, 1, &outlook,
                              err) &&
         response_set_json(&request->response, status_of(request, &job),
                           objects_job(&job, &outlook), err);
    job_record_release(&job);
    return ok;
}

bool jobs_handle_create(struct request *request, struct error *err)
{
    const struct job_terms terms = {.owner = request->owner,
                                    .jobs_max = request->jobs_max,
                                    .idempotency_key = request->idempotency_key,
                                    .asked_before = request->asked_before};
    struct job_made made;
    struct json *body = NULL;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = scheduler_submit(request->services->scheduler, body, &terms, &made, err);
    json_free(body);
    if (!ok || !answer_job(request, made.id, err))
        return false;
    request->response.replayed = made.repeated;
    return true;
}

/* ---- lists --------------------------------------------------------------------------------------- */

bool jobs_handle_list(struct request *request, struct error *err)
{
    const char *counts = request_query(request, "count");
    struct job_outlook outlooks[LIMIT_EVENT_PAGE];
    struct jobfilter filter;
    struct job_record *jobs = NULL;
    struct store_page page;
    struct json *data, *list;
    size_t count = 0;
    int64_t total = 0;
    bool has_more = false, ok;

    if (!page_read(request, JOBS_DEFAULT, LIMIT_EVENT_PAGE, &page, err))
        return false;
    if (counts && strcmp(counts, "true") != 0 && strcmp(counts, "false") != 0)
        return error_set_param(err, ERR_INVALID, "count",
                               "count is '%.40s', 'true' or 'false' is needed", counts);
    counts = counts && counts[0] == 't' ? counts : NULL;
    page.ascending = false;
    if (!jobfilter_read(request, &filter, err))
        return false;
    ok = (!counts || jobs_count(request->store, &filter.wanted, &total, err)) &&
         jobs_list(request->store, &filter.wanted, &page, &jobs, &count, &has_more, err);
    jobfilter_release(&filter);
    if (!ok)
        return false;
    ok = scheduler_look_ahead(request->services->scheduler, request->store, jobs, count, outlooks,
                              err);
    if (ok) {
        data = json_new_array();
        for (size_t i = 0; i < count; i++)
            json_add(data, NULL, objects_job(&jobs[i], &outlooks[i]));
        list = page_answer(data, has_more);
        if (counts)
            json_add_int(list, "total_count", total);
        ok = response_set_json(&request->response, 200, list, err);
    }
    jobs_free(jobs, count);
    return ok;
}

bool jobs_handle_get(struct request *request, struct error *err)
{
    return answer_job(request, request->params[0], err);
}

bool jobs_handle_move(struct request *request, struct error *err)
{
    struct json *body = NULL;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = scheduler_move(request->services->scheduler, request->params[0], body, err);
    json_free(body);
    return ok && answer_job(request, request->params[0], err);
}

bool jobs_handle_cancel(struct request *request, struct error *err)
{
    if (!scheduler_cancel(request->services->scheduler, request->params[0], err))
        return false;
    return answer_job(request, request->params[0], err);
}

bool jobs_handle_pause(struct request *request, struct error *err)
{
    return scheduler_pause(request->services->scheduler, request->params[0], err) &&
           answer_job(request, request->params[0], err);
}

bool jobs_handle_resume(struct request *request, struct error *err)
{
    return scheduler_resume(request->services->scheduler, request->params[0], err) &&
           answer_job(request, request->params[0], err);
}

bool checkpoints_handle_list(struct request *request, struct error *err)
{
    struct checkpoint_record *checkpoints = NULL;
    struct job_record job = {0};
    struct store_page page;
    size_t count = 0;
    bool has_more = false;
    struct json *data;

    if (!page_read(request, CHECKPOINTS_DEFAULT, LIMIT_EVENT_PAGE, &page, err))
        return false;
    page.ascending = false;
    if (!jobs_get(request->store, request->params[0], &job, err)) /* an unknown job is 404 */
        return false;
    job_record_release(&job);
    if (!checkpoints_list(request->store, request->params[0], &page, &checkpoints, &count,
                          &has_more, err))
        return false;
    data = json_new_array();
    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, objects_checkpoint(&checkpoints[i]));
    free(checkpoints);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

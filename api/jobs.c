#include "api/handlers.h"
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
#define METADATA_PAIRS_MAX 16
#define STATES_BYTES 96 /* all seven, each between commas */

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

/* A name twice would ask for two values of it, which no job has. */
static bool check_new_name(const struct json *pairs, const char *name, struct error *err)
{
    for (const struct json *pair = json_first(pairs); pair; pair = json_next(pair)) {
        if (strcmp(json_text(json_at(pair, 0)), name) == 0)
            return error_set_param(err, ERR_INVALID, "metadata",
                                   "'metadata[%.64s]' is asked for twice", name);
    }
    return true;
}

/* "metadata[name]=value" as a pair. */
static bool add_pair(struct json *pairs, const struct query_field *field, struct error *err)
{
    const char *name = field->name + strlen("metadata[");
    const size_t length = strlen(name);
    struct json *pair;
    char *key;
    bool ok;

    if (length < 2 || name[length - 1] != ']')
        return error_set_param(err, ERR_INVALID, "metadata",
                               "'%.80s' is no filter: 'metadata[name]=value' is needed",
                               field->name);
    key = strndup(name, length - 1);
    if (!key)
        return error_set(err, ERR_NO_MEMORY, "no memory for a filter");
    ok = check_new_name(pairs, key, err);
    if (ok) {
        pair = json_new_array();
        json_add_string(pair, NULL, key);
        json_add_string(pair, NULL, field->value);
        json_add(pairs, NULL, pair);
    }
    free(key);
    return ok;
}

static bool read_metadata(const struct request *request, struct jobs_filter *filter,
                          struct json *pairs, struct error *err)
{
    for (const struct query_field *field = request->query; field; field = field->next) {
        if (strncmp(field->name, "metadata[", strlen("metadata[")) == 0) {
            if (!add_pair(pairs, field, err))
                return false;
        } else if (strcmp(field->name, "metadata") == 0) {
            if (strcmp(field->value, "null") != 0)
                return error_set_param(err, ERR_INVALID, "metadata",
                                       "metadata is '%.40s': 'metadata=null' (jobs without any) or "
                                       "'metadata[name]=value' is needed",
                                       field->value);
            filter->without_metadata = true;
        }
    }
    if (json_count(pairs) > METADATA_PAIRS_MAX)
        return error_set_param(err, ERR_INVALID, "metadata",
                               "%zu pairs of metadata are asked for, a job has at most %d",
                               json_count(pairs), METADATA_PAIRS_MAX);
    if (filter->without_metadata && json_count(pairs) > 0)
        return error_set_param(err, ERR_INVALID, "metadata",
                               "'metadata=null' and 'metadata[name]=value' do not go together");
    return true;
}

/* "queued,paused" as the filter has them, ",queued,paused,"; "" where none is asked for. */
static bool read_states(const struct request *request, char ret_states[STATES_BYTES],
                        struct error *err)
{
    const char *at = request_query(request, "status");
    size_t used = 0;

    ret_states[0] = '\0';
    while (at) {
        char name[24];
        const size_t length = strcspn(at, ",");
        enum job_state state;

        (void)snprintf(name, sizeof(name), "%.*s", length < sizeof(name) ? (int)length : 0, at);
        if (!job_state_from_name(name, &state))
            return error_set_param(err, ERR_INVALID, "status",
                                   "status is '%.40s', some of validating_files, queued, running, "
                                   "paused, succeeded, failed, cancelled are needed, with commas",
                                   at);
        if (!strstr(ret_states, name)) /* none is a part of another */
            used += (size_t)snprintf(ret_states + used, STATES_BYTES - used, "%s%s,",
                                     used ? "" : ",", name);
        at = at[length] ? at + length + 1 : NULL;
    }
    return true;
}

/* *ret_pairs: the filter's text, for the caller to free; ret_states is borrowed by the filter. */
static bool read_filter(const struct request *request, struct jobs_filter *filter, char **ret_pairs,
                        char ret_states[STATES_BYTES], struct error *err)
{
    struct json *pairs = json_new_array();
    bool ok;

    filter->search = request_query(request, "search");
    ok = read_states(request, ret_states, err) && read_metadata(request, filter, pairs, err);
    if (ret_states[0])
        filter->states = ret_states;
    if (ok && json_count(pairs) > 0)
        ok = json_print_text(pairs, ret_pairs, err);
    json_free(pairs);
    return ok;
}

bool jobs_handle_list(struct request *request, struct error *err)
{
    struct job_outlook outlooks[LIMIT_EVENT_PAGE];
    struct jobs_filter filter = {0};
    char states[STATES_BYTES], *pairs = NULL;
    struct job_record *jobs = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false, ok;
    struct json *data;

    if (!page_read(request, JOBS_DEFAULT, LIMIT_EVENT_PAGE, &page, err))
        return false;
    page.ascending = false;
    if (!read_filter(request, &filter, &pairs, states, err))
        return false;
    filter.metadata_json = pairs;
    ok = jobs_list(request->store, &filter, &page, &jobs, &count, &has_more, err);
    free(pairs);
    if (!ok)
        return false;
    ok = scheduler_look_ahead(request->services->scheduler, request->store, jobs, count, outlooks,
                              err);
    if (ok) {
        data = json_new_array();
        for (size_t i = 0; i < count; i++)
            json_add(data, NULL, objects_job(&jobs[i], &outlooks[i]));
        ok = response_set_json(&request->response, 200, page_answer(data, has_more), err);
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

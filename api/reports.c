#include "api/handlers.h"
#include "api/request.h"
#include "api/text.h"
#include "daemon/base/json.h"
#include "daemon/sched/scheduler.h"

#include <inttypes.h>
#include <stdio.h>

#define PROBLEMS_DEFAULT 100
#define PROBLEMS_MAX 1000
#define MAX_LEN_MAX INT32_MAX

/* A whole number of the query; *ret_number stays when it is not there. */
static bool read_count(const struct request *request, const char *name, int64_t min, int64_t max,
                       int64_t *ret_number, struct error *err)
{
    const char *text = request_query(request, name);
    int64_t number = 0;

    if (!text)
        return true;
    if (!text_read_number(text, max, &number) || number < min)
        return error_set_param(err, ERR_INVALID, name,
                               "%s is '%.40s', a number from %lld to %lld is needed", name, text,
                               (long long)min, (long long)max);
    *ret_number = number;
    return true;
}

static bool read_question(const struct request *request, struct inspect_request *question,
                          struct error *err)
{
    *question = (struct inspect_request){
        .file_id = request->params[0],
        .model = request_query(request, "model"),
        .data_rules = request_query(request, "data_rules"),
        .overlong = request_query(request, "overlong"),
    };
    return read_count(request, "max_len", 1, MAX_LEN_MAX, &question->max_len, err);
}

bool files_handle_report(struct request *request, struct error *err)
{
    int64_t after = 0, limit = PROBLEMS_DEFAULT;
    struct inspect_request question;
    struct json *answer = NULL;

    if (!read_question(request, &question, err) ||
        !read_count(request, "problems_after", 0, INT32_MAX, &after, err) ||
        !read_count(request, "problems_limit", 0, PROBLEMS_MAX, &limit, err))
        return false;
    question.validation_file = request_query(request, "validation_file");
    question.problems_after = (size_t)after;
    question.problems_limit = (size_t)limit;
    return scheduler_report(request->services->scheduler, &question, request->services->stopping,
                            &answer, err) &&
           response_set_json(&request->response, 200, answer, err);
}

bool files_handle_example(struct request *request, struct error *err)
{
    struct inspect_request question;
    struct json *answer = NULL;
    int64_t line = 0;

    if (!text_read_number(request->params[1], INT32_MAX, &line) || line == 0)
        return error_set_param(err, ERR_INVALID, "line",
                               "'%.40s' is no line: a number from 1 to %" PRId32 " is needed",
                               request->params[1], (int32_t)INT32_MAX);
    if (!read_question(request, &question, err))
        return false;
    question.line = (size_t)line;
    return scheduler_example(request->services->scheduler, &question, request->services->stopping,
                             &answer, err) &&
           response_set_json(&request->response, 200, answer, err);
}

bool estimates_handle_create(struct request *request, struct error *err)
{
    struct json *body = NULL, *answer = NULL;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = scheduler_estimate(request->services->scheduler, body, request->services->stopping,
                            &answer, &request->lines, err);
    json_free(body);
    return ok && response_set_json(&request->response, 200, answer, err);
}

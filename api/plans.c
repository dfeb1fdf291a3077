#include "api/handlers.h"
#include "api/request.h"
#include "daemon/base/json.h"
#include "store/files.h"
#include "store/jobs.h"

/* What a key may have at once; null: no limit. There are no generated examples: 0. */
static struct json *limits_json(int64_t jobs_max, int64_t bytes_max)
{
    struct json *object = json_new_object();

    if (jobs_max > 0)
        json_add_int(object, "jobs", jobs_max);
    else
        json_add_null(object, "jobs");
    if (bytes_max > 0)
        json_add_int(object, "bytes", bytes_max);
    else
        json_add_null(object, "bytes");
    json_add_int(object, "examples", 0);
    return object;
}

bool plans_handle_list(struct request *request, struct error *err)
{
    struct json *plan = json_new_object(), *data = json_new_array(), *answer = json_new_object();

    json_add_string(plan, "id", "local");
    json_add_string(plan, "object", "plan");
    json_add_string(plan, "name", "local");
    json_add_int(plan, "price", 0);
    json_add(plan, "limits", limits_json(0, 0));
    json_add(data, NULL, plan);
    json_add_string(answer, "object", "list");
    json_add(answer, "data", data);
    json_add_bool(answer, "has_more", false);
    return response_set_json(&request->response, 200, answer, err);
}

bool plans_handle_billing(struct request *request, struct error *err)
{
    int64_t jobs = 0, bytes = 0;
    struct json *usage, *answer;

    if (!jobs_count_unfinished(request->store, request->owner, &jobs, err) ||
        !files_stored_bytes(request->store, request->owner, &bytes, err))
        return false;
    usage = json_new_object();
    json_add_int(usage, "jobs", jobs);
    json_add_int(usage, "bytes", bytes);
    json_add_int(usage, "examples", 0);
    answer = json_new_object();
    json_add_string(answer, "object", "billing");
    json_add_string(answer, "plan", "local");
    json_add(answer, "limits", limits_json(request->jobs_max, request->bytes_max));
    json_add(answer, "usage", usage);
    json_add_null(answer, "period_end");
    return response_set_json(&request->response, 200, answer, err);
}

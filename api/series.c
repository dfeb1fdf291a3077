#include "api/handlers.h"
#include "api/request.h"
#include "api/text.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "store/jobs.h"
#include "store/series.h"

#include <inttypes.h>
#include <stdio.h>

#define POINTS_DEFAULT 1000
#define STEP_MAX INT64_C(1000000000000)

static const char *const columns[SERIES_COLUMN_COUNT] = {
    [SERIES_TRAIN_LOSS] = "train_loss",
    [SERIES_TRAIN_ACCURACY] = "train_mean_token_accuracy",
    [SERIES_LEARNING_RATE] = "learning_rate",
    [SERIES_GRAD_NORM] = "grad_norm",
    [SERIES_TOKENS_PER_SECOND] = "tokens_per_second",
    [SERIES_TIME] = "time",
    [SERIES_MEMORY_USED] = "memory_used_bytes",
};

static const char *const valid_columns[SERIES_VALID_COLUMN_COUNT] = {
    [SERIES_VALID_LOSS] = "full_valid_loss",
    [SERIES_VALID_ACCURACY] = "full_valid_mean_token_accuracy",
};

/* *number keeps its value where the field is not given. */
static bool read_count(const struct request *request, const char *name, int64_t min, int64_t max,
                       int64_t *number, struct error *err)
{
    const char *text = request_query(request, name);
    int64_t read = 0;

    if (!text)
        return true;
    if (!text_read_number(text, max, &read) || read < min)
        return error_set_param(err, ERR_INVALID, name,
                               "%s is '%.40s', a whole number from %" PRId64 " to %" PRId64
                               " is needed",
                               name, text, min, max);
    *number = read;
    return true;
}

static struct json *rows_json(const struct series *series)
{
    struct json *object = json_new_object(), *steps = json_new_array();

    for (size_t i = 0; i < series->count; i++)
        json_add_int(steps, NULL, series->rows[i].step);
    json_add(object, "step", steps);
    for (size_t column = 0; column < SERIES_COLUMN_COUNT; column++) {
        struct json *values = json_new_array();

        for (size_t i = 0; i < series->count; i++)
            json_add_double(values, NULL, series->rows[i].values[column]);
        json_add(object, columns[column], values);
    }
    return object;
}

static struct json *valid_json(const struct series *series)
{
    struct json *object = json_new_object(), *steps = json_new_array();

    for (size_t i = 0; i < series->valid_count; i++)
        json_add_int(steps, NULL, series->valid_rows[i].step);
    json_add(object, "step", steps);
    for (size_t column = 0; column < SERIES_VALID_COLUMN_COUNT; column++) {
        struct json *values = json_new_array();

        for (size_t i = 0; i < series->valid_count; i++)
            json_add_double(values, NULL, series->valid_rows[i].values[column]);
        json_add(object, valid_columns[column], values);
    }
    return object;
}

static bool answer(struct request *request, const struct series_wish *wish,
                   const struct series *series, struct error *err)
{
    struct json *object = json_new_object();

    json_add_string(object, "object", "fine_tuning.job.metrics");
    json_add_string(object, "fine_tuning_job_id", wish->job_id);
    json_add_int(object, "step_count", series->step_count);
    json_add_int(object, "point_count", (int64_t)series->count);
    json_add_int(object, "last_event_number", series->last_number);
    json_add(object, "columns", rows_json(series));
    json_add(object, "validation", valid_json(series));
    return response_set_json(&request->response, 200, object, err);
}

bool series_handle_get(struct request *request, struct error *err)
{
    struct series_wish wish = {.job_id = request->params[0], .first_step = 1};
    struct job_record job = {0};
    struct series series = {0};
    int64_t points = POINTS_DEFAULT;
    bool ok;

    if (!jobs_get(request->store, wish.job_id, &job, err)) /* an unknown job is 404 */
        return false;
    wish.last_step = job.completed_steps;
    job_record_release(&job);
    if (!read_count(request, "points", 1, LIMIT_SERIES_POINTS, &points, err) ||
        !read_count(request, "first_step", 1, STEP_MAX, &wish.first_step, err) ||
        !read_count(request, "last_step", 1, STEP_MAX, &wish.last_step, err))
        return false;
    wish.point_count = (size_t)points;
    if (wish.last_step < wish.first_step) /* of no step yet */
        return answer(request, &wish, &series, err);
    if (!series_read(request->store, &wish, &series, err))
        return false;
    ok = answer(request, &wish, &series, err);
    series_release(&series);
    return ok;
}

#include "daemon/sched/inspect.h"

#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/model/tokenizer.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/keeping.h"
#include "daemon/sched/request.h"
#include "daemon/train/survey.h"
#include "store/files.h"
#include "store/models.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_NS INT64_C(60000000000) /* a report says what it has read by then */
#define PIECE_SIZE 128                 /* of a token's text */
#define HISTOGRAM_FIRST 32             /* tokens: the first part, each further one twice as wide */

static const char *const level_names[] = {"fatal", "refused", "warning"};
static_assert(COUNT_OF(level_names) == PROBLEM_LEVEL_COUNT, "every level has its name");

/* What both kinds of question need. */
struct inspection {
    const struct inspect_request *request;
    struct file_record file, other;
    char path[LIMIT_PATH_BYTES], other_path[LIMIT_PATH_BYTES];
    char base[STORE_NAME_SIZE]; /* of the model; "" none was named */
    struct tokenizer *tokenizer;
    struct hyperparameters hyper;
    struct model_info info;
};

/* ---- what was asked ----------------------------------------------------------------------------- */

static bool find_file(const struct asks_parts *parts, const char *id, const char *param,
                      struct file_record *ret_file, char *ret_path, struct error *err)
{
    if (files_get(parts->store, id, ret_file, err) &&
        dataset_path(ret_path, LIMIT_PATH_BYTES, parts->options->state_folder, id, err) &&
        keeping_check_file(ret_path, err))
        return true;
    if (param && err)
        (void)snprintf(err->param, sizeof(err->param), "%s", param);
    return false;
}

/* The settings go through the reader of a job's own: the same names, the same refusals. */
static bool read_settings(struct inspection *inspection, struct error *err)
{
    const struct inspect_request *request = inspection->request;
    struct json *object = json_new_object();
    char *text = NULL;
    bool ok;

    if (request->data_rules)
        json_add_string(object, "data_rules", request->data_rules);
    if (request->overlong)
        json_add_string(object, "overlong", request->overlong);
    if (request->max_len > 0)
        json_add_int(object, "max_len", request->max_len);
    ok = json_print_text(object, &text, err) && request_hyper_parse(text, &inspection->hyper, err);
    json_free(object);
    free(text);
    return ok;
}

/* A model that was made here stands for its base. */
static bool open_model(const struct asks_parts *parts, struct inspection *inspection,
                       struct error *err)
{
    const struct inspect_request *request = inspection->request;
    struct request settled = {.model = inspection->base,
                              .max_len_given = request->max_len > 0,
                              .hyper = inspection->hyper};
    const char *folder = parts->options->models_folder;
    struct model_record model;
    char base[LIMIT_PATH_BYTES];
    struct error why = {0};
    const bool tuned = models_get(parts->store, request->model, &model, &why);

    if (!tuned && why.code != ERR_NOT_FOUND) {
        *err = why;
        return false;
    }
    (void)snprintf(inspection->base, sizeof(inspection->base), "%s",
                   tuned ? model.base_model : request->model);
    if (!bases_inspect(folder, inspection->base, &inspection->info, err) ||
        !request_fit_base(&settled, &inspection->info, err) ||
        !bases_find(folder, inspection->base, base, sizeof(base), err))
        return false;
    inspection->hyper = settled.hyper;
    return model_open_tokenizer(base, &inspection->tokenizer, err);
}

static bool open_inspection(const struct asks_parts *parts, struct inspection *inspection,
                            struct error *err)
{
    const struct inspect_request *request = inspection->request;

    if (!find_file(parts, request->file_id, NULL, &inspection->file, inspection->path, err) ||
        (request->validation_file && !find_file(parts, request->validation_file, "validation_file",
                                                &inspection->other, inspection->other_path, err)) ||
        !read_settings(inspection, err))
        return false;
    if (request->model)
        return open_model(parts, inspection, err);
    if (request->max_len > 0 || request->overlong)
        return error_set_param(err, ERR_INVALID, "model",
                               "'model' is missing: without one there are no tokens that "
                               "'max_len' or 'overlong' could be about");
    return true;
}

static struct dataset_options options_of(const struct inspection *inspection)
{
    return (struct dataset_options){
        .rules = inspection->hyper.data_rules,
        .overlong = inspection->hyper.overlong,
        .max_len = inspection->hyper.max_len,
        .vocab_size = inspection->tokenizer ? inspection->info.vocab_size : 1,
        .label_limit = inspection->info.out_vocab,
    };
}

static void add_settings(const struct inspection *inspection, struct json *object)
{
    struct json *hyper = request_hyper_json(&inspection->hyper);

    json_add_string(object, "file_id", inspection->file.id);
    json_add_string(object, "filename", inspection->file.filename);
    json_add_string(object, "model", inspection->request->model);
    if (inspection->tokenizer) {
        json_add_int(object, "max_len", (int64_t)inspection->hyper.max_len);
        json_add(object, "overlong", json_copy(json_member(hyper, "overlong")));
    } else {
        json_add_null(object, "max_len");
        json_add_null(object, "overlong");
    }
    json_add(object, "data_rules", json_copy(json_member(hyper, "data_rules")));
    json_free(hyper);
}

static struct json *problem_json(const struct problem *problem)
{
    struct json *object = json_new_object();

    json_add_string(object, "level", level_names[problem->level]);
    json_add_int(object, "line", (int64_t)problem->line);
    json_add_int(object, "column", (int64_t)problem->column);
    json_add_string(object, "field", problem->field);
    json_add_string(object, "rule", problem->rule);
    json_add_string(object, "reason", problem->reason);
    return object;
}

/* ---- reports ------------------------------------------------------------------------------------ */

struct patience {
    const atomic_bool *stop;
    int64_t until_ns;
};

static bool goes_on(void *context)
{
    const struct patience *patience = context;

    /* A hint to end early; nothing else is read on its account. */
    return !(patience->stop && atomic_load_explicit(patience->stop, memory_order_relaxed)) &&
           clock_monotonic_ns() < patience->until_ns;
}

static struct json *histogram_json(const struct survey *survey)
{
    struct json *array = json_new_array();
    size_t from = 1, to = HISTOGRAM_FIRST;

    while (from <= survey->report.longest) {
        struct json *part = json_new_object();
        uint64_t count = 0;

        for (size_t length = from; length <= to && length <= SURVEY_LENGTH_MAX; length++)
            count += survey->lengths[length];
        json_add_int(part, "from", (int64_t)from);
        if (to < SURVEY_LENGTH_MAX)
            json_add_int(part, "to", (int64_t)to);
        else
            json_add_null(part, "to"); /* and all that are longer */
        json_add_int(part, "lines", (int64_t)count);
        json_add(array, NULL, part);
        if (to >= SURVEY_LENGTH_MAX)
            break;
        from = to + 1;
        to *= 2;
    }
    return array;
}

static struct json *tokens_json(const struct survey *survey)
{
    const struct dataset_report *report = &survey->report;
    struct json *object;

    if (!survey->lengths)
        return json_new_null();
    object = json_new_object();
    json_add_int(object, "kept", (int64_t)report->token_count);
    json_add_int(object, "trained", (int64_t)report->target_count);
    json_add_int(object, "longest", (int64_t)report->longest);
    json_add_int(object, "longest_line", (int64_t)survey->longest_line);
    json_add_double(
        object, "mean",
        survey->measured_count ? (double)survey->length_total / (double)survey->measured_count : 0);
    json_add_int(object, "p50", (int64_t)survey_percentile(survey, 50));
    json_add_int(object, "p90", (int64_t)survey_percentile(survey, 90));
    json_add_int(object, "p99", (int64_t)survey_percentile(survey, 99));
    json_add_int(object, "overlong_lines", (int64_t)report->overlong_count);
    json_add_int(object, "lines_without_target", (int64_t)report->targetless_count);
    json_add(object, "histogram", histogram_json(survey));
    return object;
}

static struct json *problems_json(const struct survey *survey, size_t after)
{
    const size_t *counts = survey->report.problem_count;
    struct json *object = json_new_object(), *data = json_new_array();

    for (size_t i = 0; i < survey->problem_count; i++)
        json_add(data, NULL, problem_json(&survey->problems[i]));
    json_add_int(object, "total", (int64_t)survey->problem_total);
    json_add_int(object, "fatal", (int64_t)counts[PROBLEM_FATAL]);
    json_add_int(object, "refused", (int64_t)counts[PROBLEM_STRICT]);
    json_add_int(object, "warnings", (int64_t)counts[PROBLEM_WARNING]);
    json_add_int(object, "after", (int64_t)after);
    json_add_bool(object, "has_more", after + survey->problem_count < survey->problem_total);
    json_add(object, "data", data);
    return object;
}

static struct json *pairs_json(const struct survey_pairs *pairs, const char *other_name)
{
    struct json *object = json_new_object(), *data = json_new_array();

    for (size_t i = 0; i < pairs->count && i < SURVEY_PAIRS_MAX; i++) {
        struct json *pair = json_new_object();

        json_add_int(pair, "line", (int64_t)pairs->shown[i].line);
        json_add_int(pair, other_name, (int64_t)pairs->shown[i].other);
        json_add(data, NULL, pair);
    }
    json_add_int(object, "count", (int64_t)pairs->count);
    json_add_bool(object, "has_more", pairs->count > SURVEY_PAIRS_MAX);
    json_add(object, "data", data);
    return object;
}

/* Whether a job would take the file, and if not, why. */
static void add_verdict(const struct inspection *inspection, const struct survey *survey,
                        struct json *object)
{
    struct dataset_report *report = malloc(sizeof(*report));
    struct error refusal = {0};
    bool accepted;

    if (!report)
        return; /* the answer fails for the same reason */
    *report = survey->report;
    if (!inspection->tokenizer)
        report->target_count = report->example_count; /* not known: any line is taken to have one */
    accepted = dataset_report_accept(report, false, inspection->hyper.data_rules, &refusal);
    json_add_bool(object, "accepted", accepted);
    json_add_string(object, "refusal", accepted ? NULL : refusal.message);
    free(report);
}

static struct json *survey_json(const struct inspection *inspection, const struct survey *survey)
{
    const struct dataset_report *report = &survey->report;
    struct json *object = json_new_object();

    json_add_string(object, "object", "file.report");
    add_settings(inspection, object);
    json_add_bool(object, "complete", survey->complete);
    add_verdict(inspection, survey, object);
    json_add_int(object, "lines", (int64_t)report->line_count);
    json_add_int(object, "blank_lines", (int64_t)report->blank_count);
    json_add_int(object, "examples", (int64_t)report->example_count);
    json_add_int(object, "skipped_lines", (int64_t)report->skipped_count);
    json_add(object, "tokens", tokens_json(survey));
    json_add(object, "problems", problems_json(survey, inspection->request->problems_after));
    json_add(object, "duplicates", pairs_json(&survey->inside, "same_as"));
    json_add_string(object, "validation_file", inspection->request->validation_file);
    json_add(object, "shared",
             inspection->request->validation_file ? pairs_json(&survey->between, "validation_line")
                                                  : json_new_null());
    json_add_bool(object, "comparison_limited", survey->pairs_limited);
    return object;
}

bool inspect_report(const struct asks_parts *parts, void *arguments, struct error *err)
{
    struct inspect_ask *ask = arguments;
    struct inspection inspection = {.request = ask->request};
    struct patience patience = {parts->stop, clock_monotonic_ns() + REPORT_NS};
    struct survey *survey = calloc(1, sizeof(*survey));
    bool ok = false;

    if (!survey)
        return error_set(err, ERR_NO_MEMORY, "no memory for a report");
    if (!open_inspection(parts, &inspection, err))
        goto out;
    const struct survey_options options = {
        .path = inspection.path,
        .other_path = ask->request->validation_file ? inspection.other_path : NULL,
        .tokenizer = inspection.tokenizer,
        .reading = options_of(&inspection),
        .problems_after = ask->request->problems_after,
        .problems_limit = ask->request->problems_limit,
        .goes_on = goes_on,
        .context = &patience,
    };
    ok = survey_read(&options, survey, err);
    if (ok)
        ask->answer = survey_json(&inspection, survey);
    survey_release(survey);
out:
    tokenizer_close(inspection.tokenizer);
    free(survey);
    return ok;
}

/* ---- single lines ------------------------------------------------------------------------------- */

struct shown {
    const struct inspection *inspection;
    struct patience patience;
    struct json *object, *problems;
    bool taken;
};

static void take_problem(void *context, const struct problem *problem)
{
    struct shown *shown = context;

    json_add(shown->problems, NULL, problem_json(problem));
}

static bool line_goes_on(void *context)
{
    struct shown *shown = context;

    return goes_on(&shown->patience);
}

/* A NUL would end the text: U+2400, its picture, stands for it. */
static void add_text(struct json *object, const char *name, const struct buf *text)
{
    const char *at = text->data, *end = text->data + text->size;
    struct buf shown;

    buf_init(&shown, 3 * LIMIT_EXAMPLE_BYTES);
    while (text->size && at < end) {
        size_t size = strnlen(at, (size_t)(end - at));

        buf_append(&shown, at, size);
        at += size;
        if (at < end) {
            buf_append_text(&shown, "\xe2\x90\x80");
            at++;
        }
    }
    json_add_string(object, name, shown.size ? shown.data : "");
    buf_release(&shown);
}

static struct json *token_array(const struct inspection *inspection, const struct example *example)
{
    struct json *tokens = json_new_array();
    char piece[PIECE_SIZE];

    for (size_t i = 0; i < example->id_count && i < LIMIT_EXAMPLE_TOKENS; i++) {
        struct json *token = json_new_object();

        tokenizer_piece(inspection->tokenizer, example->ids[i], piece, sizeof(piece));
        json_add_int(token, "id", (int64_t)example->ids[i]);
        json_add_string(token, "piece", piece);
        json_add_int(token, "mask", i < example->prompt_count ? 0 : 1);
        json_add(tokens, NULL, token);
    }
    return tokens;
}

static bool look(void *context, const struct dataset_view *view, struct error *err)
{
    struct shown *shown = context;
    const struct example *example = view->example;
    size_t size = view->prompt->size + view->target->size;

    if (size > LIMIT_EXAMPLE_BYTES)
        return error_set_param(err, ERR_LIMIT, "line",
                               "line %zu has %zu bytes as text, up to %zu are shown", example->line,
                               size, LIMIT_EXAMPLE_BYTES);
    shown->taken = view->taken;
    add_text(shown->object, "prompt", view->prompt);
    add_text(shown->object, "target", view->target);
    if (!example->ids)
        return true;
    json_add_int(shown->object, "token_count", (int64_t)view->length);
    json_add_int(shown->object, "kept_count", (int64_t)example->id_count);
    json_add_int(shown->object, "trained_count",
                 (int64_t)(example->id_count - example->prompt_count));
    json_add_bool(shown->object, "has_more_tokens", example->id_count > LIMIT_EXAMPLE_TOKENS);
    json_add(shown->object, "tokens", token_array(shown->inspection, example));
    return true;
}

/* What a line that no job gets does not have, and tokens without a model. */
static void add_absent(struct json *object)
{
    static const char *const names[] = {"prompt",     "target",        "token_count",
                                        "kept_count", "trained_count", "has_more_tokens",
                                        "tokens"};

    for (size_t i = 0; object && i < COUNT_OF(names); i++) {
        if (!json_member(object, names[i]))
            json_add_null(object, names[i]);
    }
}

static bool show_line(struct shown *shown, struct error *err)
{
    const struct inspection *inspection = shown->inspection;
    const struct problem_sink sink = {take_problem, shown};
    const struct dataset_watch watch = {
        .look = look, .goes_on = line_goes_on, .context = shown, .shows_refused = true};
    struct dataset_options options = options_of(inspection);
    struct dataset_report *report = calloc(1, sizeof(*report));
    bool ok;

    if (!report)
        return error_set(err, ERR_NO_MEMORY, "no memory for a line's report");
    report->sink = &sink;
    options.only_line = inspection->request->line;
    ok = dataset_walk(inspection->path, inspection->tokenizer, &options, &watch, report, err);
    if (ok && report->line_count < options.only_line)
        ok = error_set_param(err, ERR_NOT_FOUND, "line", "there is no line %zu, the file has %zu",
                             options.only_line, report->line_count);
    json_add_int(shown->object, "line", (int64_t)options.only_line);
    json_add_bool(shown->object, "usable", shown->taken);
    free(report);
    return ok;
}

bool inspect_example(const struct asks_parts *parts, void *arguments, struct error *err)
{
    struct inspect_ask *ask = arguments;
    struct inspection inspection = {.request = ask->request};
    struct shown shown = {.inspection = &inspection,
                          .patience = {parts->stop, clock_monotonic_ns() + REPORT_NS},
                          .object = json_new_object(),
                          .problems = json_new_array()};
    bool ok = open_inspection(parts, &inspection, err);

    if (ok) {
        json_add_string(shown.object, "object", "file.example");
        add_settings(&inspection, shown.object);
        ok = show_line(&shown, err);
    }
    add_absent(shown.object);
    json_add(shown.object, "problems", shown.problems);
    tokenizer_close(inspection.tokenizer);
    if (ok)
        ask->answer = shown.object;
    else
        json_free(shown.object);
    return ok;
}

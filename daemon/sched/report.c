#include "daemon/sched/report.h"

#include "daemon/base/buf.h"
#include "daemon/base/json.h"
#include "daemon/base/utf8.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/notes.h"

#include <stdio.h>
#include <string.h>

#define LINE_LIST_BYTES ((size_t)512)
#define FILE_SHOWN_BYTES 64 /* of a file's name in a message */

/* param and files are left out where NULL. */
static void add_problem(struct json *array, const char *param, const char *const *files,
                        const struct problem *problem)
{
    struct json *object = json_new_object();

    if (param)
        json_add_string(object, "param", param);
    if (files)
        json_add_string(object, "file", files[problem->file]);
    json_add_int(object, "line", (int64_t)problem->line);
    json_add_int(object, "column", (int64_t)problem->column);
    json_add_string(object, "field", problem->field);
    json_add_string(object, "rule", problem->rule);
    json_add_string(object, "reason", problem->reason);
    json_add(array, NULL, object);
}

/* Findings of two levels in the order of their lines, at most LIMIT_PROBLEM_COUNT. */
static bool comes_first(const struct problem *left, const struct problem *right)
{
    return left->file != right->file ? left->file < right->file : left->line <= right->line;
}

static void add_merged(struct json *array, const char *const *files,
                       const struct dataset_report *report, enum problem_level first,
                       enum problem_level second)
{
    size_t a = 0, b = 0;

    for (size_t count = 0; count < LIMIT_PROBLEM_COUNT; count++) {
        bool has_a = a < report->problem_kept[first], has_b = b < report->problem_kept[second];
        const struct problem *left = has_a ? &report->problems[first][a] : NULL;
        const struct problem *right = has_b ? &report->problems[second][b] : NULL;

        if (!left && !right)
            return;
        if (left && (!right || comes_first(left, right))) {
            add_problem(array, NULL, files, left);
            a++;
        } else {
            add_problem(array, NULL, files, right);
            b++;
        }
    }
}

static void add_level(struct json *array, const char *const *files,
                      const struct dataset_report *report, enum problem_level level)
{
    for (size_t i = 0; i < report->problem_kept[level]; i++)
        add_problem(array, NULL, files, &report->problems[level][i]);
}

struct json *report_lines_json(const struct dataset_report *report, const char *const *files,
                               bool upload)
{
    struct json *array = json_new_array();

    if (upload)
        add_level(array, files, report, PROBLEM_FATAL);
    else
        add_merged(array, files, report, PROBLEM_FATAL, PROBLEM_STRICT);
    return array;
}

void report_name_file(const char *file, struct error *err)
{
    char name[FILE_SHOWN_BYTES + 1];

    (void)snprintf(name, sizeof(name), "%s", file);
    name[utf8_find_fault(name, strlen(name))] = '\0'; /* no half letter where it is cut */
    error_wrap(err, "file '%s'", name);
}

struct json *report_json(const struct dataset_report *report)
{
    static const struct {
        enum problem_level level;
        const char *count, *lines;
    } levels[] = {{PROBLEM_STRICT, "strict_count", "strict"},
                  {PROBLEM_WARNING, "warning_count", "warnings"}};
    struct json *object = json_new_object();

    json_add_int(object, "line_count", (int64_t)report->line_count);
    json_add_int(object, "blank_count", (int64_t)report->blank_count);
    json_add_int(object, "example_count", (int64_t)report->example_count);
    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        struct json *lines = json_new_array();

        add_level(lines, NULL, report, levels[i].level);
        json_add_int(object, levels[i].count, (int64_t)report->problem_count[levels[i].level]);
        json_add(object, levels[i].lines, lines);
    }
    return object;
}

/* ---- warnings of a job -------------------------------------------------------------------------- */

/* Where warnings go, and whose they are. */
struct warned {
    const char *param;
    const char *const *files; /* by a finding's file */
    const char *all;          /* the one file, or how many */
    struct json *warnings;
    struct notes *notes;
};

static void warn_level(const struct dataset_report *report, enum problem_level level,
                       const struct warned *warned)
{
    for (size_t i = 0; i < report->problem_kept[level]; i++) {
        const struct problem *problem = &report->problems[level][i];

        add_problem(warned->warnings, warned->param, warned->files, problem);
        notes_add(warned->notes, EVENT_WARN, "message", NULL, "%s line %zu%s%s%s: %s",
                  warned->files[problem->file], problem->line, problem->field[0] ? ", field '" : "",
                  problem->field, problem->field[0] ? "'" : "", problem->reason);
    }
    if (report->problem_count[level] > report->problem_kept[level])
        notes_add(warned->notes, EVENT_WARN, "message", NULL, "%s: %zu more lines like these",
                  warned->all, report->problem_count[level] - report->problem_kept[level]);
}

static void list_lines(const struct dataset_report *report, const char *rule, size_t total,
                       struct buf *out)
{
    size_t shown = 0;

    for (size_t i = 0; i < report->problem_kept[PROBLEM_WARNING]; i++) {
        const struct problem *problem = &report->problems[PROBLEM_WARNING][i];

        if (strcmp(problem->rule, rule) == 0 && report->file_count <= 1) /* else not by number */
            buf_format(out, "%s%zu", shown++ ? ", " : " (lines ", problem->line);
    }
    if (shown)
        buf_append_text(out, shown < total ? ", ...)" : ")");
}

static void add_summary(const struct warned *warned, const char *rule, size_t count,
                        const char *text)
{
    struct json *object = json_new_object();

    json_add_string(object, "param", warned->param);
    json_add_string(object, "file", warned->all);
    json_add_string(object, "rule", rule);
    json_add_int(object, "count", (int64_t)count);
    json_add_string(object, "reason", text);
    json_add(warned->warnings, NULL, object);
    notes_add(warned->notes, EVENT_WARN, "message", NULL, "%s: %s", warned->all, text);
}

void report_warnings(const struct dataset_report *report, const char *param,
                     const char *const *files, enum data_rules rules, struct json *warnings,
                     struct notes *notes)
{
    char several[32];
    const bool is_one = report->file_count <= 1;
    const struct warned warned = {param, files, is_one ? files[0] : several, warnings, notes};
    char text[2 * LINE_LIST_BYTES];
    struct buf lines;

    (void)snprintf(several, sizeof(several), "%zu files", report->file_count);
    buf_init(&lines, LINE_LIST_BYTES);
    if (report->overlong_count) {
        list_lines(report, "overlong", report->overlong_count, &lines);
        (void)snprintf(text, sizeof(text),
                       "%zu lines are longer than max_len%s; %zu examples are used, %zu of them "
                       "keep no target",
                       report->overlong_count, lines.size ? lines.data : "", report->example_count,
                       report->targetless_count);
        add_summary(&warned, "overlong", report->overlong_count, text);
    } else if (report->targetless_count) {
        (void)snprintf(text, sizeof(text), "%zu of %zu examples train nothing: no target token",
                       report->targetless_count, report->example_count);
        add_summary(&warned, "no_target", report->targetless_count, text);
    }
    if (report->skipped_count) {
        (void)snprintf(text, sizeof(text), "%zu lines are skipped, %zu examples are used",
                       report->skipped_count, report->example_count);
        add_summary(&warned, "skipped", report->skipped_count, text);
    }
    buf_release(&lines);
    if (rules == DATA_RULES_AS_REFERENCE)
        warn_level(report, PROBLEM_STRICT, &warned);
    warn_level(report, PROBLEM_WARNING, &warned);
}

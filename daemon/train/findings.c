#include "daemon/train/findings.h"

#include "daemon/base/utf8.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void findings_begin(struct findings *findings, struct dataset_report *report, size_t line)
{
    *findings = (struct findings){.report = report, .line = line};
}

/* A text cut inside a character would not be UTF-8; fields and reasons go out as JSON. */
static void end_on_character(char *text)
{
    size_t size = strlen(text);

    text[utf8_find_fault(text, size)] = '\0';
}

void findings_add(struct findings *findings, enum problem_level level, size_t column,
                  const char *field, const char *rule, const char *format, ...)
{
    struct dataset_report *report = findings->report;
    struct problem told, *problem = &told;
    bool kept;
    va_list args;

    assert(level < PROBLEM_LEVEL_COUNT);
    findings->counts[level]++;
    if (!report)
        return;
    report->problem_count[level]++;
    kept = report->problem_kept[level] < LIMIT_PROBLEM_COUNT;
    if (!kept && !report->sink)
        return;
    if (kept)
        problem = &report->problems[level][report->problem_kept[level]++];
    *problem = (struct problem){.level = level,
                                .file = report->file,
                                .line = findings->line,
                                .column = column ? column + findings->line_offset : 0};
    (void)snprintf(problem->field, sizeof(problem->field), "%s", field);
    (void)snprintf(problem->rule, sizeof(problem->rule), "%s", rule);
    va_start(args, format);
    (void)vsnprintf(problem->reason, sizeof(problem->reason), format, args);
    va_end(args);
    end_on_character(problem->field);
    end_on_character(problem->reason);
    if (report->sink)
        report->sink->take(report->sink->context, problem);
}

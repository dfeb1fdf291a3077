#include "daemon/train/dataset.h"

#include "daemon/base/utf8.h"

#include <stdio.h>
#include <string.h>

#define FIRST_SHOWN 3 /* findings named in an error's message; the report holds the others */
#define NAME_BYTES 80 /* of an error's message left to a caller, who knows the file's name */

static void put_problem(const struct dataset_report *report, const struct problem *problem,
                        char *text, size_t capacity)
{
    int used = 0;

    if (report->file_count > 1)
        used = snprintf(text, capacity, "file %zu of %zu", problem->file + 1, report->file_count);
    if (problem->line)
        used += snprintf(text + used, capacity - (size_t)used, "%sline %zu", used ? ", " : "",
                         problem->line);
    if (problem->column)
        used += snprintf(text + used, capacity - (size_t)used, ", column %zu", problem->column);
    if (problem->field[0])
        used += snprintf(text + used, capacity - (size_t)used, ", field '%s'", problem->field);
    (void)snprintf(text + used, capacity - (size_t)used, "%s%s", used ? ": " : "", problem->reason);
}

static bool refuse(const struct dataset_report *report, enum problem_level level, struct error *err)
{
    char message[sizeof(err->message)], text[sizeof(struct problem)];
    size_t shown = 0, used = 0, room;

    room = sizeof(message) - sizeof(" (and 18446744073709551615 more)") - NAME_BYTES;
    for (; shown < report->problem_kept[level] && shown < FIRST_SHOWN; shown++) {
        int length;

        put_problem(report, &report->problems[level][shown], text, sizeof(text));
        length = snprintf(message + used, room - used, "%s%s", shown ? "; " : "", text);
        if ((size_t)length >= room - used && shown) { /* the first one is always shown */
            message[used] = '\0';
            break;
        }
        used += (size_t)length < room - used ? (size_t)length : room - used - 1;
    }
    used = utf8_find_fault(message, strlen(message));
    if (report->problem_count[level] > shown)
        (void)snprintf(message + used, sizeof(message) - used, " (and %zu more)",
                       report->problem_count[level] - shown);
    return error_set(err, ERR_INVALID, "%s", message);
}

bool dataset_report_accept(const struct dataset_report *report, bool upload, enum data_rules rules,
                           struct error *err)
{
    if (report->problem_count[PROBLEM_FATAL])
        return refuse(report, PROBLEM_FATAL, err);
    if (upload)
        return true;
    if (rules == DATA_RULES_STRICT && report->problem_count[PROBLEM_STRICT])
        return refuse(report, PROBLEM_STRICT, err);
    if (report->example_count == 0)
        return error_set(err, ERR_INVALID,
                         "no examples are left: %zu lines, %zu blank, %zu skipped, %zu too long "
                         "for max_len",
                         report->line_count, report->blank_count, report->skipped_count,
                         report->overlong_count);
    if (report->target_count == 0)
        return error_set(err, ERR_INVALID,
                         "no example keeps any target token: %zu of %zu are longer than max_len",
                         report->overlong_count, report->example_count);
    return true;
}

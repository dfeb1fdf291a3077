#include "daemon/train/record.h"

#include "daemon/base/utf8.h"
#include "daemon/train/chat.h"
#include "daemon/train/declared.h"

#include <stdio.h>
#include <string.h>

void record_add_notes(struct findings *findings, const struct strict_report *report,
                      const char *field, size_t column)
{
    for (size_t i = 0; i < report->note_count && i < STRICT_NOTE_MAX; i++) {
        const struct strict_finding *note = &report->notes[i];

        if (column)
            findings_add(findings, PROBLEM_STRICT, column, field, note->rule,
                         "in the JSON text: %s", note->reason);
        else
            findings_add(findings, PROBLEM_STRICT, note->column, note->field, note->rule, "%s",
                         note->reason);
    }
}

bool record_is_falsy(const struct strict_value *value)
{
    switch (value->kind) {
    case STRICT_NULL:
        return true;
    case STRICT_BOOL:
        return !value->flag;
    case STRICT_INT:
    case STRICT_FLOAT: /* a digit other than 0 before any exponent, or a word */
        for (size_t i = 0; i < value->size && (value->text[i] | 0x20) != 'e'; i++)
            if (!strchr("-0.", value->text[i]))
                return false;
        return true;
    case STRICT_STRING:
        return value->size == 0;
    case STRICT_ARRAY:
    case STRICT_OBJECT:
        return value->count == 0;
    }
    return false;
}

/* system and reasoning: a string, stripped; null and absent are the same. */
static bool read_optional(const struct strict_value *line, const char *field,
                          struct findings *findings, struct record_text *ret_text)
{
    const struct strict_value *value = strict_member(line, field);

    if (!value || value->kind == STRICT_NULL)
        return true;
    if (value->kind != STRICT_STRING) {
        bool passes = record_is_falsy(value);

        findings_add(findings, passes ? PROBLEM_STRICT : PROBLEM_FATAL, value->column, field,
                     "wrong_type", "%s, a string is needed", strict_kind_name(value->kind));
        return passes;
    }
    *ret_text = (struct record_text){value->text, value->size, value->column, ""};
    utf8_strip(&ret_text->text, &ret_text->size);
    (void)snprintf(ret_text->field, sizeof(ret_text->field), "%s", field);
    return true;
}

static void check_list(const struct strict_value *list, const char *field,
                       struct findings *findings)
{
    if (list->kind != STRICT_ARRAY && list->kind != STRICT_STRING)
        findings_add(findings, PROBLEM_STRICT, list->column, field, "wrong_type",
                     "%s, an array or a string of JSON is needed", strict_kind_name(list->kind));
}

static const struct strict_value *read_answers(const struct strict_value *line,
                                               const char **ret_field, struct findings *findings)
{
    const struct strict_value *answers = strict_member(line, "answers");
    const struct strict_value *calls = strict_member(line, "function_calls");

    *ret_field = answers ? "answers" : "function_calls";
    if (answers && calls)
        findings_add(findings, PROBLEM_WARNING, calls->column, "function_calls", "ignored",
                     "not read, since answers is there");
    if (!answers)
        answers = calls;
    if (!answers)
        findings_add(findings, PROBLEM_STRICT, 0, "answers", "missing_field",
                     "answers is missing; [] says that no tool is to be called");
    else
        check_list(answers, *ret_field, findings);
    return answers;
}

static enum record_fate read_plain(const struct strict_value *line, struct arena *arena,
                                   struct findings *findings, struct record *ret_record)
{
    const struct strict_value *query = strict_member(line, "query");
    struct record record = {0};
    const char *answers_field;

    if (query->kind != STRICT_STRING) {
        findings_add(findings, PROBLEM_FATAL, query->column, "query", "wrong_type",
                     "%s, a string is needed", strict_kind_name(query->kind));
        return RECORD_FATAL;
    }
    record.query = (struct record_text){query->text, query->size, query->column, "query"};
    if (!read_optional(line, "system", findings, &record.system) ||
        !read_optional(line, "reasoning", findings, &record.reasoning))
        return RECORD_FATAL;
    if (strict_member(line, "messages"))
        findings_add(findings, PROBLEM_WARNING, 0, "messages", "ignored",
                     "not read, since query is there");
    record.tools = strict_member(line, "tools");
    if (record.tools)
        check_list(record.tools, "tools", findings);
    record.answers = read_answers(line, &answers_field, findings);
    declared_check(&record, answers_field, arena, findings);
    *ret_record = record;
    return RECORD_TAKEN;
}

static void warn_empty_query(const struct record *record, struct findings *findings)
{
    const char *text = record->query.text;
    size_t size = record->query.size;

    utf8_strip(&text, &size);
    if (size == 0)
        findings_add(findings, PROBLEM_WARNING, record->query.column, record->query.field,
                     "empty_query", "the query is empty");
}

enum record_fate record_read(const struct strict_value *line, struct arena *arena,
                             struct findings *findings, struct record *ret_record)
{
    enum record_fate fate;

    if (line->kind != STRICT_OBJECT) {
        findings_add(findings, PROBLEM_FATAL, line->column, "",
                     line->kind == STRICT_ARRAY ? "json_array" : "not_an_object",
                     "%s, one JSON object per line is needed",
                     line->kind == STRICT_ARRAY ? "a JSON array" : strict_kind_name(line->kind));
        return RECORD_FATAL;
    }
    if (strict_member(line, "query")) {
        fate = read_plain(line, arena, findings, ret_record);
    } else if (strict_member(line, "messages")) {
        fate = chat_read(line, arena, findings, ret_record);
    } else {
        findings_add(findings, PROBLEM_STRICT, 0, "query", "missing_field",
                     "neither query nor messages is there");
        return RECORD_SKIPPED;
    }
    if (fate == RECORD_TAKEN)
        warn_empty_query(ret_record, findings);
    return fate;
}

#include "daemon/train/declared.h"

#include "daemon/base/utf8.h"

#include <stdio.h>
#include <string.h>

/* The list itself, or the one its text holds; NULL when there is none. */
static const struct strict_value *list_of(const struct strict_value *value, struct arena *arena)
{
    struct strict_report report;
    struct strict_value *parsed = NULL;

    if (value && value->kind == STRICT_STRING) {
        if (!strict_read(value->text, value->size, arena, &report, &parsed))
            return NULL;
        value = parsed;
    }
    return value && value->kind == STRICT_ARRAY ? value : NULL;
}

static void warn_text(const struct strict_value *value, const char *field, struct arena *arena,
                      struct findings *findings)
{
    struct strict_report report;
    struct strict_value *parsed = NULL;

    if (value && value->kind == STRICT_STRING &&
        !strict_read(value->text, value->size, arena, &report, &parsed))
        findings_add(findings, PROBLEM_WARNING, value->column, field, "not_json_text",
                     "the string is used as it stands, and it is not JSON: %s",
                     report.fault.reason);
}

/* The name of a tool, written bare or in OpenAI's envelope. */
static const struct strict_value *name_of(const struct strict_value *tool)
{
    const struct strict_value *function = strict_member(tool, "function");
    const struct strict_value *name = strict_member(function ? function : tool, "name");

    return name && name->kind == STRICT_STRING ? name : NULL;
}

static bool is_declared(const struct strict_value *tools, const struct strict_value *name)
{
    for (const struct strict_value *tool = tools ? tools->child : NULL; tool; tool = tool->next) {
        const struct strict_value *known = name_of(tool);

        if (known && known->size == name->size && memcmp(known->text, name->text, name->size) == 0)
            return true;
    }
    return false;
}

void declared_check_calls(const struct record *record, const char *answers_field,
                          struct arena *arena, struct findings *findings)
{
    const struct strict_value *tools = list_of(record->tools, arena);
    const struct strict_value *calls = list_of(record->answers, arena);
    size_t index = 0;

    for (const struct strict_value *call = calls ? calls->child : NULL; call;
         call = call->next, index++) {
        const struct strict_value *name = strict_member(call, "name");
        char field[64];

        if (!name || name->kind != STRICT_STRING || is_declared(tools, name))
            continue;
        (void)snprintf(field, sizeof(field), "%s[%zu].name", answers_field, index);
        findings_add(findings, PROBLEM_WARNING,
                     record->answers->kind == STRICT_STRING ? record->answers->column
                                                            : name->column,
                     field, "undeclared_tool", "calls '%.*s', which tools does not declare",
                     (int)utf8_cut(name->text, name->size, 80), name->text);
    }
}

static void check_tools(const struct strict_value *tools, struct findings *findings)
{
    size_t index = 0;

    for (const struct strict_value *tool = tools->child; tool; tool = tool->next, index++) {
        char field[64];

        if (tool->kind == STRICT_OBJECT && name_of(tool))
            continue;
        (void)snprintf(field, sizeof(field), "tools[%zu]", index);
        if (tool->kind != STRICT_OBJECT)
            findings_add(findings, PROBLEM_STRICT, tool->column, field, "wrong_type",
                         "%s, an object is needed", strict_kind_name(tool->kind));
        else
            findings_add(findings, PROBLEM_WARNING, tool->column, field, "missing_name",
                         "the tool has no name");
    }
}

static void check_answers(const struct strict_value *answers, const char *answers_field,
                          struct findings *findings)
{
    size_t index = 0;

    for (const struct strict_value *call = answers->child; call; call = call->next, index++) {
        const struct strict_value *name = strict_member(call, "name");
        const struct strict_value *arguments = strict_member(call, "arguments");
        const struct strict_value *wrong = call;
        const char *part = "", *wanted = "an object";
        char field[64];

        if (call->kind == STRICT_OBJECT) {
            wrong = NULL;
            if (!name || name->kind != STRICT_STRING) {
                wrong = name ? name : call;
                part = ".name";
                wanted = "a string";
            } else if (arguments && arguments->kind != STRICT_OBJECT) {
                wrong = arguments;
                part = ".arguments";
            }
        }
        if (!wrong)
            continue;
        (void)snprintf(field, sizeof(field), "%s[%zu]%s", answers_field, index, part);
        if (wrong == call && part[0])
            findings_add(findings, PROBLEM_STRICT, wrong->column, field, "missing_field",
                         "the call names no tool");
        else
            findings_add(findings, PROBLEM_STRICT, wrong->column, field, "wrong_type",
                         "%s, %s is needed", strict_kind_name(wrong->kind), wanted);
    }
}

void declared_check(const struct record *record, const char *answers_field, struct arena *arena,
                    struct findings *findings)
{
    warn_text(record->tools, "tools", arena, findings);
    warn_text(record->answers, answers_field, arena, findings);
    if (record->tools && record->tools->kind == STRICT_ARRAY)
        check_tools(record->tools, findings);
    if (record->answers && record->answers->kind == STRICT_ARRAY)
        check_answers(record->answers, answers_field, findings);
    declared_check_calls(record, answers_field, arena, findings);
}

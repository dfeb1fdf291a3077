#include "daemon/train/chat.h"

#include "daemon/base/utf8.h"
#include "daemon/train/declared.h"

#include <stdio.h>
#include <string.h>

#define FIELD_BYTES 64

struct chat {
    const struct strict_value *line;
    struct arena *arena;
    struct findings *findings;
    const struct strict_value *user, *assistant; /* the two turns */
    const struct strict_value *system;           /* the first one */
    size_t user_index, assistant_index, system_index;
};

/* ---- turns ---------------------------------------------------------------------------------- */

static void name_field(char field[FIELD_BYTES], size_t index, const char *part)
{
    (void)snprintf(field, FIELD_BYTES, "messages[%zu]%s", index, part);
}

static bool is_role(const struct strict_value *message, const char *role)
{
    const struct strict_value *value = strict_member(message, "role");

    return value && strict_is(value, role);
}

/* True when the role is one that the template has a place for. */
static bool check_role(const struct chat *chat, const struct strict_value *message, size_t index)
{
    static const char *const unread[] = {"developer", "tool", "function"};
    const struct strict_value *role = strict_member(message, "role");
    char field[FIELD_BYTES];

    name_field(field, index, ".role");
    if (!role) {
        findings_add(chat->findings, PROBLEM_STRICT, message->column, field, "missing_field",
                     "the message has no role");
        return false;
    }
    if (role->kind != STRICT_STRING) {
        findings_add(chat->findings, PROBLEM_STRICT, role->column, field, "wrong_type",
                     "%s, a string is needed", strict_kind_name(role->kind));
        return false;
    }
    if (strict_is(role, "system") || strict_is(role, "user") || strict_is(role, "assistant"))
        return true;
    for (size_t i = 0; i < COUNT_OF(unread); i++) {
        if (!strict_is(role, unread[i]))
            continue;
        findings_add(chat->findings, PROBLEM_STRICT, role->column, field, "unread_role",
                     "the model's template has no place for the role '%s'", unread[i]);
        return false;
    }
    findings_add(chat->findings, PROBLEM_STRICT, role->column, field, "unknown_role",
                 "unknown role '%.*s'", (int)utf8_cut(role->text, role->size, 60), role->text);
    return false;
}

/* One user turn and one assistant turn, in this order; otherwise says what there is instead. */
static bool check_turns(const struct chat *chat, const struct strict_value *messages,
                        size_t turn_count)
{
    size_t at = messages->column;

    if (turn_count == 2 && is_role(chat->user, "user") && is_role(chat->assistant, "assistant"))
        return true;
    if (turn_count > 2)
        findings_add(chat->findings, PROBLEM_STRICT, at, "messages", "multi_turn",
                     "multi-turn: %zu turns, one user turn and one assistant turn are read",
                     turn_count);
    else if (turn_count == 0)
        findings_add(chat->findings, PROBLEM_STRICT, at, "messages", "no_turns",
                     "no user turn and no assistant turn");
    else
        findings_add(chat->findings, PROBLEM_STRICT, at, "messages", "no_answer",
                     "no user turn that an assistant turn answers: there is nothing to train");
    return false;
}

static enum record_fate find_turns(struct chat *chat, const struct strict_value *messages)
{
    size_t index = 0, turn_count = 0;
    bool roles_known = true;

    for (const struct strict_value *m = messages->child; m; m = m->next, index++) {
        if (m->kind != STRICT_OBJECT) {
            char field[FIELD_BYTES];

            name_field(field, index, "");
            findings_add(chat->findings, PROBLEM_FATAL, m->column, field, "wrong_type",
                         "%s, an object is needed", strict_kind_name(m->kind));
            return RECORD_FATAL;
        }
        roles_known = check_role(chat, m, index) && roles_known;
        if (is_role(m, "system")) {
            char field[FIELD_BYTES];

            name_field(field, index, ".role");
            if (chat->system || turn_count)
                findings_add(chat->findings, PROBLEM_STRICT, m->column, field, "system_turn",
                             "a system turn is read once, before the user turn");
            if (!chat->system) {
                chat->system = m;
                chat->system_index = index;
            }
            continue;
        }
        if (turn_count == 0) {
            chat->user = m;
            chat->user_index = index;
        } else if (turn_count == 1) {
            chat->assistant = m;
            chat->assistant_index = index;
        }
        turn_count++;
    }
    if (!roles_known)
        return RECORD_SKIPPED;
    return check_turns(chat, messages, turn_count) ? RECORD_TAKEN : RECORD_SKIPPED;
}

/* ---- contents ------------------------------------------------------------------------------- */

/* The content of a user or system turn: a string; what Python takes for false is no text. */
static bool read_content(const struct chat *chat, const struct strict_value *message, size_t index,
                         struct record_text *ret_text)
{
    const struct strict_value *content = strict_member(message, "content");
    char field[FIELD_BYTES];

    name_field(field, index, ".content");
    if (content && content->kind != STRICT_STRING && content->kind != STRICT_NULL) {
        bool passes = record_is_falsy(content);

        findings_add(chat->findings, passes ? PROBLEM_STRICT : PROBLEM_FATAL, content->column,
                     field, "wrong_type", "%s, a string is needed",
                     strict_kind_name(content->kind));
        if (!passes)
            return false;
    }
    *ret_text = (struct record_text){.column = content ? content->column : message->column};
    if (content && content->kind == STRICT_STRING) {
        ret_text->text = content->text;
        ret_text->size = content->size;
    }
    (void)snprintf(ret_text->field, sizeof(ret_text->field), "%s", field);
    return true;
}

static void check_assistant(const struct chat *chat)
{
    const struct strict_value *turn = chat->assistant;
    const struct strict_value *weight = strict_member(turn, "weight");
    const struct strict_value *content = strict_member(turn, "content");
    const struct strict_value *old_form = strict_member(turn, "function_call");
    char field[FIELD_BYTES];

    if (weight && weight->kind != STRICT_NULL) {
        bool is_int = weight->kind == STRICT_INT && weight->size == 1;

        name_field(field, chat->assistant_index, ".weight");
        if (is_int && weight->text[0] == '0')
            findings_add(chat->findings, PROBLEM_STRICT, weight->column, field, "weight_zero",
                         "the assistant turn has weight 0 and there is nothing else to train");
        else if (!is_int || weight->text[0] != '1')
            findings_add(chat->findings, PROBLEM_STRICT, weight->column, field, "wrong_type",
                         "a weight is 0 or 1");
    }
    if (old_form && old_form->kind != STRICT_NULL) {
        name_field(field, chat->assistant_index, ".function_call");
        findings_add(chat->findings, PROBLEM_STRICT, old_form->column, field, "old_form",
                     "not read: write tool_calls");
    }
    if (content && !record_is_falsy(content)) {
        name_field(field, chat->assistant_index, ".content");
        findings_add(chat->findings, PROBLEM_WARNING, content->column, field, "untrained_text",
                     "the assistant's text is not trained, only its calls are");
    }
}

/* ---- calls ---------------------------------------------------------------------------------- */

static struct strict_value *new_value(struct chat *chat, enum strict_kind kind)
{
    struct strict_value *value = arena_alloc(chat->arena, sizeof(*value));

    if (value)
        value->kind = kind;
    else
        findings_add(chat->findings, PROBLEM_FATAL, 0, "", "too_large",
                     "more values than %zu bytes of memory hold", chat->arena->max_bytes);
    return value;
}

static bool append_copy(struct chat *chat, struct strict_value *list, struct strict_value **last,
                        const struct strict_value *value, const char *key)
{
    struct strict_value *copy = new_value(chat, STRICT_NULL);

    if (!copy)
        return false;
    if (value)
        *copy = *value;
    copy->next = NULL;
    copy->key = key;
    copy->key_size = key ? strlen(key) : 0;
    if (*last)
        (*last)->next = copy;
    else
        list->child = copy;
    *last = copy;
    list->count++;
    return true;
}

/* arguments: an object, or the text of one; a text of white space is an empty object. */
static bool read_arguments(struct chat *chat, const struct strict_value *given, const char *field,
                           struct strict_value **ret_arguments)
{
    struct strict_value *arguments = NULL;
    struct strict_report report;
    const char *text;
    size_t size;

    if (given && given->kind != STRICT_STRING) {
        arguments = new_value(chat, given->kind);
        if (arguments)
            *arguments = *given;
    } else if (given) {
        text = given->text;
        size = given->size;
        utf8_strip(&text, &size);
        if (size == 0) {
            arguments = new_value(chat, STRICT_OBJECT);
        } else if (!strict_read(given->text, given->size, chat->arena, &report, &arguments)) {
            findings_add(chat->findings, PROBLEM_FATAL, given->column, field, "not_json_text",
                         "the JSON text is broken at its byte %zu: %s", report.fault.column - 1,
                         report.fault.reason);
            return false;
        } else {
            record_add_notes(chat->findings, &report, field, given->column);
        }
    } else {
        arguments = new_value(chat, STRICT_OBJECT);
    }
    if (!arguments)
        return false;
    if (arguments->kind != STRICT_OBJECT)
        findings_add(chat->findings, PROBLEM_STRICT, given->column, field, "wrong_type",
                     "%s, an object or the text of one is needed",
                     strict_kind_name(arguments->kind));
    *ret_arguments = arguments;
    return true;
}

static bool refuse_call(const struct chat *chat, const struct strict_value *value,
                        const char *field)
{
    findings_add(chat->findings, PROBLEM_FATAL, value->column, field, "wrong_type",
                 "%s, an object is needed", strict_kind_name(value->kind));
    return false;
}

static bool read_call(struct chat *chat, const struct strict_value *call, size_t index,
                      struct strict_value *answers, struct strict_value **last)
{
    const struct strict_value *function, *name;
    struct strict_value *answer, *arguments = NULL, *last_member = NULL;
    char field[FIELD_BYTES], part[FIELD_BYTES];

    (void)snprintf(part, sizeof(part), ".tool_calls[%zu]", index);
    name_field(field, chat->assistant_index, part);
    if (call->kind != STRICT_OBJECT)
        return refuse_call(chat, call, field);
    function = strict_member(call, "function");
    if (!function || record_is_falsy(function))
        function = call;
    if (function->kind != STRICT_OBJECT)
        return refuse_call(chat, function, field);
    name = strict_member(function, "name");
    if (!name || name->kind != STRICT_STRING)
        findings_add(chat->findings, PROBLEM_STRICT, (name ? name : function)->column, field,
                     name ? "wrong_type" : "missing_field", "the call names no tool");
    (void)snprintf(part, sizeof(part), ".tool_calls[%zu]%s.arguments", index,
                   function == call ? "" : ".function");
    name_field(field, chat->assistant_index, part);
    if (!read_arguments(chat, strict_member(function, "arguments"), field, &arguments))
        return false;
    answer = new_value(chat, STRICT_OBJECT);
    if (!answer || !append_copy(chat, answer, &last_member, name, "name") ||
        !append_copy(chat, answer, &last_member, arguments, "arguments"))
        return false;
    answer->column = call->column;
    return append_copy(chat, answers, last, answer, NULL);
}

static bool read_calls(struct chat *chat, const struct strict_value **ret_answers)
{
    const struct strict_value *calls = strict_member(chat->assistant, "tool_calls");
    struct strict_value *answers = new_value(chat, STRICT_ARRAY), *last = NULL;
    size_t index = 0;

    if (!answers)
        return false;
    answers->column = chat->assistant->column;
    *ret_answers = answers;
    if (!calls)
        return true;
    if (calls->kind != STRICT_ARRAY && calls->kind != STRICT_NULL) {
        bool passes = record_is_falsy(calls);
        char field[FIELD_BYTES];

        name_field(field, chat->assistant_index, ".tool_calls");
        findings_add(chat->findings, passes ? PROBLEM_STRICT : PROBLEM_FATAL, calls->column, field,
                     "wrong_type", "%s, an array is needed", strict_kind_name(calls->kind));
        return passes;
    }
    for (const struct strict_value *call = calls->child; call; call = call->next)
        if (!read_call(chat, call, index++, answers, &last))
            return false;
    return true;
}

/* ---- tools ---------------------------------------------------------------------------------- */

/* The reference goes through whatever it gets: the characters of a string, the keys of an object.
 */
static bool spread_string(struct chat *chat, const char *text, size_t size,
                          struct strict_value *tools, struct strict_value **last)
{
    for (size_t i = 0; i < size;) {
        uint32_t code;
        size_t length = utf8_decode(text + i, size - i, &code);
        struct strict_value letter = {.kind = STRICT_STRING, .text = text + i};

        letter.size = length ? length : 3; /* half of a character, kept as three bytes */
        if (!append_copy(chat, tools, last, &letter, NULL))
            return false;
        i += letter.size;
    }
    return true;
}

static bool spread_tools(struct chat *chat, const struct strict_value *given,
                         struct strict_value *tools)
{
    struct strict_value *last = NULL;

    if (given->kind == STRICT_STRING)
        return spread_string(chat, given->text, given->size, tools, &last);
    for (const struct strict_value *next = given->child; next; next = next->next) {
        struct strict_value key = {.kind = STRICT_STRING};
        const struct strict_value *tool = next;

        if (given->kind == STRICT_OBJECT) {
            key.text = next->key;
            key.size = next->key_size;
            tool = &key;
        } else if (strict_member(next, "function")) {
            tool = strict_member(next, "function");
        }
        if (!append_copy(chat, tools, &last, tool, NULL))
            return false;
    }
    return true;
}

static void check_tools(const struct chat *chat, const struct strict_value *tools)
{
    size_t index = 0;

    for (const struct strict_value *tool = tools->child; tool; tool = tool->next, index++) {
        char field[FIELD_BYTES];

        if (tool->kind == STRICT_OBJECT)
            continue;
        (void)snprintf(field, sizeof(field), "tools[%zu]", index);
        findings_add(chat->findings, PROBLEM_STRICT, tool->column, field, "wrong_type",
                     "%s, an object is needed", strict_kind_name(tool->kind));
    }
}

static bool read_tools(struct chat *chat, const struct strict_value **ret_tools)
{
    const struct strict_value *given = strict_member(chat->line, "tools");
    struct strict_value *tools = new_value(chat, STRICT_ARRAY);

    if (!tools)
        return false;
    *ret_tools = tools;
    if (!given || given->kind == STRICT_NULL)
        return true;
    if (given->kind != STRICT_ARRAY) {
        bool passes =
            record_is_falsy(given) || given->kind == STRICT_STRING || given->kind == STRICT_OBJECT;

        findings_add(chat->findings, passes ? PROBLEM_STRICT : PROBLEM_FATAL, given->column,
                     "tools", "wrong_type", "%s, a chat line's tools are an array",
                     strict_kind_name(given->kind));
        if (!passes)
            return false;
        if (record_is_falsy(given))
            return true;
    }
    if (!spread_tools(chat, given, tools))
        return false;
    if (given->kind == STRICT_ARRAY)
        check_tools(chat, tools);
    return true;
}

/* ---- the line ------------------------------------------------------------------------------- */

static void check_fields(const struct chat *chat)
{
    static const char *const unread[] = {"answers", "function_calls", "reasoning", "system"};
    const struct strict_value *old_form = strict_member(chat->line, "functions");

    for (size_t i = 0; i < COUNT_OF(unread); i++) {
        const struct strict_value *value = strict_member(chat->line, unread[i]);

        if (value)
            findings_add(chat->findings, PROBLEM_WARNING, value->column, unread[i], "ignored",
                         "not read in a chat line");
    }
    if (old_form)
        findings_add(chat->findings, PROBLEM_STRICT, old_form->column, "functions", "old_form",
                     "not read: write tools");
}

enum record_fate chat_read(const struct strict_value *line, struct arena *arena,
                           struct findings *findings, struct record *ret_record)
{
    const struct strict_value *messages = strict_member(line, "messages");
    struct chat chat = {.line = line, .arena = arena, .findings = findings};
    struct record record = {.is_chat = true};
    enum record_fate fate;
    char field[FIELD_BYTES];

    if (messages->kind != STRICT_ARRAY) {
        findings_add(findings, PROBLEM_STRICT, messages->column, "messages", "wrong_type",
                     "%s, an array is needed", strict_kind_name(messages->kind));
        return RECORD_SKIPPED;
    }
    fate = find_turns(&chat, messages);
    if (fate != RECORD_TAKEN)
        return fate;
    check_fields(&chat);
    check_assistant(&chat);
    if (!read_calls(&chat, &record.answers) || !read_tools(&chat, &record.tools) ||
        !read_content(&chat, chat.user, chat.user_index, &record.query))
        return RECORD_FATAL;
    if (chat.system) {
        if (!read_content(&chat, chat.system, chat.system_index, &record.system))
            return RECORD_FATAL;
        utf8_strip(&record.system.text, &record.system.size);
    }
    name_field(field, chat.assistant_index, ".tool_calls");
    declared_check_calls(&record, field, arena, findings);
    *ret_record = record;
    return RECORD_TAKEN;
}

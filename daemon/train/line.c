#include "daemon/train/line.h"

#include "daemon/base/utf8.h"
#include "daemon/train/render.h"

#include <stdio.h>
#include <string.h>

/* Escapes make a text longer, six bytes for one at worst. */
#define RENDERED_BYTES_MAX (6 * LIMIT_LINE_BYTES + 4096)

void line_init(struct line *line)
{
    *line = (struct line){.outcome = LINE_BLANK};
    arena_init(&line->arena, LIMIT_LINE_TREE_BYTES);
    buf_init(&line->prompt, RENDERED_BYTES_MAX);
    buf_init(&line->target, RENDERED_BYTES_MAX);
}

void line_release(struct line *line)
{
    arena_release(&line->arena);
    buf_release(&line->prompt);
    buf_release(&line->target);
}

static bool is_json_space(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n')
            return false;
    return true;
}

static void refuse_marker(struct line *line, const struct record_text *text)
{
    const char *marker = NULL;

    if (text->size && render_count_markers(text->text, text->size, &marker))
        findings_add(&line->findings, PROBLEM_STRICT, text->column, text->field, "marker",
                     "holds '%s', which the template uses as a control marker", marker);
}

static void refuse_list_marker(struct line *line, const struct strict_value *list,
                               const char *field)
{
    struct record_text text = {.column = list ? list->column : 0};
    struct buf rendered;

    buf_init(&rendered, RENDERED_BYTES_MAX);
    render_list(list, &rendered);
    (void)snprintf(text.field, sizeof(text.field), "%s", field);
    text.text = rendered.data;
    text.size = rendered.failed ? 0 : rendered.size;
    refuse_marker(line, &text);
    buf_release(&rendered);
}

/* A marker in a user's text would be read as the template's own. */
static void check_markers(struct line *line)
{
    const struct record *record = &line->record;

    if (render_count_markers(line->prompt.data, line->prompt.size, NULL) ==
            render_prompt_markers(record) &&
        render_count_markers(line->target.data, line->target.size, NULL) ==
            render_target_markers(record))
        return;
    refuse_marker(line, &record->query);
    refuse_marker(line, &record->system);
    refuse_marker(line, &record->reasoning);
    refuse_list_marker(line, record->tools, "tools");
    refuse_list_marker(line, record->answers, record->is_chat ? "messages" : "answers");
}

/* Half a character that reaches the tokenizer stops the reference too. */
static bool check_surrogates(struct line *line, const struct strict_report *report)
{
    size_t column = 0;
    const char *field = "";

    if (utf8_find_surrogate(line->prompt.data, line->prompt.size) == line->prompt.size &&
        utf8_find_surrogate(line->target.data, line->target.size) == line->target.size)
        return true;
    for (size_t i = 0; i < report->note_count && i < STRICT_NOTE_MAX && !column; i++) {
        if (strcmp(report->notes[i].rule, "lone_surrogate") != 0)
            continue;
        column = report->notes[i].column;
        field = report->notes[i].field;
    }
    findings_add(&line->findings, PROBLEM_FATAL, column, field, "lone_surrogate",
                 "a lone surrogate: half of a character is not text");
    return false;
}

/* Every marker begins with "<", which is there as such or as an escape, and half a character stands
 * there as an escape alone: without either there is nothing to look for in the texts. */
static bool is_harmless(const char *text, size_t size, const struct strict_report *report)
{
    const char *end = text + size, *at = text;

    if (report->note_count || memchr(text, '<', size))
        return false;
    while (at < end && (at = memchr(at, '\\', (size_t)(end - at))) != NULL) {
        at++;
        if (at < end && *at == 'u')
            return false;
    }
    return true;
}

static bool render(struct line *line, const struct strict_report *report, struct error *err)
{
    render_prompt(&line->record, &line->prompt);
    render_target(&line->record, &line->target);
    if (line->prompt.failed || line->target.failed)
        return error_set(err, ERR_NO_MEMORY, "line %zu: out of memory", line->findings.line);
    if (!check_surrogates(line, report))
        return true;
    check_markers(line);
    line->outcome = LINE_USABLE;
    return true;
}

static bool read_content(struct line *line, const char *text, size_t size, size_t number,
                         struct dataset_report *report, struct error *err)
{
    const char *start = text;
    size_t left = size;
    struct strict_report read;
    struct strict_value *value = NULL;

    arena_clear(&line->arena);
    buf_clear(&line->prompt);
    buf_clear(&line->target);
    findings_begin(&line->findings, report, number);
    line->outcome = LINE_BLANK;
    utf8_strip(&start, &left);
    if (left == 0)
        return true;
    line->findings.line_offset = (size_t)(start - text);
    line->outcome = LINE_FATAL;
    if (!strict_read(start, left, &line->arena, &read, &value)) {
        findings_add(&line->findings, PROBLEM_FATAL, read.fault.column, read.fault.field,
                     read.fault.rule, "%s", read.fault.reason);
        return true;
    }
    if (!is_json_space(text, line->findings.line_offset) ||
        !is_json_space(start + left, size - left - line->findings.line_offset))
        findings_add(&line->findings, PROBLEM_STRICT, 0, "", "white_space",
                     "white space around the object that JSON does not know");
    record_add_notes(&line->findings, &read, "", 0);
    switch (record_read(value, &line->arena, &line->findings, &line->record)) {
    case RECORD_FATAL:
        return true;
    case RECORD_SKIPPED:
        line->outcome = LINE_SKIPPED;
        return true;
    case RECORD_TAKEN:
        break;
    }
    if (line->checks_only && is_harmless(start, left, &read)) {
        line->outcome = LINE_USABLE;
        return true;
    }
    return render(line, &read, err);
}

/* Without memory any of it may have been taken for the line's own fault. */
bool line_read(struct line *line, const char *text, size_t size, size_t number,
               struct dataset_report *report, struct error *err)
{
    return read_content(line, text, size, number, report, err) &&
           (!line->arena.starved ||
            error_set(err, ERR_NO_MEMORY, "line %zu: out of memory", number));
}

#include "daemon/train/lines.h"

#include "daemon/base/utf8.h"
#include "daemon/train/findings.h"

#include <string.h>

#define BOM "\xef\xbb\xbf"

void lines_init(struct lines *lines, struct dataset_report *report, bool cr_ends,
                lines_callback *callback, void *context)
{
    *lines = (struct lines){.report = report,
                            .cr_ends = cr_ends,
                            .callback = callback,
                            .context = context,
                            .blank_before = report->blank_count};
    buf_init(&lines->pending, LIMIT_LINE_BYTES);
}

void lines_release(struct lines *lines)
{
    buf_release(&lines->pending);
}

/* ---- what the file is ----------------------------------------------------------------------- */

static void refuse_file(struct lines *lines, size_t line, const char *rule, const char *reason)
{
    struct findings findings;

    findings_begin(&findings, lines->report, line);
    findings_add(&findings, PROBLEM_FATAL, line ? 1 : 0, "", rule, "%s", reason);
    lines->not_lines = true;
}

static bool starts_with(const char *text, size_t size, const char *magic, size_t length)
{
    return size >= length && memcmp(text, magic, length) == 0;
}

/* Words in a row with commas, semicolons or tabs between them, and no brace. */
static bool looks_like_csv(const char *text, size_t size)
{
    bool separated = false;

    for (size_t i = 0; i < size; i++) {
        if (text[i] == '{' || text[i] == '[')
            return false;
        separated = separated || text[i] == ',' || text[i] == ';' || text[i] == '\t';
    }
    return separated;
}

/* The first record that is not blank shows what kind of file it is. */
static void look_at_first(struct lines *lines, const char *text, size_t size)
{
    const char *whole = text;
    size_t whole_size = size;

    utf8_strip(&text, &size);
    if (size == 0)
        return;
    lines->begun = true;
    if (starts_with(whole, whole_size, "\x1f\x8b", 2))
        refuse_file(lines, lines->number, "gzip", "the file is gzip-compressed: unpack it first");
    else if (starts_with(text, size, "PK\x03\x04", 4))
        refuse_file(lines, lines->number, "zip", "the file is a zip archive: unpack it first");
    else if (starts_with(text, size, "\xff\xfe", 2) || starts_with(text, size, "\xfe\xff", 2))
        refuse_file(lines, lines->number, "not_utf8",
                    "not UTF-8: the file starts with the byte order mark of UTF-16 (offset 0)");
    else if (text[0] == '[' && (size == 1 || text[size - 1] != ']'))
        refuse_file(lines, lines->number, "json_array",
                    "the file is one JSON array: one JSON object per line is needed");
    else if (utf8_find_fault(text, size) == size && looks_like_csv(text, size))
        refuse_file(lines, lines->number, "csv",
                    "the file looks like CSV: JSON Lines are needed, one JSON object per line");
}

/* ---- records -------------------------------------------------------------------------------- */

static void drop_bom(struct lines *lines, const char **text, size_t *size)
{
    struct findings findings;

    if (lines->number != 1 || !starts_with(*text, *size, BOM, 3))
        return;
    *text += 3;
    *size -= 3;
    if (!lines->cr_ends)
        return;
    findings_begin(&findings, lines->report, 1);
    findings_add(&findings, PROBLEM_WARNING, 1, "", "byte_order_mark",
                 "a byte order mark was dropped; the reference stops at it");
}

static bool end_record(struct lines *lines, const char *text, size_t size, struct error *err)
{
    lines->number++;
    lines->report->line_count++;
    if (lines->not_lines)
        return true;
    drop_bom(lines, &text, &size);
    if (!lines->begun)
        look_at_first(lines, text, size);
    if (lines->not_lines)
        return true;
    if (size && text[size - 1] == '\r')
        size--;
    return lines->callback(lines->context, text, size, lines->number, err);
}

static void refuse_long(struct lines *lines)
{
    struct findings findings;

    lines->skipping = true;
    findings_begin(&findings, lines->report, lines->number + 1);
    findings_add(&findings, PROBLEM_FATAL, 0, "", "too_large", "the line is longer than %zu bytes",
                 LIMIT_LINE_BYTES);
}

/* Ends the record whose last bytes these are. */
static bool complete(struct lines *lines, const char *bytes, size_t size, struct error *err)
{
    bool ok;

    if (lines->not_lines)
        return end_record(lines, "", 0, err);
    if (!lines->skipping && (size > LIMIT_LINE_BYTES - lines->pending.size))
        refuse_long(lines);
    if (lines->skipping) {
        lines->skipping = false;
        lines->begun = true;
        buf_clear(&lines->pending);
        lines->number++;
        lines->report->line_count++;
        return true;
    }
    if (lines->pending.size == 0)
        return end_record(lines, bytes, size, err);
    buf_append(&lines->pending, bytes, size);
    if (lines->pending.failed)
        return error_set(err, ERR_NO_MEMORY, "line %zu: out of memory", lines->number + 1);
    ok = end_record(lines, lines->pending.data, lines->pending.size, err);
    buf_clear(&lines->pending);
    return ok;
}

static bool keep(struct lines *lines, const char *bytes, size_t size, struct error *err)
{
    if (lines->skipping || lines->not_lines)
        return true;
    if (size > LIMIT_LINE_BYTES - lines->pending.size) {
        refuse_long(lines);
        return true;
    }
    buf_append(&lines->pending, bytes, size);
    if (lines->pending.failed)
        return error_set(err, ERR_NO_MEMORY, "line %zu: out of memory", lines->number + 1);
    return true;
}

static const char *find_end(const struct lines *lines, const char *bytes, size_t size)
{
    const char *lf = memchr(bytes, '\n', size), *cr = NULL;

    if (lines->cr_ends)
        cr = memchr(bytes, '\r', lf ? (size_t)(lf - bytes) : size);
    return cr ? cr : lf;
}

bool lines_feed(struct lines *lines, const char *bytes, size_t size, struct error *err)
{
    const char *end = size > 0 ? bytes + size : bytes; /* an empty file has no bytes at all */

    while (bytes < end) {
        const char *stop;

        if (lines->after_cr && *bytes == '\n') { /* the second half of a CR LF */
            lines->after_cr = false;
            bytes++;
            continue;
        }
        lines->after_cr = false;
        stop = find_end(lines, bytes, (size_t)(end - bytes));
        if (!stop)
            return keep(lines, bytes, (size_t)(end - bytes), err);
        if (!complete(lines, bytes, (size_t)(stop - bytes), err))
            return false;
        lines->after_cr = *stop == '\r';
        bytes = stop + 1;
    }
    return true;
}

bool lines_finish(struct lines *lines, struct error *err)
{
    struct dataset_report *report = lines->report;

    if ((lines->pending.size || lines->skipping) && !complete(lines, "", 0, err))
        return false;
    if (lines->number == 0)
        refuse_file(lines, 0, "empty", "the file is empty: it holds no examples");
    else if (report->blank_count - lines->blank_before == lines->number)
        refuse_file(lines, 0, "empty", "the file holds no examples: every line is blank");
    return true;
}

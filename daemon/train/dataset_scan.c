#include "daemon/train/dataset.h"

#include "daemon/train/line.h"
#include "daemon/train/lines.h"

#include <stdlib.h>
#include <string.h>

struct dataset_scan {
    struct lines lines;
    struct line line;
    struct dataset_report report;
};

static void count(struct dataset_report *report, enum line_outcome outcome)
{
    switch (outcome) {
    case LINE_BLANK:
        report->blank_count++;
        return;
    case LINE_USABLE:
        report->example_count++;
        return;
    case LINE_SKIPPED:
        report->skipped_count++;
        return;
    case LINE_FATAL:
        return;
    }
}

/* A CR inside a line is white space to strict reading and a line end to the reference. True when
 * strict reading stops at the line and the reference takes every piece. */
static bool only_pieces_pass(struct line *line, const char *text, size_t size, size_t number,
                             bool *ret_answer, struct error *err)
{
    const char *end = text + size;

    *ret_answer = false;
    if (!line_read(line, text, size, number, NULL, err))
        return false;
    if (line->outcome != LINE_FATAL)
        return true;
    while (text < end) {
        const char *cr = memchr(text, '\r', (size_t)(end - text));
        size_t piece = cr ? (size_t)(cr - text) : (size_t)(end - text);

        if (!line_read(line, text, piece, number, NULL, err))
            return false;
        if (line->outcome == LINE_FATAL)
            return true;
        text += cr ? piece + 1 : piece;
    }
    *ret_answer = true;
    return true;
}

static bool scan_line(void *context, const char *text, size_t size, size_t number,
                      struct error *err)
{
    struct dataset_scan *scan = context;
    struct findings findings;
    bool in_pieces = false;

    if (memchr(text, '\r', size) &&
        !only_pieces_pass(&scan->line, text, size, number, &in_pieces, err))
        return false;
    if (in_pieces) {
        findings_begin(&findings, &scan->report, number);
        findings_add(&findings, PROBLEM_STRICT, 0, "", "carriage_return",
                     "several records with only a carriage return between them");
        scan->report.example_count++;
        return true;
    }
    if (!line_read(&scan->line, text, size, number, &scan->report, err))
        return false;
    count(&scan->report, scan->line.outcome);
    return true;
}

bool dataset_scan_new(struct dataset_scan **ret_scan, struct error *err)
{
    struct dataset_scan *scan = calloc(1, sizeof(*scan));

    if (!scan)
        return error_set(err, ERR_NO_MEMORY, "read a data set: out of memory");
    line_init(&scan->line);
    scan->line.checks_only = true;
    lines_init(&scan->lines, &scan->report, false, scan_line, scan);
    *ret_scan = scan;
    return true;
}

bool dataset_scan_feed(struct dataset_scan *scan, const void *bytes, size_t size, struct error *err)
{
    return lines_feed(&scan->lines, bytes, size, err);
}

bool dataset_scan_finish(struct dataset_scan *scan, struct dataset_report *ret_report,
                         struct error *err)
{
    if (!lines_finish(&scan->lines, err))
        return false;
    *ret_report = scan->report;
    return true;
}

void dataset_scan_free(struct dataset_scan *scan)
{
    if (!scan)
        return;
    lines_release(&scan->lines);
    line_release(&scan->line);
    free(scan);
}

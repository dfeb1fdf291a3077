/*
 * findings: what is wrong with the lines of a data set, collected as they are read.
 *
 * Purpose    Adds one finding to a report: counted always, kept while there is room for its level, told
 *            to the report's sink.
 * Ownership  A plain value; the report is borrowed for as long as the line is read.
 * Threads    One thread.
 * Failure    Cannot fail; long texts are cut at the end of their arrays.
 */
#ifndef NEEDLED_FINDINGS_H
#define NEEDLED_FINDINGS_H

#include "daemon/train/dataset.h"

struct findings {
    struct dataset_report *report;      /* NULL: only counted */
    size_t line;                        /* of the line being read; 0: the file as a whole */
    size_t line_offset;                 /* bytes before the text that columns are counted in */
    size_t counts[PROBLEM_LEVEL_COUNT]; /* found since the line was begun */
};

void findings_begin(struct findings *findings, struct dataset_report *report, size_t line);

/* column counts from 1; 0: no place. */
void findings_add(struct findings *findings, enum problem_level level, size_t column,
                  const char *field, const char *rule, const char *format, ...) PRINTF_LIKE(6, 7);

#endif

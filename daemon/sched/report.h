/*
 * report: what was found in a data set, as JSON and as sentences.
 *
 * Purpose    Turns a dataset_report into the objects of an error's lines, the record kept with a
 *            file, and the warnings of a job.
 * Ownership  Trees belong to the caller.
 * Threads    Any.
 * Failure    Without memory the tree is NULL or marked; printing it then fails.
 */
#ifndef NEEDLED_REPORT_H
#define NEEDLED_REPORT_H

#include "daemon/train/dataset.h"

struct json;
struct notes;

/* The whole report, as GET of a file's report answers it. */
struct json *report_json(const struct dataset_report *report);

/* What a job goes on with although it was found: appended as objects {param, file, line, column,
 * field, rule, reason} to warnings, and told as events: one sentence for each finding and one for
 * what was left out, cut or skipped. param is the request's field, file the name it was uploaded
 * under, by its place among those read as one. */
void report_warnings(const struct dataset_report *report, const char *param,
                     const char *const *files, enum data_rules rules, struct json *warnings,
                     struct notes *notes);

#endif

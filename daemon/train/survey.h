/*
 * survey: what there is to know of a data set before a job is made of it.
 *
 * Purpose    One walk over a file by the trainer's own reader: counts, lengths in tokens, a page of all
 *            findings, lines that say the same, here or in another file. Memory is bounded whatever
 *            the file's size: one line, the lengths' counts, two tables of lines.
 * Ownership  survey_read fills the caller's storage, survey_release takes it back.
 * Threads    One object, one thread.
 * Failure    What is wrong with the lines is the result. `complete` is false where goes_on ended the
 *            walk: everything counts the lines up to there.
 */
#ifndef NEEDLED_SURVEY_H
#define NEEDLED_SURVEY_H

#include "daemon/train/dataset.h"
#include "daemon/train/twins.h"

#define SURVEY_LENGTH_MAX ((size_t)65536) /* longer lines are counted as this long in the parts */
#define SURVEY_PAIRS_MAX 100              /* lines that say the same, shown */
#define SURVEY_PAGE_MAX 1000              /* findings of a page */

struct survey_options {
    const char *path, *other_path;     /* other NULL: none */
    const struct tokenizer *tokenizer; /* NULL: no lengths */
    struct dataset_options reading;
    size_t problems_after, problems_limit; /* a page; the limit at most SURVEY_PAGE_MAX */
    bool (*goes_on)(void *context);
    void *context;
};

struct survey_pairs {
    size_t count;
    struct {
        size_t line, other;
    } shown[SURVEY_PAIRS_MAX];
};

struct survey {
    struct dataset_report report;
    bool complete;
    size_t problem_total;
    struct problem *problems; /* the page */
    size_t problem_count;

    uint64_t *lengths; /* lines of each length, before any cut; NULL without a tokenizer */
    size_t measured_count, length_total, longest_line;

    struct survey_pairs inside, between; /* other: the earlier line; the line of the other file */
    bool pairs_limited;                  /* more lines than are compared */
};

MUST_CHECK bool survey_read(const struct survey_options *options, struct survey *ret_survey,
                            struct error *err);
void survey_release(struct survey *survey); /* zeroed is fine */

/* The length that so many in a hundred lines do not exceed; 0 without lines. */
size_t survey_percentile(const struct survey *survey, size_t percent);

#endif

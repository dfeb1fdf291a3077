/*
 * line: one line of a data set, from its bytes to the texts the tokenizer gets.
 *
 * Purpose    The one way a line is read, whoever asks: upload, validation, training, display.
 * Ownership  line_init / line_release (caller's storage); texts live until the next line_read.
 * Threads    One object, one thread.
 * Failure    What is wrong with the line goes to the report. line_read is false only when memory is
 *            short.
 */
#ifndef NEEDLED_LINE_H
#define NEEDLED_LINE_H

#include "daemon/base/arena.h"
#include "daemon/base/buf.h"
#include "daemon/train/findings.h"
#include "daemon/train/record.h"

enum line_outcome {
    LINE_BLANK,
    LINE_USABLE,  /* prompt and target hold its texts */
    LINE_SKIPPED, /* the reference passes over it */
    LINE_FATAL,   /* no rule set takes it */
};

struct line {
    struct arena arena;
    struct buf prompt;
    struct buf target;
    struct record record;     /* of a usable line */
    struct findings findings; /* counts of the last line */
    enum line_outcome outcome;
    bool checks_only; /* set by who wants no texts: they are made only where a check needs them */
};

void line_init(struct line *line);
void line_release(struct line *line);

/* text is one record without its line end. report NULL: only counted. */
MUST_CHECK bool line_read(struct line *line, const char *text, size_t size, size_t number,
                          struct dataset_report *report, struct error *err);

#endif

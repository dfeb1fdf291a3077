/*
 * lines: a stream of bytes cut into records.
 *
 * Purpose    Counts lines as an editor does, drops a byte order mark, recognises files that are no
 *            JSON Lines at all. Only LF ends a record (with a CR before it), or also CR alone, as
 *            the reference has it.
 * Ownership  lines_init / lines_release (caller's storage).
 * Threads    One object, one thread.
 * Failure    What is wrong with the file goes to the report; false is the callback's, or memory.
 */
#ifndef NEEDLED_LINES_H
#define NEEDLED_LINES_H

#include "daemon/base/buf.h"
#include "daemon/train/dataset.h"

struct lines;

/* One record, without its line end, numbered from 1. */
typedef bool lines_callback(void *context, const char *text, size_t size, size_t number,
                            struct error *err);

struct lines {
    struct buf pending; /* the beginning of a record whose end has not come yet */
    struct dataset_report *report;
    lines_callback *callback;
    void *context;
    size_t number;       /* of the last record begun */
    size_t blank_before; /* of the report, from files read before */
    bool cr_ends;        /* CR alone ends a record */
    bool begun;          /* the first record has been looked at */
    bool skipping;       /* inside a record that is too long */
    bool not_lines;      /* the file is something else: said once, the rest is passed over */
    bool after_cr;       /* the last byte was a CR that ended a record */
};

void lines_init(struct lines *lines, struct dataset_report *report, bool cr_ends,
                lines_callback *callback, void *context);
void lines_release(struct lines *lines);
MUST_CHECK bool lines_feed(struct lines *lines, const char *bytes, size_t size, struct error *err);
/* The last record needs no line end. */
MUST_CHECK bool lines_finish(struct lines *lines, struct error *err);

#endif

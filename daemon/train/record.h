/*
 * record: what one data line says, in either format.
 *
 * Purpose    Turns a JSON object (query, tools, answers; or a chat with messages) into what the
 *            template needs, names what strict reading refuses and says what the reference does.
 * Ownership  A record points into the values it was read from and the arena it was given.
 * Threads    One arena, one thread.
 * Failure    Everything wrong with the line goes to the findings: FATAL where the reference itself
 *            stops, STRICT where it goes on, WARNING where nothing is refused.
 */
#ifndef NEEDLED_RECORD_H
#define NEEDLED_RECORD_H

#include "daemon/base/strict.h"
#include "daemon/train/findings.h"

#include <stddef.h>

struct record_text {
    const char *text; /* not terminated; size 0: absent */
    size_t size;
    size_t column;
    char field[64]; /* where it came from */
};

struct record {
    struct record_text query;
    struct record_text system;          /* stripped */
    struct record_text reasoning;       /* stripped */
    const struct strict_value *tools;   /* a string is used verbatim; NULL: [] */
    const struct strict_value *answers; /* the same */
    bool is_chat;
};

/* What the reference does with the line. */
enum record_fate {
    RECORD_TAKEN,
    RECORD_SKIPPED, /* passed over: *ret_record is not written */
    RECORD_FATAL,   /* the reference stops with an exception: the same */
};

enum record_fate record_read(const struct strict_value *line, struct arena *arena,
                             struct findings *findings, struct record *ret_record);

/* Adds what reading a text within a line found, its place being the string that holds it. */
void record_add_notes(struct findings *findings, const struct strict_report *report,
                      const char *field, size_t column);

/* What Python takes for false: null, false, zero, and whatever is empty. */
bool record_is_falsy(const struct strict_value *value);

#endif

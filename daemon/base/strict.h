/*
 * strict: the reader of data lines, which keeps what a training target must keep.
 *
 * Purpose    Reads one JSON value that must fill the whole text: numbers keep their digits, strings
 *            their NULs and lengths, objects the order of their keys. What only the reference
 *            implementation takes (NaN and infinities, repeated keys, lone surrogates) is read as
 *            it reads it and noted, so that one pass serves strict and as_reference alike.
 * Ownership  Values live in the caller's arena and may point into the text: both must outlive them.
 * Threads    One arena, one thread.
 * Failure    False when no rule set takes the text; report->fault then says where and why.
 */
#ifndef NEEDLED_STRICT_H
#define NEEDLED_STRICT_H

#include "daemon/base/arena.h"
#include "daemon/base/error.h"

#include <stddef.h>

#define STRICT_NOTE_MAX 4      /* notes kept per text */
#define STRICT_DIGITS_MAX 4300 /* of a whole number: the reference's own limit */

enum strict_kind {
    STRICT_NULL,
    STRICT_BOOL,
    STRICT_INT,   /* digits alone */
    STRICT_FLOAT, /* with a fraction or an exponent; NaN, Infinity, -Infinity */
    STRICT_STRING,
    STRICT_ARRAY,
    STRICT_OBJECT,
};

struct strict_value {
    enum strict_kind kind;
    bool flag;        /* of STRICT_BOOL */
    const char *text; /* STRICT_STRING: decoded; numbers: as written. Not terminated */
    size_t size;      /* bytes of text */
    size_t column;    /* where it starts, from 1, in bytes */
    const char *key;  /* of a member: decoded, not terminated; NULL otherwise */
    size_t key_size;
    size_t key_column;          /* where its key starts */
    size_t count;               /* of children */
    struct strict_value *child; /* first element or member */
    struct strict_value *next;  /* sibling */
};

struct strict_finding {
    size_t column;    /* from 1, in bytes */
    const char *rule; /* "not_json", "not_utf8", "duplicate_key", ... */
    char field[64];   /* "answers[0].arguments", "" at the top */
    char reason[160];
};

struct strict_report {
    struct strict_finding fault;                  /* set when strict_read returns false */
    struct strict_finding notes[STRICT_NOTE_MAX]; /* what strict reading refuses */
    size_t note_count;                            /* all of them, kept or not */
};

MUST_CHECK bool strict_read(const char *text, size_t size, struct arena *arena,
                            struct strict_report *ret_report, struct strict_value **ret_value);

/* The member of that name, or NULL. */
const struct strict_value *strict_member(const struct strict_value *object, const char *name);

/* True when the value is this very string. */
bool strict_is(const struct strict_value *value, const char *text);

/* "a string", "an object", ... for messages. */
const char *strict_kind_name(enum strict_kind kind);

#endif

/*
 * strict_scan: the lower half of the strict reader: place, findings, numbers and strings.
 *
 * Purpose    strict.c knows values and containers; this knows bytes. For strict.c alone.
 * Ownership  The reader is on strict_read's stack; decoded strings live in its arena.
 * Threads    One reader, one thread.
 * Failure    strict_scan_refuse* write the report's fault and return false.
 */
#ifndef NEEDLED_STRICT_SCAN_H
#define NEEDLED_STRICT_SCAN_H

#include "daemon/base/limits.h"
#include "daemon/base/strict.h"

#include <assert.h>

/* Where we are inside one open container. */
struct strict_place {
    const char *key; /* NULL inside an array */
    size_t key_size;
    size_t index;
};

struct strict_reader {
    const char *text;
    size_t size;
    size_t at;
    unsigned depth;
    struct arena *arena;
    struct strict_report *report;
    struct strict_place places[LIMIT_JSON_DEPTH];
    size_t place_count; /* depth while inside an element, one less between elements */
};

/* No rule set takes it. Returns false. */
bool strict_scan_refuse(struct strict_reader *reader, size_t at, const char *rule,
                        const char *format, ...) PRINTF_LIKE(4, 5);
bool strict_scan_refuse_memory(struct strict_reader *reader);
bool strict_scan_refuse_here(struct strict_reader *reader, const char *wanted);
/* Only strict reading refuses it. */
void strict_scan_note(struct strict_reader *reader, size_t at, const char *rule, const char *format,
                      ...) PRINTF_LIKE(4, 5);
/* The small steps of every value are here, to be part of their callers. */

/* From here to the next `place_count--`, findings name this element. */
static inline void strict_scan_enter(struct strict_reader *reader, const char *key, size_t key_size,
                                     size_t index)
{
    assert(reader->place_count < LIMIT_JSON_DEPTH);
    reader->places[reader->place_count++] =
        (struct strict_place){.key = key, .key_size = key_size, .index = index};
}

static inline void strict_scan_skip_space(struct strict_reader *reader)
{
    while (reader->at < reader->size) {
        char byte = reader->text[reader->at];

        if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r')
            break;
        reader->at++;
    }
}

static inline bool strict_scan_take_char(struct strict_reader *reader, char byte)
{
    if (reader->at >= reader->size || reader->text[reader->at] != byte)
        return false;
    reader->at++;
    return true;
}

bool strict_scan_take_word(struct strict_reader *reader, const char *word);

/* The reader stands on the first digit or sign; behind the word; on the opening quote. */
bool strict_scan_read_number(struct strict_reader *reader, struct strict_value *value);
bool strict_scan_read_infinity(struct strict_reader *reader, struct strict_value *value);
bool strict_scan_read_string(struct strict_reader *reader, const char **ret_text, size_t *ret_size);

#endif

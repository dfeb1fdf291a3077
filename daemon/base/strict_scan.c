#include "daemon/base/strict_scan.h"

#include "daemon/base/utf8.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- findings -------------------------------------------------------------------------------- */

static void put_path(const struct strict_reader *reader, char *path, size_t capacity)
{
    size_t used = 0;

    for (size_t i = 0; i < reader->place_count && used < capacity; i++) {
        const struct strict_place *place = &reader->places[i];
        int length;

        if (!place->key)
            length = snprintf(path + used, capacity - used, "[%zu]", place->index);
        else
            length = snprintf(path + used, capacity - used, "%s%.*s", used ? "." : "",
                              (int)(place->key_size < capacity ? place->key_size : capacity),
                              place->key);
        used += (size_t)length;
    }
}

static void fill_finding(const struct strict_reader *reader, struct strict_finding *finding,
                         size_t at, const char *rule, const char *format, va_list args)
{
    *finding = (struct strict_finding){.column = at + 1, .rule = rule};
    put_path(reader, finding->field, sizeof(finding->field));
    (void)vsnprintf(finding->reason, sizeof(finding->reason), format, args);
}

bool strict_scan_refuse(struct strict_reader *reader, size_t at, const char *rule,
                        const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill_finding(reader, &reader->report->fault, at, rule, format, args);
    va_end(args);
    return false;
}

void strict_scan_note(struct strict_reader *reader, size_t at, const char *rule, const char *format,
                      ...)
{
    struct strict_report *report = reader->report;
    va_list args;

    if (report->note_count < STRICT_NOTE_MAX) {
        va_start(args, format);
        fill_finding(reader, &report->notes[report->note_count], at, rule, format, args);
        va_end(args);
    }
    report->note_count++;
}

bool strict_scan_refuse_memory(struct strict_reader *reader)
{
    return strict_scan_refuse(reader, reader->at, "too_large",
                              "more values than %zu bytes of memory hold",
                              reader->arena->max_bytes);
}

bool strict_scan_refuse_here(struct strict_reader *reader, const char *wanted)
{
    unsigned char byte;

    if (reader->at >= reader->size)
        return strict_scan_refuse(reader, reader->at, "cut_off",
                                  "the text is cut off here: %s was expected", wanted);
    byte = (unsigned char)reader->text[reader->at];
    if (byte == 0)
        return strict_scan_refuse(reader, reader->at, "nul_byte",
                                  "a raw NUL byte (0x00) stands here");
    if (byte < 0x20 || byte >= 0x7f)
        return strict_scan_refuse(reader, reader->at, "not_json",
                                  "not JSON: byte 0x%02x where %s was expected", byte, wanted);
    return strict_scan_refuse(reader, reader->at, "not_json",
                              "not JSON: '%c' where %s was expected", byte, wanted);
}

/* ---- small pieces ---------------------------------------------------------------------------- */

bool strict_scan_take_word(struct strict_reader *reader, const char *word)
{
    size_t length = strlen(word);

    if (reader->size - reader->at < length || memcmp(reader->text + reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static size_t take_digits(struct strict_reader *reader)
{
    size_t start = reader->at;

    while (reader->at < reader->size && reader->text[reader->at] >= '0' &&
           reader->text[reader->at] <= '9')
        reader->at++;
    return reader->at - start;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool is_infinite(const struct strict_value *value)
{
    char shorter[STRICT_DIGITS_MAX + 64];

    (void)snprintf(shorter, sizeof(shorter), "%.*s", (int)value->size, value->text);
    return isinf(strtod(shorter, NULL));
}

bool strict_scan_read_infinity(struct strict_reader *reader, struct strict_value *value)
{
    size_t start = value->column - 1;

    value->kind = STRICT_FLOAT;
    value->text = reader->text + start;
    value->size = reader->at - start;
    strict_scan_note(reader, start, "not_a_number", "%.*s is not JSON", (int)value->size,
                     value->text);
    return true;
}

bool strict_scan_read_number(struct strict_reader *reader, struct strict_value *value)
{
    size_t start = reader->at, digits, mark;

    (void)strict_scan_take_char(reader, '-');
    if (strict_scan_take_word(reader, "Infinity"))
        return strict_scan_read_infinity(reader, value);
    mark = reader->at;
    digits = take_digits(reader);
    if (digits == 0)
        return strict_scan_refuse_here(reader, "a digit");
    if (digits > 1 && reader->text[mark] == '0')
        return strict_scan_refuse(reader, mark, "not_json",
                                  "not JSON: a number starts with a needless 0");
    value->kind = STRICT_INT;
    if (strict_scan_take_char(reader, '.')) {
        value->kind = STRICT_FLOAT;
        if (take_digits(reader) == 0)
            return strict_scan_refuse_here(reader, "a digit after the point");
    }
    if (strict_scan_take_char(reader, 'e') || strict_scan_take_char(reader, 'E')) {
        value->kind = STRICT_FLOAT;
        if (!strict_scan_take_char(reader, '+'))
            (void)strict_scan_take_char(reader, '-');
        if (take_digits(reader) == 0)
            return strict_scan_refuse_here(reader, "a digit of the exponent");
    }
    if (reader->at - start > STRICT_DIGITS_MAX)
        return strict_scan_refuse(reader, start, "too_large", "a number of more than %d digits",
                                  STRICT_DIGITS_MAX);
    value->text = reader->text + start;
    value->size = reader->at - start;
    if (value->kind == STRICT_FLOAT && is_infinite(value))
        strict_scan_note(
            reader, start, "not_a_number", "'%.*s%s' is too large for a number and means Infinity",
            (int)(value->size < 40 ? value->size : 40), value->text, value->size < 40 ? "" : "...");
    return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

static bool read_hex(struct strict_reader *reader, uint32_t *ret_code)
{
    uint32_t code = 0;

    for (int i = 0; i < 4; i++) {
        char byte;

        if (reader->at >= reader->size)
            return strict_scan_refuse_here(reader, "a hex digit");
        byte = reader->text[reader->at];
        if (byte >= '0' && byte <= '9')
            code = code << 4 | (uint32_t)(byte - '0');
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            code = code << 4 | (uint32_t)((byte | 0x20) - 'a' + 10);
        else
            return strict_scan_refuse_here(reader, "four hex digits after \\u");
        reader->at++;
    }
    *ret_code = code;
    return true;
}

static bool read_unicode_escape(struct strict_reader *reader, char *out, size_t *used)
{
    size_t start = reader->at - 2; /* the backslash */
    uint32_t code = 0, low = 0;

    if (!read_hex(reader, &code))
        return false;
    if (code >= 0xd800 && code <= 0xdbff && reader->size - reader->at >= 2 &&
        reader->text[reader->at] == '\\' && reader->text[reader->at + 1] == 'u') {
        size_t second = reader->at;

        reader->at += 2;
        if (!read_hex(reader, &low))
            return false;
        if (low >= 0xdc00 && low <= 0xdfff)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
            reader->at = second; /* an escape of its own */
    }
    if (code >= 0xd800 && code <= 0xdfff)
        strict_scan_note(reader, start, "lone_surrogate", "\\u%04x is half of a character", code);
    *used += utf8_encode(code, out + *used);
    return true;
}

static bool read_escape(struct strict_reader *reader, char *out, size_t *used)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    char byte;

    reader->at++; /* the backslash */
    if (reader->at >= reader->size)
        return strict_scan_refuse_here(reader, "the rest of an escape");
    byte = reader->text[reader->at];
    if (byte == 'u') {
        reader->at++;
        return read_unicode_escape(reader, out, used);
    }
    letter = byte ? strchr(letters, byte) : NULL;
    if (!letter)
        return strict_scan_refuse_here(reader, "one of \"\\/bfnrtu after a backslash");
    out[(*used)++] = meanings[letter - letters];
    reader->at++;
    return true;
}

static bool refuse_control(struct strict_reader *reader)
{
    unsigned char byte = (unsigned char)reader->text[reader->at];

    if (byte == 0)
        return strict_scan_refuse(reader, reader->at, "nul_byte",
                                  "a raw NUL byte (0x00) stands in a string");
    return strict_scan_refuse(reader, reader->at, "control_character",
                              "a raw control character (0x%02x) stands in a string: write \\u%04x",
                              byte, byte);
}

/* The first byte from `at` on that is no plain text of a string: a quote, a backslash or a control
 * character. Eight at once: a borrow in the sums goes upwards, so the lowest byte marked is one, and
 * which is the lowest needs a machine that stores low bytes first; others look one by one. */
static size_t skip_plain(const char *text, size_t at, size_t size)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = UINT64_C(0x8080808080808080);
    uint64_t word, quotes, backslashes, marks;

    while (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && size - at >= sizeof(word)) {
        memcpy(&word, text + at, sizeof(word));
        quotes = word ^ ones * '"';
        backslashes = word ^ ones * '\\';
        marks = (((quotes - ones) & ~quotes) | ((backslashes - ones) & ~backslashes) |
                 ((word - ones * 0x20) & ~word)) &
                tops;
        if (marks)
            return at + (size_t)__builtin_ctzll(marks) / 8;
        at += sizeof(word);
    }
    while (at < size && text[at] != '"' && text[at] != '\\' && (unsigned char)text[at] >= 0x20)
        at++;
    return at;
}

/* Finds the closing quote and whether there are escapes; the reader stands on the opening one. A
 * control byte before the end is the better story than a missing end. */
static bool find_end(struct strict_reader *reader, size_t *ret_end, bool *ret_escaped)
{
    bool escaped = false;
    size_t start = reader->at, at = skip_plain(reader->text, start + 1, reader->size);

    while (at < reader->size && reader->text[at] != '"') {
        if (reader->text[at] != '\\') {
            reader->at = at;
            return refuse_control(reader);
        }
        escaped = true;
        at += 2;
        if (at < reader->size)
            at = skip_plain(reader->text, at, reader->size);
    }
    if (at >= reader->size)
        return strict_scan_refuse(reader, start, "cut_off",
                                  "the text is cut off: the string that starts here never ends");
    *ret_end = at;
    *ret_escaped = escaped;
    return true;
}

bool strict_scan_read_string(struct strict_reader *reader, const char **ret_text, size_t *ret_size)
{
    size_t end = 0, used = 0;
    bool escaped = false;
    char *out = NULL;

    if (!find_end(reader, &end, &escaped))
        return false;
    reader->at++;
    if (!escaped) {
        *ret_text = reader->text + reader->at;
        *ret_size = end - reader->at;
        reader->at = end + 1;
        return true;
    }
    out =
        arena_alloc(reader->arena, end - reader->at); /* an escape is never shorter than it says */
    if (!out)
        return strict_scan_refuse_memory(reader);
    while (reader->text[reader->at] != '"') {
        if (reader->text[reader->at] == '\\') {
            if (!read_escape(reader, out, &used))
                return false;
        } else {
            out[used++] = reader->text[reader->at++];
        }
    }
    reader->at++;
    *ret_text = out;
    *ret_size = used;
    return true;
}

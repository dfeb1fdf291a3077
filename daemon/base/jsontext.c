#include "daemon/base/jsontext.h"

#include "daemon/base/utf8.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 17 /* enough for every double */
#define FIXED_MIN -4  /* Python's repr uses an exponent below 1e-4 and from 1e16 on */
#define FIXED_MAX 16

struct style {
    const char *comma, *colon;
    bool ascii, sorted;
};

static const struct style compact = {",", ":", false, false};
static const struct style sorted_ascii = {", ", ": ", true, true};

/* ---- numbers -------------------------------------------------------------------------------- */

/* Moves the last of the digits in "d.ddde+XX" up by one; false when that would carry. */
static bool raise_last_digit(char *scientific)
{
    char *exponent = strchr(scientific, 'e');

    assert(exponent);
    if (exponent[-1] == '9')
        return false;
    exponent[-1]++;
    return true;
}

/* The fewest digits that read back equal, as "d.ddde+XX". The nearest decimal of a length can miss
 * where the doubles below lie denser than those above (powers of two); then the next one up hits.
 */
static void find_shortest(double magnitude, char *scientific, size_t capacity)
{
    for (int digits = 1; digits <= DIGITS_MAX; digits++) {
        (void)snprintf(scientific, capacity, "%.*e", digits - 1, magnitude);
        if (strtod(scientific, NULL) == magnitude)
            return;
        if (raise_last_digit(scientific) && strtod(scientific, NULL) == magnitude)
            return;
    }
}

void jsontext_format_double(double number, char ret_text[JSONTEXT_NUMBER_MAX])
{
    char scientific[JSONTEXT_NUMBER_MAX], digits[DIGITS_MAX + 1];
    const char *sign = signbit(number) ? "-" : "";
    int count = 0, point, exponent;

    if (isnan(number)) {
        (void)snprintf(ret_text, JSONTEXT_NUMBER_MAX, "NaN");
        return;
    }
    if (isinf(number)) {
        (void)snprintf(ret_text, JSONTEXT_NUMBER_MAX, "%sInfinity", sign);
        return;
    }
    find_shortest(fabs(number), scientific, sizeof(scientific));
    for (const char *next = scientific; *next != 'e'; next++)
        if (*next != '.')
            digits[count++] = *next;
    digits[count] = '\0';
    exponent = (int)strtod(strchr(scientific, 'e') + 1, NULL);
    point = exponent + 1; /* digits before the point */
    if (exponent < FIXED_MIN || exponent >= FIXED_MAX)
        (void)snprintf(ret_text, JSONTEXT_NUMBER_MAX, "%s%c%s%s%s", sign, digits[0],
                       count > 1 ? "." : "", digits + 1, strchr(scientific, 'e'));
    else if (point <= 0)
        (void)snprintf(ret_text, JSONTEXT_NUMBER_MAX, "%s0.%.*s%s", sign, -point, "0000", digits);
    else if (point >= count)
        (void)snprintf(ret_text, JSONTEXT_NUMBER_MAX, "%s%s%.*s.0", sign, digits, point - count,
                       "0000000000000000");
    else
        (void)snprintf(ret_text, JSONTEXT_NUMBER_MAX, "%s%.*s.%s", sign, point, digits,
                       digits + point);
}

static void write_number(const struct strict_value *value, struct buf *out)
{
    char text[JSONTEXT_NUMBER_MAX];
    char terminated[STRICT_DIGITS_MAX + 1];

    if (value->kind == STRICT_INT) {
        if (value->size == 2 && memcmp(value->text, "-0", 2) == 0)
            buf_append_char(out, '0');
        else
            buf_append(out, value->text, value->size);
        return;
    }
    assert(value->size <= STRICT_DIGITS_MAX);
    memcpy(terminated, value->text, value->size);
    terminated[value->size] = '\0';
    jsontext_format_double(strtod(terminated, NULL), text); /* knows NaN and Infinity too */
    buf_append_text(out, text);
}

/* ---- strings -------------------------------------------------------------------------------- */

static const char *short_escape(unsigned char byte)
{
    switch (byte) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        return NULL;
    }
}

/* A surrogate written as three bytes is decoded here too, which utf8_decode refuses. */
static size_t decode_any(const char *text, size_t size, uint32_t *ret_code)
{
    size_t length = utf8_decode(text, size, ret_code);

    if (length)
        return length;
    assert(size >= 3 && utf8_find_surrogate(text, size) == 0);
    *ret_code = 0xd000u | ((uint32_t)((unsigned char)text[1] & 0x3f) << 6) |
                ((unsigned char)text[2] & 0x3fu);
    return 3;
}

static void write_ascii_escape(uint32_t code, struct buf *out)
{
    if (code >= 0x10000)
        buf_format(out, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                   0xdc00 + ((code - 0x10000) & 0x3ff));
    else
        buf_format(out, "\\u%04x", code);
}

static void write_string(const char *text, size_t size, bool ascii, struct buf *out)
{
    size_t plain = 0, i = 0;

    buf_append_char(out, '"');
    while (i < size) {
        unsigned char byte = (unsigned char)text[i];
        const char *escape = byte < 0x80 ? short_escape(byte) : NULL;
        size_t length = 1;
        uint32_t code = byte;

        if (!escape && byte >= 0x20 && (byte < 0x7f || !ascii)) {
            i++;
            continue;
        }
        if (byte >= 0x80)
            length = decode_any(text + i, size - i, &code);
        buf_append(out, text + plain, i - plain);
        if (escape)
            buf_append_text(out, escape);
        else
            write_ascii_escape(code, out);
        i += length;
        plain = i;
    }
    buf_append(out, text + plain, size - plain);
    buf_append_char(out, '"');
}

void jsontext_write_string(const char *text, size_t size, struct buf *out)
{
    write_string(text, size, false, out);
}

/* ---- values --------------------------------------------------------------------------------- */

static void write_value(const struct strict_value *value, const struct style *style,
                        struct buf *out);

static void write_member(const struct strict_value *member, const struct style *style,
                         struct buf *out)
{
    write_string(member->key, member->key_size, style->ascii, out);
    buf_append_text(out, style->colon);
    write_value(member, style, out);
}

/* UTF-8 sorts by bytes as by code points. */
static int compare_keys(const void *left, const void *right)
{
    const struct strict_value *a = *(const struct strict_value *const *)left;
    const struct strict_value *b = *(const struct strict_value *const *)right;
    size_t shorter = a->key_size < b->key_size ? a->key_size : b->key_size;
    int order = shorter ? memcmp(a->key, b->key, shorter) : 0;

    if (order)
        return order;
    return a->key_size < b->key_size ? -1 : a->key_size > b->key_size;
}

static void write_sorted_members(const struct strict_value *object, const struct style *style,
                                 struct buf *out)
{
    const struct strict_value **members;
    size_t i = 0;

    members = calloc(object->count ? object->count : 1, sizeof(*members));
    if (!members) {
        out->failed = true;
        return;
    }
    for (const struct strict_value *member = object->child; member; member = member->next)
        members[i++] = member;
    qsort(members, object->count, sizeof(*members), compare_keys);
    for (i = 0; i < object->count; i++) {
        if (i)
            buf_append_text(out, style->comma);
        write_member(members[i], style, out);
    }
    free(members);
}

static void write_children(const struct strict_value *parent, const struct style *style,
                           struct buf *out)
{
    for (const struct strict_value *child = parent->child; child; child = child->next) {
        if (child != parent->child)
            buf_append_text(out, style->comma);
        if (parent->kind == STRICT_OBJECT)
            write_member(child, style, out);
        else
            write_value(child, style, out);
    }
}

static void write_value(const struct strict_value *value, const struct style *style,
                        struct buf *out)
{
    switch (value->kind) {
    case STRICT_NULL:
        buf_append_text(out, "null");
        return;
    case STRICT_BOOL:
        buf_append_text(out, value->flag ? "true" : "false");
        return;
    case STRICT_INT:
    case STRICT_FLOAT:
        write_number(value, out);
        return;
    case STRICT_STRING:
        write_string(value->text, value->size, style->ascii, out);
        return;
    case STRICT_ARRAY:
        buf_append_char(out, '[');
        write_children(value, style, out);
        buf_append_char(out, ']');
        return;
    case STRICT_OBJECT:
        buf_append_char(out, '{');
        if (style->sorted)
            write_sorted_members(value, style, out);
        else
            write_children(value, style, out);
        buf_append_char(out, '}');
        return;
    }
}

void jsontext_write(const struct strict_value *value, struct buf *out)
{
    write_value(value, &compact, out);
}

void jsontext_write_sorted(const struct strict_value *value, struct buf *out)
{
    write_value(value, &sorted_ascii, out);
}

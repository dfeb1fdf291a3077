/*
 * jsontext: values of data lines as text, byte for byte as the reference writes them.
 *
 * Purpose    The text of a training target is decided here: numbers as Python prints them, strings
 *            escaped as Python escapes them, keys in the order they came.
 * Ownership  None; text goes to the caller's buf.
 * Threads    One buf, one thread.
 * Failure    The buf's own: check it at the end.
 */
#ifndef NEEDLED_JSONTEXT_H
#define NEEDLED_JSONTEXT_H

#include "daemon/base/buf.h"
#include "daemon/base/strict.h"

#define JSONTEXT_NUMBER_MAX 32 /* bytes of a float as text, with its NUL */

/* As json.dumps(value, separators=(",", ":"), ensure_ascii=False). A lone surrogate comes out as
 * the three bytes utf8_encode gives: ask utf8_find_surrogate before calling it UTF-8. */
void jsontext_write(const struct strict_value *value, struct buf *out);

/* As json.dumps(value, sort_keys=True): ", " and ": ", ASCII only, keys by code point. */
void jsontext_write_sorted(const struct strict_value *value, struct buf *out);

/* A float as Python's repr(): the shortest digits that read back equal. */
void jsontext_format_double(double number, char ret_text[JSONTEXT_NUMBER_MAX]);

/* A string with its quotes, escaped as above. */
void jsontext_write_string(const char *text, size_t size, struct buf *out);

#endif

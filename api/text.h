/*
 * text: the small texts of HTTP: percent escapes, header parameters, names, numbers.
 *
 * Purpose    One place for each rule that a request's texts follow.
 * Ownership  Results go to the caller's storage.
 * Threads    Any.
 * Failure    False, and the result is not to be used.
 */
#ifndef NEEDLED_API_TEXT_H
#define NEEDLED_API_TEXT_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct buf;

/* Escapes a path segment: what RFC 3986 does not reserve stays, and ":". */
void text_encode(const char *segment, struct buf *out);
/* Decodes percent escapes in place. False for a broken escape, a NUL or what is not UTF-8. */
MUST_CHECK bool text_decode(char *text);
/* An RFC 5987 value (charset'language'escapes) in place; UTF-8 only. */
MUST_CHECK bool text_decode_extended(char *value);

/* The value after a parameter's "=", quoted (with \" and \\ and %22) or up to the next ; or blank. */
MUST_CHECK bool text_read_value(const char *at, char *ret_value, size_t capacity);
/* Behind a parameter, on its ";" or the end; a ; inside quotes does not count. */
const char *text_skip_parameter(const char *at);
/* True when a media type is this one, whatever parameters follow. */
bool text_is_media_type(const char *content_type, const char *wanted);
/* True when a list such as Accept names this media type. */
bool text_accepts(const char *accept, const char *wanted);

/* A whole number in decimal digits alone, at most max. */
MUST_CHECK bool text_read_number(const char *text, int64_t max, int64_t *ret_number);

/* A label from a file name: the part after the last / or \, control bytes and what is not UTF-8 as
 * "_", cut to capacity at a character's end. Never empty. */
void text_label(char *ret_label, size_t capacity, const char *filename);

/* That a text which people will read in a list has no control character; field names it. */
MUST_CHECK bool text_check_label(const char *field, const char *text, struct error *err);

/* Equal, in a time that depends on the length of `given` alone. */
bool text_equal_secret(const char *given, const char *secret);

#endif

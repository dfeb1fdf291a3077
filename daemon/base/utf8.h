/*
 * utf8: bytes that claim to be UTF-8.
 *
 * Purpose    Finds the first wrong byte, walks code points, strips the white space Python strips.
 * Ownership  None; ranges point into the caller's text.
 * Threads    Any.
 * Failure    Cannot fail; a wrong byte is an answer.
 */
#ifndef NEEDLED_UTF8_H
#define NEEDLED_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_BYTES_MAX 4

/* Offset of the first byte that is not part of well-formed UTF-8; size when there is none.
 * Surrogates, overlong forms and values past U+10FFFF are wrong. */
size_t utf8_find_fault(const char *text, size_t size);

/* Length in bytes of the code point at text (size > 0), or 0 if it is not well formed. */
size_t utf8_decode(const char *text, size_t size, uint32_t *ret_code);

/* The bytes of a code point; surrogates are written as if they were characters (three bytes), so
 * that the reader of data lines can keep what an escape said. Returns the length. */
size_t utf8_encode(uint32_t code, char ret_bytes[UTF8_BYTES_MAX]);

/* Offset of the first surrogate written as above, in text that is well formed otherwise; size when
 * there is none. */
size_t utf8_find_surrogate(const char *text, size_t size);

/* Offset of the first control character (below a space, DELETE, U+0080 to U+009F) that is none of the
 * bytes in `taken`; size when there is none. The text is well formed. */
size_t utf8_find_control(const char *text, size_t size, const char *taken);

/* The longest beginning of well-formed text that is at most max bytes and ends on a character. */
size_t utf8_cut(const char *text, size_t size, size_t max);

bool utf8_is_space(uint32_t code); /* as Python's str.isspace() */

/* Narrows the range to what Python's str.strip() leaves. Wrong bytes count as text. */
void utf8_strip(const char **text, size_t *size);

#endif

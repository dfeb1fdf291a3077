/*
 * buf: a byte buffer that grows up to a stated maximum.
 *
 * Purpose    Builds text and binary answers without counting bytes at each call.
 * Ownership  buf_init / buf_release (caller's storage); buf_take hands the memory to the caller,
 *            who frees it with free().
 * Threads    One thread at a time.
 * Failure    The first failed append sets `failed`; later ones do nothing. Check once at the end.
 */
#ifndef NEEDLED_BUF_H
#define NEEDLED_BUF_H

#include "daemon/base/error.h"

#include <stddef.h>

struct buf {
    char *data; /* always NUL-terminated once something was appended; the NUL is not counted */
    size_t size;
    size_t capacity;
    size_t max_size;
    bool failed;
    bool no_memory; /* that is why it failed; else the bound is */
};

void buf_init(struct buf *buf, size_t max_size);
void buf_release(struct buf *buf); /* NULL is fine */
void buf_clear(struct buf *buf);   /* empties, keeps the memory, resets `failed` */
void buf_append(struct buf *buf, const void *bytes, size_t size);
void buf_append_text(struct buf *buf, const char *text);
void buf_append_char(struct buf *buf, char byte);
void buf_format(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
char *buf_take(struct buf *buf, size_t *ret_size); /* NULL if failed; buf is empty afterwards */

#endif

#include "daemon/base/buf.h"

#include "daemon/base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64

void buf_init(struct buf *buf, size_t max_size)
{
    *buf = (struct buf){.max_size = max_size};
}

void buf_release(struct buf *buf)
{
    if (!buf)
        return;
    free(buf->data);
    *buf = (struct buf){.max_size = buf->max_size};
}

void buf_clear(struct buf *buf)
{
    buf->size = 0;
    buf->failed = buf->no_memory = false;
    if (buf->data)
        buf->data[0] = '\0';
}

/* Room for `size` more bytes and the NUL. */
static bool reserve(struct buf *buf, size_t size)
{
    size_t wanted, capacity = buf->capacity ? buf->capacity : CAPACITY_MIN;
    char *grown;

    if (buf->failed)
        return false;
    if (!size_add(buf->size, size, &wanted) || wanted > buf->max_size ||
        !size_add(wanted, 1, &wanted)) {
        buf->failed = true;
        return false;
    }
    if (wanted <= buf->capacity)
        return true;
    while (capacity < wanted)
        if (!size_mul(capacity, 2, &capacity))
            capacity = wanted;
    grown = realloc(buf->data, capacity);
    if (!grown) {
        buf->failed = buf->no_memory = true;
        return false;
    }
    buf->data = grown;
    buf->capacity = capacity;
    return true;
}

void buf_append(struct buf *buf, const void *bytes, size_t size)
{
    if (!reserve(buf, size))
        return;
    if (size)
        memcpy(buf->data + buf->size, bytes, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void buf_append_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_append_char(struct buf *buf, char byte)
{
    buf_append(buf, &byte, 1);
}

void buf_format(struct buf *buf, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        buf->failed = true;
        return;
    }
    if (!reserve(buf, (size_t)length))
        return;
    va_start(args, format);
    (void)vsnprintf(buf->data + buf->size, (size_t)length + 1, format, args);
    va_end(args);
    buf->size += (size_t)length;
}

char *buf_take(struct buf *buf, size_t *ret_size)
{
    char *data;

    if (!reserve(buf, 0)) { /* an empty buf becomes an empty text */
        buf_release(buf);
        return NULL;
    }
    buf->data[buf->size] = '\0';
    data = buf->data;
    if (ret_size)
        *ret_size = buf->size;
    buf_init(buf, buf->max_size);
    return data;
}

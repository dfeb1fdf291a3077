/*
 * multipart: reads a multipart/form-data body as it arrives.
 *
 * Purpose    Cuts a body into parts and hands each part's bytes on unchanged, in any pieces it came
 *            in.
 * Ownership  multipart_new / multipart_free; callbacks' arguments live for the call.
 * Threads    One reader, one thread at a time.
 * Failure    A body that breaks the format is ERR_INVALID and says where; a callback's refusal ends
 *            the reading with its own error. Part headers past MULTIPART_HEADER_MAX bytes or
 *            MULTIPART_PART_MAX parts are ERR_LIMIT. Once failed, feed again fails.
 */
#ifndef NEEDLED_API_MULTIPART_H
#define NEEDLED_API_MULTIPART_H

#include "daemon/base/error.h"

#include <stddef.h>

#define MULTIPART_HEADER_MAX 8192
#define MULTIPART_PART_MAX 32
#define MULTIPART_BOUNDARY_MAX 70 /* RFC 2046 */

struct multipart_events {
    /* filename NULL: none was given. */
    bool (*begin)(void *context, const char *name, const char *filename, struct error *err);
    bool (*data)(void *context, const char *bytes, size_t size, struct error *err);
    bool (*end)(void *context, struct error *err);
    void *context;
};

struct multipart;

MUST_CHECK bool multipart_new(const char *content_type, const struct multipart_events *events,
                              struct multipart **ret_reader, struct error *err);
void multipart_free(struct multipart *reader); /* NULL is fine */
MUST_CHECK bool multipart_feed(struct multipart *reader, const char *bytes, size_t size,
                               struct error *err);
/* The body is at its end: the closing boundary must have been seen. */
MUST_CHECK bool multipart_finish(const struct multipart *reader, struct error *err);

#endif

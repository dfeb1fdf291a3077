/*
 * response: an answer, before the library has it.
 *
 * Purpose    Holds what a handler decided (JSON, a file, an event stream, a refusal) and turns it
 *            into the library's response with the headers every answer has. The one table from
 *            error codes to HTTP statuses is in its .c.
 * Ownership  response_init / response_release (caller's storage); response_build takes the content.
 * Threads    One thread at a time.
 * Failure    Without memory an error answer becomes a fixed text; response_build returns NULL.
 */
#ifndef NEEDLED_API_RESPONSE_H
#define NEEDLED_API_RESPONSE_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct buf;
struct json;
struct stream;
struct MHD_Response;

enum response_kind { RESPONSE_BYTES, RESPONSE_STATIC, RESPONSE_FILE, RESPONSE_STREAM };

struct response_header {
    const char *name, *value; /* static texts */
};

struct response {
    enum response_kind kind;
    unsigned status;
    const char *content_type; /* static text, or NULL */
    const char *attachment;   /* file name to save under, static text, or NULL */
    char *bytes;              /* owned */
    size_t size_bytes;
    const char *static_bytes; /* of the program */
    /* Further ones, up to a NULL name; they say how long the answer is kept. NULL: none, not kept. */
    const struct response_header *headers;
    int descriptor;                                    /* owned; -1: none */
    uint64_t file_size_bytes, range_start, range_size; /* of the file; all of it but for a 206 */
    struct stream *stream;                             /* owned; NULL: headers alone (HEAD) */
    char allow[64];                                    /* methods of a 405 */
    char *location;                                    /* of a redirect; owned, or NULL */
    bool replayed;                                     /* an earlier request was answered with it */
    char cookie[320];                                  /* a Set-Cookie; "" none */
    char etag[80];                                     /* of a file, with its quotes; "" none */
};

void response_init(struct response *response);
void response_release(struct response *response); /* NULL is fine */

/* The tree is taken over, also on failure. */
MUST_CHECK bool response_set_json(struct response *response, unsigned status, struct json *json,
                                  struct error *err);
/* The text is taken out of the buffer, also on failure. */
MUST_CHECK bool response_set_text(struct response *response, const char *content_type,
                                  struct buf *text, struct error *err);
MUST_CHECK bool response_set_file(struct response *response, const char *path,
                                  const char *content_type, const char *attachment,
                                  struct error *err);
/* What a record says of the file that was set. Another size is refused as a file that is gone, and so are, up
 * to LIMIT_CHECKED_DOWNLOAD_BYTES, other bytes. Sets the tag too: the digest of the bytes. */
MUST_CHECK bool response_hold_to(struct response *response, int64_t size_bytes, const char *sha256,
                                 struct error *err);
/* Bytes that are there for good. */
void response_set_static(struct response *response, const char *bytes, size_t size);
/* A file's answer becomes the one range that was asked for (206), or 416. What is no single range of
 * bytes, or is asked of another file (if_range), is the whole file. Both may be NULL. */
void response_cut(struct response *response, const char *range, const char *if_range);
/* 307: the method stays. The address is copied. */
MUST_CHECK bool response_set_redirect(struct response *response, const char *location,
                                      struct error *err);
void response_set_stream(struct response *response, struct stream *stream);
void response_set_empty(struct response *response, unsigned status);

/* The code is the error's word, or that of its error code; lines (borrowed, may be NULL) goes into the
 * error object. */
void response_set_error(struct response *response, const struct error *err,
                        const struct json *lines);
/* A refusal that no error code stands for: 401, 403, 405, 415. param may be NULL. */
void response_refuse(struct response *response, unsigned status, const char *code,
                     const char *param, const char *format, ...) PRINTF_LIKE(5, 6);
/* 401: url is the page that tells how to come by a key. */
void response_refuse_key(struct response *response, const char *url, const char *message);
unsigned response_status_of(enum error_code code);

/* Moves the content out; the caller destroys the result. */
struct MHD_Response *response_build(struct response *response, const char *request_id);
/* The same as bytes for a socket, for a refusal in the middle of a body. RESPONSE_BYTES only; false
 * when it does not fit. */
MUST_CHECK bool response_print(const struct response *response, const char *request_id,
                               char *ret_bytes, size_t capacity, size_t *ret_size);

#endif

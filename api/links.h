/*
 * links: absolute addresses that carry their own permission.
 *
 * Purpose    A link names a path of ours, a method and an end of its life, signed with HMAC-SHA256
 *            over all of it; who has it needs no key. Uploads by PUT and downloads use them: clients
 *            send no Authorization there.
 * Ownership  Texts are borrowed from the server's options; a made link is in the caller's storage.
 * Threads    Any, once links_open has returned; read-only.
 * Failure    A link that is forged or over is a refusal in request->response.
 */
#ifndef NEEDLED_API_LINKS_H
#define NEEDLED_API_LINKS_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define LINKS_SECRET_SIZE 128
#define LINKS_URL_BYTES 2048
#define LINKS_SIGNATURE_SIZE 65 /* hexadecimal, with its NUL */
#define LINKS_DOWNLOAD_S 600    /* for a client to begin; a transfer that runs is not cut */

struct buf;
struct request;
struct store;

struct links {
    char secret[LINKS_SECRET_SIZE];
    const char *public_url; /* NULL: from each request's Host */
};

struct link {
    const char *method;         /* "GET" (and HEAD), "PUT" */
    const char *const *segment; /* of the path, as they are: not escaped yet */
    size_t segment_count;
    int64_t expires_unix_s;
    int64_t size_bytes; /* what a PUT must send; -1: nothing is said */
};

/* The secret is made at the first start and kept in the database: links outlive a restart. */
MUST_CHECK bool links_open(struct links *links, struct store *store, const char *public_url,
                           struct error *err);

/* Signs texts in this order; none holds a line end. The first one keeps kinds apart: a link's is its
 * method. */
void links_sign(const struct links *links, const char *const *texts, size_t count,
                char ret_signature[LINKS_SIGNATURE_SIZE]);
/* Where the client reached us: "https://host:port" from public_url or the request's checked Host. */
void links_write_origin(const struct links *links, const struct request *request, struct buf *url);
/* The link for whoever made this request: absolute, from public_url or the request's checked Host. */
MUST_CHECK bool links_make(const struct links *links, const struct request *request,
                           const struct link *link, char ret_url[LINKS_URL_BYTES],
                           struct error *err);
/* Answers 307 with a link to GET /v1/<kind>/<id>/bytes. */
MUST_CHECK bool links_redirect(const struct links *links, struct request *request, const char *kind,
                               const char *id, struct error *err);

/* The request's own link; false: refused in its response. *ret_size_bytes -1: it says none. */
MUST_CHECK bool links_check(const struct links *links, struct request *request,
                            int64_t *ret_size_bytes);

#endif

/*
 * session: signed in at a browser, by a cookie in place of a key.
 *
 * Purpose    A key given once becomes a cookie that scripts cannot read and other sites do not send:
 *            who it is and until when, signed together with the key's digest, so that a key that is
 *            revoked or exchanged ends it. Calls by cookie that change something are taken from pages of
 *            this very origin alone.
 * Ownership  Nothing is kept: the cookie is all there is.
 * Threads    Any; read-only.
 * Failure    A cookie that is forged, over or of a revoked key is as good as none.
 */
#ifndef NEEDLED_API_SESSION_H
#define NEEDLED_API_SESSION_H

#include "api/keyring.h"

struct links;
struct request;

#define SESSION_S (INT64_C(7) * 24 * 3600)   /* from its last renewal */
#define SESSION_RENEW_S (INT64_C(24) * 3600) /* how old one is renewed at the next look */
/* What no form and no page of another origin sends. */
#define SESSION_HEADER "X-Needled-Request"

#define SESSION_COOKIE "needled_session"
#define SESSION_NAME_SIZE 32

/* The cookie's name for that Host. */
void session_write_name(const char *host, char ret_name[SESSION_NAME_SIZE]);
/* Whom the request's cookie stands for. *ret_expires_unix_s may be NULL. */
bool session_find_caller(struct keyring *keyring, const struct links *links,
                         const struct request *request, struct caller *ret_caller,
                         int64_t *ret_expires_unix_s);
/* Whether a call by cookie comes from a page of ours: with SESSION_HEADER, and with no other origin. */
bool session_is_own_page(const struct links *links, const struct request *request);

#endif

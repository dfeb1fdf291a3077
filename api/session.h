/*
 * session: signed in at a browser, by a cookie in place of a key.
 *
 * Purpose    A key given once becomes a cookie that scripts cannot read and other sites do not send: a
 *            random token, which visitors.h knows. It ends at its time, when the browser signs out and
 *            with its key, revoked or exchanged; a copy of it ends then too. Calls by cookie that change
 *            something are taken from pages of this very origin alone.
 * Ownership  The server's visitors hold all there is.
 * Threads    Any.
 * Failure    A cookie that is unknown, over or of a revoked key is as good as none.
 */
#ifndef NEEDLED_API_SESSION_H
#define NEEDLED_API_SESSION_H

#include "api/keyring.h"
#include "store/sessions.h"

struct links;
struct request;
struct visitors;

#define SESSION_S (INT64_C(7) * 24 * 3600)   /* from its last renewal */
#define SESSION_RENEW_S (INT64_C(24) * 3600) /* how old one is renewed at the next look */
/* What no form and no page of another origin sends. */
#define SESSION_HEADER "X-Needled-Request"

#define SESSION_COOKIE "needled_session"
#define SESSION_NAME_SIZE 32

/* The cookie's name for that Host. */
void session_write_name(const char *host, char ret_name[SESSION_NAME_SIZE]);
/* Whom the request's cookie stands for. */
bool session_find_caller(struct keyring *keyring, struct visitors *visitors,
                         const struct request *request, struct caller *ret_caller,
                         struct session_record *ret_session);
/* Whether a call by cookie comes from a page of ours: with SESSION_HEADER, and with no other origin; false:
 * refused in its response. */
bool session_check_page(const struct links *links, struct request *request);

#endif

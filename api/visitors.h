/*
 * visitors: the browsers that are signed in, in memory.
 *
 * Purpose    A cookie holds a random token; here stands whose key it stands for, and until when. It is
 *            looked up on the library's threads, which never wait for the database. The database has
 *            the same by the token's digest: a session outlives a restart, and one that was ended stays so.
 *            A key has at most VISITORS_PER_KEY, past which its oldest ends.
 * Ownership  visitors_open / visitors_free.
 * Threads    Any.
 * Failure    The store's own. A session that the database does not take (a full disk) holds until the
 *            next start, and the log says so. An unknown token is simply not found.
 */
#ifndef NEEDLED_API_VISITORS_H
#define NEEDLED_API_VISITORS_H

#include "store/sessions.h"

#define VISITORS_MAX 2048
#define VISITORS_PER_KEY 32
#define VISITORS_TOKEN_SIZE 44 /* 43 letters and digits: more than 256 bits */

struct visitors;

MUST_CHECK bool visitors_open(struct store *store, struct visitors **ret_visitors,
                              struct error *err);
void visitors_free(struct visitors *visitors); /* NULL is fine */

/* False: none, or over. */
bool visitors_find(struct visitors *visitors, const char *token,
                   struct session_record *ret_session);
/* Whether that session goes on. */
bool visitors_hold(struct visitors *visitors, const char *token_sha256);
/* *session: all but its token's digest. */
MUST_CHECK bool visitors_add(struct visitors *visitors, struct store *store,
                             const struct session_record *session,
                             char ret_token[VISITORS_TOKEN_SIZE], struct error *err);
/* False: it is over, and stays so. */
bool visitors_extend(struct visitors *visitors, struct store *store, const char *token_sha256,
                     int64_t expires_unix_s);
/* For good; after a failure it goes on. */
MUST_CHECK bool visitors_end(struct visitors *visitors, struct store *store,
                             const char *token_sha256, struct error *err);

#endif

/*
 * sessions: browsers that are signed in, without what their cookies hold.
 *
 * Purpose    A row is a session: the digest of its cookie's token, whose key it stands for, and its end.
 *            Rows that are over go when the next one comes and when they are listed.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_SESSIONS_H
#define NEEDLED_STORE_SESSIONS_H

#include "store/store.h"

struct session_record {
    char token_sha256[65];
    char owner[STORE_ID_SIZE]; /* a key's id; "" the key of the settings */
    char key_sha256[65];       /* as it was then: another key of the settings is not this one */
    int64_t expires_unix_s;
};

/* A session that begins. */
MUST_CHECK bool sessions_insert(struct store *store, const struct session_record *session,
                                struct error *err);
/* One that is not there stays away: its end holds. */
MUST_CHECK bool sessions_extend(struct store *store, const char *token_sha256,
                                int64_t expires_unix_s, struct error *err);
MUST_CHECK bool sessions_delete(struct store *store, const char *token_sha256, struct error *err);
/* Those that are not over, at most limit, the longest first; *ret_sessions is for the caller to free(). */
MUST_CHECK bool sessions_list(struct store *store, size_t limit,
                              struct session_record **ret_sessions, size_t *ret_count,
                              struct error *err);

#endif

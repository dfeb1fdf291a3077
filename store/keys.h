/*
 * keys: API keys, without their secrets.
 *
 * Purpose    Who may call and what for. Of a secret only its SHA-256 is kept; a revoked key's row stays,
 *            since what it made names it as owner.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    ERR_NOT_FOUND names the id; ERR_LIMIT with the word quota_exceeded past the greatest count.
 */
#ifndef NEEDLED_STORE_KEYS_H
#define NEEDLED_STORE_KEYS_H

#include "store/store.h"

#define KEY_NAME_SIZE 101 /* 100 bytes */

/* Each may do what those before it may. */
enum key_scope { KEY_READ, KEY_SUBMIT, KEY_ADMIN, KEY_SCOPE_COUNT };
const char *key_scope_name(enum key_scope scope); /* as stored and answered */
MUST_CHECK bool key_scope_from_name(const char *name, enum key_scope *ret_scope);

struct key_record {
    char id[STORE_ID_SIZE]; /* key-... */
    char name[KEY_NAME_SIZE];
    enum key_scope scope;
    char secret_sha256[65];
    char hint[8];      /* the secret's last characters, to tell keys apart */
    int64_t jobs_max;  /* unfinished ones; 0: no limit */
    int64_t bytes_max; /* of stored files; 0: no limit */
    int64_t created_unix_s, last_used_unix_s, revoked_unix_s; /* 0: not */
};

/* At most count_max that are not revoked. */
MUST_CHECK bool keys_insert(struct store *store, const struct key_record *key, int64_t count_max,
                            struct error *err);
MUST_CHECK bool keys_get(struct store *store, const char *id, struct key_record *ret_key,
                         struct error *err);
/* *ret_keys is an array for the caller to free(). */
MUST_CHECK bool keys_list(struct store *store, const struct store_page *page,
                          struct key_record **ret_keys, size_t *ret_count, bool *ret_has_more,
                          struct error *err);
/* Those that are not revoked; *ret_ever: there was one at some time. */
MUST_CHECK bool keys_list_live(struct store *store, struct key_record **ret_keys, size_t *ret_count,
                               bool *ret_ever, struct error *err);
/* Its webhooks are switched off with it. A second time changes nothing. */
MUST_CHECK bool keys_revoke(struct store *store, const char *id, struct error *err);

struct key_use {
    char id[STORE_ID_SIZE];
    int64_t unix_s;
};
MUST_CHECK bool keys_set_used(struct store *store, const struct key_use *uses, size_t count,
                              struct error *err);

#endif

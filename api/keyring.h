/*
 * keyring: the API keys that are in force, in memory.
 *
 * Purpose    A request's key is looked up on the library's threads, which never wait for the
 *            database: the keyring holds what the keys table holds of keys that are not revoked, and the
 *            one that the settings name. Times of use are kept here and written now and then.
 *            While no key was ever made and none is set, nobody is asked for one.
 * Ownership  keyring_open / keyring_free.
 * Threads    Any.
 * Failure    keyring_open: the store's own. An unknown key is simply not found.
 */
#ifndef NEEDLED_API_KEYRING_H
#define NEEDLED_API_KEYRING_H

#include "daemon/base/file.h"
#include "store/keys.h"

#define KEYRING_SECRET_SIZE 64 /* "needle_ft_" and 43 letters and digits: more than 256 bits */

struct keyring;

/* Who asks. */
struct caller {
    char owner[STORE_ID_SIZE]; /* a key's id; "" the operator */
    enum key_scope scope;
    int64_t jobs_max, bytes_max; /* 0: no limit */
};
#define CALLER_OPERATOR ((struct caller){.owner = "", .scope = KEY_ADMIN})

/* configured: the key of the settings, an admin's; NULL or "": none. */
MUST_CHECK bool keyring_open(struct store *store, const char *configured,
                             struct keyring **ret_keyring, struct error *err);
void keyring_free(struct keyring *keyring); /* NULL is fine */

/* Nobody is asked for a key. */
bool keyring_is_open(struct keyring *keyring);
/* Is there a key that anybody could use? */
bool keyring_is_usable(struct keyring *keyring);
/* False: not one of ours. Counts as a use. */
bool keyring_find(struct keyring *keyring, const char *secret, struct caller *ret_caller);
/* The key of that owner ("": of the settings) while it is in force, with its digest. Counts as a use. */
bool keyring_find_owner(struct keyring *keyring, const char *owner, struct caller *ret_caller,
                        char ret_sha256[SHA256_HEX_SIZE]);
/* Whether that owner's key is still in force; the operator's always is. */
bool keyring_holds(struct keyring *keyring, const char *owner);

/* A fresh secret with its digest and hint in the record. */
MUST_CHECK bool keyring_make_secret(char ret_secret[KEYRING_SECRET_SIZE], struct key_record *key,
                                    struct error *err);
/* After its row was committed. */
void keyring_add(struct keyring *keyring, const struct key_record *key);
void keyring_remove(struct keyring *keyring, const char *id);

/* The settings' key is that from now on; NULL or "": none. The keyring does not open by its loss. */
void keyring_set_configured(struct keyring *keyring, const char *configured);

/* The time of the last use that the database may not have yet; 0: none. */
int64_t keyring_last_used(struct keyring *keyring, const char *id);
MUST_CHECK bool keyring_save_uses(struct keyring *keyring, struct store *store, struct error *err);

#endif

#include "api/keyring.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"

#include <assert.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "needle_ft_" /* as the hosted platform's */
#define DIGITS 43           /* of 62: 256 bits */
#define HINT_LENGTH 4
/* The setting's key, and keys that are revoked in the database and not yet here. */
#define ENTRY_MAX (LIMIT_KEYS + 64)

static_assert(sizeof(PREFIX) + DIGITS <= KEYRING_SECRET_SIZE, "a secret fits");

struct entry {
    struct caller caller;
    char sha256[SHA256_HEX_SIZE];
    int64_t used_unix_s, saved_unix_s;
};

struct keyring {
    pthread_mutex_t lock;
    struct entry entries[ENTRY_MAX]; /* guarded by lock */
    size_t count;                    /* guarded by lock */
    bool closed;                     /* guarded by lock: a key is or was there */
};

static void digest(const char *secret, char ret_sha256[SHA256_HEX_SIZE])
{
    struct sha256_ctx context;
    uint8_t bytes[SHA256_DIGEST_SIZE];

    sha256_init(&context);
    sha256_update(&context, strlen(secret), (const uint8_t *)secret);
    sha256_digest(&context, sizeof(bytes), bytes);
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(ret_sha256 + 2 * i, 3, "%02x", bytes[i]);
}

static void add(struct keyring *keyring, const struct caller *caller, const char *sha256,
                int64_t used_unix_s)
{
    struct entry *entry = &keyring->entries[keyring->count];

    assert(keyring->count < ENTRY_MAX);
    *entry =
        (struct entry){.caller = *caller, .used_unix_s = used_unix_s, .saved_unix_s = used_unix_s};
    (void)snprintf(entry->sha256, sizeof(entry->sha256), "%s", sha256);
    keyring->count++;
    keyring->closed = true;
}

static void add_key(struct keyring *keyring, const struct key_record *key)
{
    struct caller caller = {
        .scope = key->scope, .jobs_max = key->jobs_max, .bytes_max = key->bytes_max};

    (void)snprintf(caller.owner, sizeof(caller.owner), "%s", key->id);
    add(keyring, &caller, key->secret_sha256, key->last_used_unix_s);
}

bool keyring_open(struct store *store, const char *configured, struct keyring **ret_keyring,
                  struct error *err)
{
    struct keyring *keyring = calloc(1, sizeof(*keyring));
    struct key_record *keys = NULL;
    size_t count = 0;
    bool ever = false;

    if (!keyring)
        return error_set(err, ERR_NO_MEMORY, "no memory for the API keys");
    pthread_mutex_init(&keyring->lock, NULL);
    if (!keys_list_live(store, &keys, &count, &ever, err)) {
        keyring_free(keyring);
        return false;
    }
    if (configured && configured[0]) {
        char sha256[SHA256_HEX_SIZE];

        digest(configured, sha256);
        add(keyring, &CALLER_OPERATOR, sha256, 0);
    }
    for (size_t i = 0; i < count && i < LIMIT_KEYS; i++) /* keys_insert keeps to that count */
        add_key(keyring, &keys[i]);
    free(keys);
    keyring->closed = keyring->closed || ever;
    *ret_keyring = keyring;
    return true;
}

void keyring_free(struct keyring *keyring)
{
    if (!keyring)
        return;
    pthread_mutex_destroy(&keyring->lock);
    free(keyring);
}

bool keyring_is_open(struct keyring *keyring)
{
    bool closed;

    pthread_mutex_lock(&keyring->lock);
    closed = keyring->closed;
    pthread_mutex_unlock(&keyring->lock);
    return !closed;
}

bool keyring_is_usable(struct keyring *keyring)
{
    size_t count;

    pthread_mutex_lock(&keyring->lock);
    count = keyring->count;
    pthread_mutex_unlock(&keyring->lock);
    return count > 0;
}

bool keyring_find(struct keyring *keyring, const char *secret, struct caller *ret_caller)
{
    char sha256[SHA256_HEX_SIZE];
    bool found = false;

    /* What the time of a comparison tells of a digest tells nothing of the secret. */
    digest(secret, sha256);
    pthread_mutex_lock(&keyring->lock);
    for (size_t i = 0; i < keyring->count && !found; i++) {
        struct entry *entry = &keyring->entries[i];

        found = memcmp(entry->sha256, sha256, sizeof(sha256)) == 0;
        if (found) {
            entry->used_unix_s = clock_unix_s();
            *ret_caller = entry->caller;
        }
    }
    pthread_mutex_unlock(&keyring->lock);
    return found;
}

/* With the lock held; NULL: not there. */
static struct entry *find_owner(struct keyring *keyring, const char *owner)
{
    for (size_t i = 0; i < keyring->count; i++) {
        if (strcmp(keyring->entries[i].caller.owner, owner) == 0)
            return &keyring->entries[i];
    }
    return NULL;
}

bool keyring_find_owner(struct keyring *keyring, const char *owner, struct caller *ret_caller,
                        char ret_sha256[SHA256_HEX_SIZE])
{
    struct entry *entry;

    pthread_mutex_lock(&keyring->lock);
    entry = find_owner(keyring, owner);
    if (entry) {
        entry->used_unix_s = clock_unix_s();
        *ret_caller = entry->caller;
        memcpy(ret_sha256, entry->sha256, sizeof(entry->sha256));
    }
    pthread_mutex_unlock(&keyring->lock);
    return entry != NULL;
}

bool keyring_holds(struct keyring *keyring, const char *owner)
{
    bool holds;

    if (!owner[0])
        return true;
    pthread_mutex_lock(&keyring->lock);
    holds = find_owner(keyring, owner) != NULL;
    pthread_mutex_unlock(&keyring->lock);
    return holds;
}

bool keyring_make_secret(char ret_secret[KEYRING_SECRET_SIZE], struct key_record *key,
                         struct error *err)
{
    char secret[KEYRING_SECRET_SIZE];

    if (!file_random_id(secret, sizeof(secret), PREFIX, DIGITS, err))
        return false;
    digest(secret, key->secret_sha256);
    (void)snprintf(key->hint, sizeof(key->hint), "%s", secret + strlen(secret) - HINT_LENGTH);
    memcpy(ret_secret, secret, sizeof(secret));
    return true;
}

void keyring_add(struct keyring *keyring, const struct key_record *key)
{
    pthread_mutex_lock(&keyring->lock);
    add_key(keyring, key);
    pthread_mutex_unlock(&keyring->lock);
}

void keyring_remove(struct keyring *keyring, const char *id)
{
    struct entry *entry;

    assert(id[0]); /* the setting's key goes with the setting */
    pthread_mutex_lock(&keyring->lock);
    entry = find_owner(keyring, id);
    if (entry) {
        keyring->count--;
        *entry = keyring->entries[keyring->count];
    }
    pthread_mutex_unlock(&keyring->lock);
}

void keyring_set_configured(struct keyring *keyring, const char *configured)
{
    struct entry *entry;
    char sha256[SHA256_HEX_SIZE] = "";

    if (configured && configured[0])
        digest(configured, sha256);
    pthread_mutex_lock(&keyring->lock);
    entry = find_owner(keyring, "");
    if (entry && sha256[0]) {
        memcpy(entry->sha256, sha256, sizeof(entry->sha256));
    } else if (entry) {
        keyring->count--;
        *entry = keyring->entries[keyring->count];
    } else if (sha256[0]) {
        add(keyring, &CALLER_OPERATOR, sha256, 0);
    }
    pthread_mutex_unlock(&keyring->lock);
}

int64_t keyring_last_used(struct keyring *keyring, const char *id)
{
    const struct entry *entry;
    int64_t used_unix_s = 0;

    pthread_mutex_lock(&keyring->lock);
    entry = find_owner(keyring, id);
    if (entry)
        used_unix_s = entry->used_unix_s;
    pthread_mutex_unlock(&keyring->lock);
    return used_unix_s;
}

bool keyring_save_uses(struct keyring *keyring, struct store *store, struct error *err)
{
    struct key_use *uses = calloc(ENTRY_MAX, sizeof(*uses));
    size_t count = 0;
    bool ok;

    if (!uses)
        return error_set(err, ERR_NO_MEMORY, "no memory for the times of use");
    pthread_mutex_lock(&keyring->lock);
    for (size_t i = 0; i < keyring->count; i++) {
        struct entry *entry = &keyring->entries[i];

        if (entry->used_unix_s == entry->saved_unix_s || !entry->caller.owner[0])
            continue;
        memcpy(uses[count].id, entry->caller.owner, sizeof(uses[count].id));
        uses[count++].unix_s = entry->used_unix_s;
        entry->saved_unix_s = entry->used_unix_s; /* one that is lost is written at the next use */
    }
    pthread_mutex_unlock(&keyring->lock);
    ok = keys_set_used(store, uses, count, err);
    free(uses);
    return ok;
}

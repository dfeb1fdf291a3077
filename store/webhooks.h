/*
 * webhooks: addresses that are told when jobs end.
 *
 * Purpose    Where to send what kind of event, and the secret that signs it (kept as it is: we sign).
 *            A change of a job's state and what is to be delivered of it are one transaction; see
 *            deliveries.h.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    ERR_NOT_FOUND names the id; ERR_LIMIT with the word quota_exceeded past an owner's count.
 */
#ifndef NEEDLED_STORE_WEBHOOKS_H
#define NEEDLED_STORE_WEBHOOKS_H

#include "store/store.h"

#define WEBHOOK_NAME_SIZE 101
#define WEBHOOK_URL_SIZE 1025
#define WEBHOOK_SECRET_SIZE 64 /* "whsec_" and the base64 of 32 bytes */

struct webhook_record {
    char id[STORE_ID_SIZE]; /* we-... */
    char owner[STORE_ID_SIZE];
    bool all_jobs; /* also those of others: an admin made it */
    char name[WEBHOOK_NAME_SIZE];
    char url[WEBHOOK_URL_SIZE];
    char types[256]; /* ",fine_tuning.job.failed,": each between commas */
    char secret[WEBHOOK_SECRET_SIZE];
    char old_secret[WEBHOOK_SECRET_SIZE]; /* signs too, until then; "" none */
    int64_t old_secret_until_unix_s;
    bool enabled; /* off: its owner's key was revoked, or it has answered 410 */
    int64_t created_unix_s, updated_unix_s;
};

/* The types there are; NULL-terminated. */
extern const char *const webhook_types[];

/* At most count_max of an owner. */
MUST_CHECK bool webhooks_insert(struct store *store, const struct webhook_record *webhook,
                                int64_t count_max, struct error *err);
MUST_CHECK bool webhooks_get(struct store *store, const char *id,
                             struct webhook_record *ret_webhook, struct error *err);
/* owner NULL: all. *ret_webhooks is an array for the caller to free(). */
MUST_CHECK bool webhooks_list(struct store *store, const char *owner, const struct store_page *page,
                              struct webhook_record **ret_webhooks, size_t *ret_count,
                              bool *ret_has_more, struct error *err);
/* What of a webhook is to be another; NULL: stays. */
struct webhook_change {
    const char *name, *url, *types;
};
/* Each of these writes its own columns alone, in one statement: of two at once neither undoes the other.
 * The first two give the webhook as it is then. */
/* Also switches it on, unless its owner's key was revoked. */
MUST_CHECK bool webhooks_update(struct store *store, const char *id,
                                const struct webhook_change *change,
                                struct webhook_record *ret_webhook, struct error *err);
/* The secret that was signs too for keep_old_s (0: no more). */
MUST_CHECK bool webhooks_rotate(struct store *store, const char *id, const char *secret,
                                int64_t keep_old_s, struct webhook_record *ret_webhook,
                                struct error *err);
/* While its address is that one; *ret_changed false: it is not, it was off, or it is gone. */
MUST_CHECK bool webhooks_switch_off(struct store *store, const char *id, const char *url,
                                    bool *ret_changed, struct error *err);
/* With what was to be delivered. */
MUST_CHECK bool webhooks_delete(struct store *store, const char *id, struct error *err);

#endif

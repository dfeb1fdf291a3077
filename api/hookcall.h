/*
 * hookcall: one signed call of a webhook.
 *
 * Purpose    The request that the official SDK's webhooks.verify_signature accepts: headers webhook-id,
 *            webhook-timestamp and webhook-signature, an HMAC-SHA256 over "<id>.<timestamp>.<body>" for
 *            each secret that is in force.
 * Ownership  hookcall_open / hookcall_close (caller's storage, which stays where it is in between).
 * Threads    One call, one thread.
 * Failure    hookcall_open: the address is not allowed, or no memory. How the call went is in
 *            hookcall_judge's words.
 */
#ifndef NEEDLED_API_HOOKCALL_H
#define NEEDLED_API_HOOKCALL_H

#include "store/webhooks.h"

#include <curl/curl.h>

#define HOOKCALL_TIMEOUT_S 15L

struct hookcall {
    CURL *easy;
    struct curl_slist *headers;
    bool refused; /* an address was */
};

/* A new secret: "whsec_" and the base64 of 32 random bytes. */
MUST_CHECK bool hookcall_make_secret(char ret_secret[WEBHOOK_SECRET_SIZE], struct error *err);
/* The base64 signature of a text under a secret. */
#define HOOKCALL_SIGNATURE_SIZE 48
MUST_CHECK bool hookcall_sign(const char *secret, const char *text,
                              char ret_signature[HOOKCALL_SIGNATURE_SIZE]);

/* Ready for curl_easy_perform or a multi handle. hosts: as outbound_check_url. */
MUST_CHECK bool hookcall_open(struct hookcall *call, const char *hosts,
                              const struct webhook_record *webhook, const char *event_id,
                              const char *body, struct error *err);
void hookcall_close(struct hookcall *call); /* a zeroed one is fine */

/* Done with this code: the HTTP status (0: no answer), and why it was not taken ("" it was). */
long hookcall_judge(const struct hookcall *call, CURLcode code, char *ret_reason, size_t capacity);

#endif

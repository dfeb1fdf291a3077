#include "api/hookcall.h"

#include "api/outbound.h"
#include "daemon/base/buf.h"
#include "daemon/base/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define PREFIX "whsec_"
#define SECRET_BYTES 32
#define TEXT_MAX ((size_t)64 << 10)

static_assert(sizeof(PREFIX) + BASE64_ENCODE_RAW_LENGTH(SECRET_BYTES) <= WEBHOOK_SECRET_SIZE,
              "a secret fits");
static_assert(BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) < HOOKCALL_SIGNATURE_SIZE,
              "a signature fits");

bool hookcall_make_secret(char ret_secret[WEBHOOK_SECRET_SIZE], struct error *err)
{
    uint8_t bytes[SECRET_BYTES];
    char text[BASE64_ENCODE_RAW_LENGTH(SECRET_BYTES) + 1];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) /* so few come at once */
        return error_set(err, ERR_IO, "the system gave no random numbers");
    base64_encode_raw(text, sizeof(bytes), bytes);
    text[sizeof(text) - 1] = '\0';
    (void)snprintf(ret_secret, WEBHOOK_SECRET_SIZE, PREFIX "%s", text);
    return true;
}

bool hookcall_sign(const char *secret, const char *text,
                   char ret_signature[HOOKCALL_SIGNATURE_SIZE])
{
    struct base64_decode_ctx decoder;
    struct hmac_sha256_ctx context;
    uint8_t key[WEBHOOK_SECRET_SIZE], digest[SHA256_DIGEST_SIZE];
    size_t key_size = sizeof(key);
    const char *coded = secret + strlen(PREFIX);

    if (strncmp(secret, PREFIX, strlen(PREFIX)) != 0 || strlen(secret) >= WEBHOOK_SECRET_SIZE)
        return false;
    base64_decode_init(&decoder);
    if (!base64_decode_update(&decoder, &key_size, key, strlen(coded), coded) ||
        !base64_decode_final(&decoder))
        return false;
    hmac_sha256_set_key(&context, key_size, key);
    hmac_sha256_update(&context, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&context, sizeof(digest), digest);
    base64_encode_raw(ret_signature, sizeof(digest), digest);
    ret_signature[BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE)] = '\0';
    return true;
}

static void add_header(struct hookcall *call, const char *line, bool *ok)
{
    struct curl_slist *longer = *ok ? curl_slist_append(call->headers, line) : NULL;

    *ok = longer != NULL;
    if (longer)
        call->headers = longer;
}

static bool add_signature(struct buf *line, const char *secret, const char *text)
{
    char signature[HOOKCALL_SIGNATURE_SIZE];

    if (!hookcall_sign(secret, text, signature))
        return false;
    buf_format(line, " v1,%s", signature);
    return true;
}

static bool add_headers(struct hookcall *call, const struct webhook_record *webhook,
                        const char *event_id, const char *body)
{
    int64_t now_unix_s = clock_unix_s();
    struct buf text, line;
    char small[128];
    bool ok;

    buf_init(&text, TEXT_MAX);
    buf_init(&line, TEXT_MAX);
    buf_format(&text, "%s.%" PRId64 ".%s", event_id, now_unix_s, body);
    buf_append_text(&line, "webhook-signature:");
    ok = !text.failed && add_signature(&line, webhook->secret, text.data) &&
         (!webhook->old_secret[0] || webhook->old_secret_until_unix_s <= now_unix_s ||
          add_signature(&line, webhook->old_secret, text.data)) &&
         !line.failed;
    if (ok)
        add_header(call, line.data, &ok);
    (void)snprintf(small, sizeof(small), "webhook-id: %s", event_id);
    add_header(call, small, &ok);
    (void)snprintf(small, sizeof(small), "webhook-timestamp: %" PRId64, now_unix_s);
    add_header(call, small, &ok);
    add_header(call, "Content-Type: application/json", &ok);
    add_header(call, "Expect:", &ok);
    buf_release(&text);
    buf_release(&line);
    return ok;
}

bool hookcall_open(struct hookcall *call, const char *hosts, const struct webhook_record *webhook,
                   const char *event_id, const char *body, struct error *err)
{
    *call = (struct hookcall){.easy = curl_easy_init()};
    if (!call->easy) {
        error_set(err, ERR_NO_MEMORY, "no memory for a call");
        return false;
    }
    if (!outbound_prepare(call->easy, hosts, webhook->url, HOOKCALL_TIMEOUT_S, &call->refused, err))
        goto fail;
    if (add_headers(call, webhook, event_id, body) &&
        curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers) == CURLE_OK &&
        curl_easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS, body) == CURLE_OK)
        return true;
    error_set(err, ERR_NO_MEMORY, "a call of webhook endpoint '%s' could not be made ready",
              webhook->id);
fail:
    hookcall_close(call);
    return false;
}

void hookcall_close(struct hookcall *call)
{
    curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    *call = (struct hookcall){0};
}

long hookcall_judge(const struct hookcall *call, CURLcode code, char *ret_reason, size_t capacity)
{
    long status = 0;

    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status); /* stays 0 */
    ret_reason[0] = '\0';
    if (call->refused && code != CURLE_OK)
        (void)snprintf(ret_reason, capacity,
                       "the host has no public address: webhook_hosts must list it by its name");
    else if (code != CURLE_OK)
        (void)snprintf(ret_reason, capacity, "%s", curl_easy_strerror(code));
    else if (status >= 300 && status < 400)
        (void)snprintf(ret_reason, capacity, "answered %ld: redirects are not followed", status);
    else if (status < 200 || status > 299)
        (void)snprintf(ret_reason, capacity, "answered %ld, 2xx is needed", status);
    return code == CURLE_OK ? status : 0;
}

#include "api/links.h"

#include "api/request.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "store/settings.h"

#include <assert.h>
#include <inttypes.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <string.h>

#define SECRET_DIGITS 48 /* of 62: far more than the 256 bits of the hash */

static_assert(LINKS_SIGNATURE_SIZE == 2 * SHA256_DIGEST_SIZE + 1, "a signature fits");
static_assert(LINKS_SECRET_SIZE >= SETTING_VALUE_SIZE, "a setting fits");

bool links_open(struct links *links, struct store *store, const char *public_url, struct error *err)
{
    char proposal[SECRET_DIGITS + 1];

    links->public_url = public_url;
    if (file_random_id(proposal, sizeof(proposal), "", SECRET_DIGITS, err) &&
        settings_get_or_set(store, "link_secret", proposal, links->secret, err))
        return true;
    error_wrap(err, "the secret that links are signed with");
    return false;
}

/* Each text ends with a line end, which an escaped path cannot hold. */
void links_sign(const struct links *links, const char *const *texts, size_t count,
                char ret_signature[LINKS_SIGNATURE_SIZE])
{
    struct hmac_sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];

    hmac_sha256_set_key(&context, strlen(links->secret), (const uint8_t *)links->secret);
    for (size_t i = 0; i < count; i++) {
        hmac_sha256_update(&context, strlen(texts[i]), (const uint8_t *)texts[i]);
        hmac_sha256_update(&context, 1, (const uint8_t *)"\n");
    }
    hmac_sha256_digest(&context, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(ret_signature + 2 * i, 3, "%02x", digest[i]);
}

static void sign(const struct links *links, const struct link *link, const char *path,
                 char ret_signature[LINKS_SIGNATURE_SIZE])
{
    char expires[24], size[24];
    const char *const texts[] = {link->method, path, expires, size};

    (void)snprintf(expires, sizeof(expires), "%" PRId64, link->expires_unix_s); /* fit */
    (void)snprintf(size, sizeof(size), "%" PRId64, link->size_bytes);
    links_sign(links, texts, COUNT_OF(texts), ret_signature);
}

/* "/v1/files/file-1/bytes": every segment escaped the one way we escape, however it was sent. */
static void write_path(const struct link *link, struct buf *path)
{
    for (size_t i = 0; i < link->segment_count; i++) {
        buf_append_char(path, '/');
        text_encode(link->segment[i], path);
    }
}

/* Over a Unix socket the Host may be no address at all. */
void links_write_origin(const struct links *links, const struct request *request, struct buf *url)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    const char *host = request->host ? request->host : "";

    if (links->public_url) {
        size_t size = strlen(links->public_url);

        while (size > 0 && links->public_url[size - 1] == '/')
            size--;
        buf_append(url, links->public_url, size);
        return;
    }
    if (!host[0] || host[strspn(host, plain)])
        host = "localhost";
    buf_append_text(url, "http://");
    buf_append_text(url, host);
}

bool links_make(const struct links *links, const struct request *request, const struct link *link,
                char ret_url[LINKS_URL_BYTES], struct error *err)
{
    char signature[LINKS_SIGNATURE_SIZE];
    struct buf path, url;
    bool ok, no_memory;

    buf_init(&path, LINKS_URL_BYTES);
    buf_init(&url, LINKS_URL_BYTES - 1);
    write_path(link, &path);
    links_write_origin(links, request, &url);
    if (!path.failed) {
        sign(links, link, path.data, signature);
        buf_append(&url, path.data, path.size);
        buf_format(&url, "?expires=%" PRId64, link->expires_unix_s);
        if (link->size_bytes >= 0)
            buf_format(&url, "&size=%" PRId64, link->size_bytes);
        buf_format(&url, "&signature=%s", signature);
    }
    ok = !path.failed && !url.failed;
    no_memory = path.no_memory || url.no_memory;
    if (ok)
        memcpy(ret_url, url.data, url.size + 1);
    buf_release(&path);
    buf_release(&url);
    if (no_memory)
        return error_set(err, ERR_NO_MEMORY, "no memory for a link");
    return ok || error_set(err, ERR_LIMIT, "a link to '%.64s' is longer than %d bytes",
                           link->segment[link->segment_count - 1], LINKS_URL_BYTES);
}

bool links_redirect(const struct links *links, struct request *request, const char *kind,
                    const char *id, struct error *err)
{
    const char *const segments[] = {"v1", kind, id, "bytes"};
    const struct link link = {"GET", segments, COUNT_OF(segments),
                              clock_unix_s() + LINKS_DOWNLOAD_S, -1};
    char url[LINKS_URL_BYTES];

    if (!links_make(links, request, &link, url, err))
        return false;
    return response_set_redirect(&request->response, url, err);
}

static bool read_field(const struct request *request, const char *name, int64_t *ret_number)
{
    const char *text = request_query(request, name);

    return text && text_read_number(text, INT64_MAX, ret_number);
}

bool links_check(const struct links *links, struct request *request, int64_t *ret_size_bytes)
{
    const char *given = request_query(request, "signature");
    struct link link = {request->method, request->segments, request->segment_count, 0, -1};
    char signature[LINKS_SIGNATURE_SIZE];
    struct buf path;
    bool genuine =
        given && read_field(request, "expires", &link.expires_unix_s) &&
        (!request_query(request, "size") || read_field(request, "size", &link.size_bytes));
    bool no_memory;

    buf_init(&path, LINKS_URL_BYTES);
    write_path(&link, &path);
    if (genuine && !path.failed) {
        sign(links, &link, path.data, signature);
        genuine = text_equal_secret(given, signature);
    }
    genuine = genuine && !path.failed;
    no_memory = path.no_memory;
    buf_release(&path);
    if (no_memory) {
        response_refuse(&request->response, 507, "insufficient_storage", NULL,
                        "no memory to check the link");
        return false;
    }
    if (!genuine) {
        response_refuse(&request->response, 403, "invalid_link", NULL,
                        "this address works only as a link that this server has given: with its "
                        "expires and signature, unchanged, and for its own method");
        return false;
    }
    if (clock_unix_s() >= link.expires_unix_s) {
        response_refuse(&request->response, 404, "not_found", NULL,
                        "this link has expired: ask for a new one");
        return false;
    }
    *ret_size_bytes = link.size_bytes;
    return true;
}

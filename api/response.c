#include "api/response.h"

#include "api/stream.h"
#include "api/text.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TYPE_JSON "application/json"
#define BODY_MAX                                                                                   \
    ((size_t)256 << 20) /* one JSON answer; lists are bounded far below by their pages */

static const struct {
    unsigned status;
    const char *code;
} answers[] = {
    [ERR_NONE] = {500, "internal_error"},
    [ERR_INVALID] = {400, "invalid_request"},
    [ERR_NOT_FOUND] = {404, "not_found"},
    [ERR_CONFLICT] = {409, "conflict"},
    [ERR_LIMIT] = {413, "request_too_large"},
    [ERR_NO_MEMORY] = {507, "insufficient_storage"},
    [ERR_IO] = {500, "io_error"},
    [ERR_CORRUPT] = {500, "damaged"},
    [ERR_DEVICE] = {500, "device_error"},
    [ERR_UNAVAILABLE] = {503, "unavailable"},
    [ERR_CANCELLED] = {503, "cancelled"},
    [ERR_INTERNAL] = {500, "internal_error"},
};
static_assert(COUNT_OF(answers) == ERR_INTERNAL + 1, "every error code has its status");

/* Words that ask for another status than their code has. */
static const struct {
    const char *word;
    unsigned status;
} words[] = {
    {"quota_exceeded", 402}, /* as the hosted platform answers */
    {"idempotency_key_reused", 422}, {"missing_scope", 403}, {"not_owner", 403},
    {"queue_limit_reached", 429},    {"not_available", 501}, {"gone", 410},
    {ERROR_STATE_GONE, 503},
};

static unsigned status_of(const struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (strcmp(err->word, words[i].word) == 0)
            return words[i].status;
    }
    return answers[err->code].status;
}

unsigned response_status_of(enum error_code code)
{
    return answers[code].status;
}

void response_init(struct response *response)
{
    *response = (struct response){.kind = RESPONSE_BYTES, .status = 500, .descriptor = -1};
}

void response_release(struct response *response)
{
    if (!response)
        return;
    free(response->bytes);
    free(response->location);
    if (response->descriptor >= 0)
        (void)close(response->descriptor); /* opened for reading */
    stream_free(response->stream);
    response_init(response);
}

bool response_set_json(struct response *response, unsigned status, struct json *json,
                       struct error *err)
{
    struct buf text;
    bool ok;

    buf_init(&text, BODY_MAX);
    ok = json && json_print(json, &text, err);
    json_free(json);
    if (ok) {
        buf_append_char(&text, '\n');
        ok = !text.failed;
    }
    if (!ok) {
        buf_release(&text);
        return error_set(err, ERR_NO_MEMORY, "no memory for the answer");
    }
    response_release(response);
    response->status = status;
    response->content_type = TYPE_JSON;
    response->bytes = buf_take(&text, &response->size_bytes);
    return true;
}

bool response_set_text(struct response *response, const char *content_type, struct buf *text,
                       struct error *err)
{
    if (text->failed) {
        buf_release(text);
        return error_set(err, ERR_NO_MEMORY, "no memory for the answer");
    }
    response_release(response);
    response->status = 200;
    response->content_type = content_type;
    response->bytes = buf_take(text, &response->size_bytes);
    return true;
}

/* What is no file in a file's place is as good as none. */
static bool open_stored(const char *path, int *ret_descriptor, struct error *err)
{
    struct error why = {0};

    if (file_open(path, O_RDONLY | O_NOFOLLOW, ret_descriptor, &why))
        return true;
    if (why.code == ERR_NOT_FOUND || why.code == ERR_INVALID)
        return error_set_word(err, ERR_NOT_FOUND, "gone", "",
                              "its record is there, but its file is gone from the disk%s",
                              why.code == ERR_INVALID ? ", and something else in its place" : "");
    return error_set(err, ERR_IO, "it cannot be read: %s", why.message);
}

bool response_set_file(struct response *response, const char *path, const char *content_type,
                       const char *attachment, struct error *err)
{
    struct stat about;
    int descriptor;

    if (!open_stored(path, &descriptor, err))
        return false;
    if (fstat(descriptor, &about) != 0 || about.st_uid != geteuid()) {
        (void)close(descriptor); /* opened for reading */
        return error_set(err, ERR_IO, "'%s' cannot be read: not a file of the daemon's user", path);
    }
    response_release(response);
    response->kind = RESPONSE_FILE;
    response->status = 200;
    response->content_type = content_type;
    response->attachment = attachment;
    response->descriptor = descriptor;
    response->file_size_bytes = (uint64_t)about.st_size;
    response->range_size = response->file_size_bytes;
    return true;
}

static bool hash_descriptor(int descriptor, char ret_sha256[SHA256_HEX_SIZE], struct error *err)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    return file_sha256(path, ret_sha256, err);
}

bool response_hold_to(struct response *response, int64_t size_bytes, const char *sha256,
                      struct error *err)
{
    const uint64_t size = response->file_size_bytes;
    char found[SHA256_HEX_SIZE];

    assert(response->kind == RESPONSE_FILE);
    if (size != (uint64_t)size_bytes)
        return error_set_word(err, ERR_NOT_FOUND, "gone", "",
                              "its file on the disk is damaged: it has %" PRIu64 " bytes, %" PRId64
                              " were stored",
                              size, size_bytes);
    if (!sha256[0])
        return true; /* nothing is known of its bytes */
    (void)snprintf(response->etag, sizeof(response->etag), "\"%s\"", sha256); /* 64 digits */
    if (size > LIMIT_CHECKED_DOWNLOAD_BYTES)
        return true;
    if (!hash_descriptor(response->descriptor, found, err))
        return false;
    return strcmp(found, sha256) == 0 ||
           error_set_word(err, ERR_NOT_FOUND, "gone", "",
                          "its file on the disk is damaged: its SHA-256 is %.12s..., %.12s... was "
                          "stored",
                          found, sha256);
}

void response_set_static(struct response *response, const char *bytes, size_t size)
{
    response_release(response);
    response->kind = RESPONSE_STATIC;
    response->status = 200;
    response->static_bytes = bytes;
    response->size_bytes = size;
}

/* "bytes=A-B", "bytes=A-" or "bytes=-N" (the last N). False for what is none of these. */
static bool read_range(const char *range, uint64_t size, uint64_t *ret_start, uint64_t *ret_size)
{
    char first[24], last[24];
    int64_t start = 0, end = INT64_MAX;
    const char *dash;

    if (strncmp(range, "bytes=", 6) != 0)
        return false;
    range += 6;
    dash = strchr(range, '-');
    if (!dash || (size_t)(dash - range) >= sizeof(first) || strlen(dash + 1) >= sizeof(last))
        return false;
    (void)snprintf(first, sizeof(first), "%.*s", (int)(dash - range), range);
    (void)snprintf(last, sizeof(last), "%s", dash + 1);
    if ((first[0] && !text_read_number(first, INT64_MAX - 1, &start)) ||
        (last[0] && !text_read_number(last, INT64_MAX - 1, &end)) || (!first[0] && !last[0]))
        return false;
    if (!first[0]) { /* counted from the end */
        *ret_start = (uint64_t)end < size ? size - (uint64_t)end : 0;
        *ret_size = size - *ret_start;
        return true;
    }
    if (end < start)
        return false;
    *ret_start = (uint64_t)start;
    if ((uint64_t)start >= size)
        *ret_size = 0;
    else
        *ret_size = (uint64_t)end < size ? (uint64_t)(end - start) + 1 : size - (uint64_t)start;
    return true;
}

void response_cut(struct response *response, const char *range, const char *if_range)
{
    uint64_t size = response->file_size_bytes, start, count;

    assert(response->kind == RESPONSE_FILE);
    if (!range || (if_range && strcmp(if_range, response->etag) != 0) ||
        !read_range(range, size, &start, &count))
        return;
    if (count == 0) {
        response_refuse(response, 416, "range_not_satisfiable", NULL,
                        "the file has %" PRIu64 " bytes, '%.60s' is none of them", size, range);
        response->file_size_bytes = size;
        return;
    }
    response->status = 206;
    response->range_start = start;
    response->range_size = count;
}

bool response_set_redirect(struct response *response, const char *location, struct error *err)
{
    char *copy = strdup(location);

    if (!copy)
        return error_set(err, ERR_NO_MEMORY, "no memory for the answer");
    response_release(response);
    response->status = 307;
    response->location = copy;
    return true;
}

void response_set_stream(struct response *response, struct stream *stream)
{
    response_release(response);
    response->kind = RESPONSE_STREAM;
    response->status = 200;
    response->content_type = "text/event-stream";
    response->stream = stream;
}

void response_set_empty(struct response *response, unsigned status)
{
    response_release(response);
    response->status = status;
}

static const char *error_type(unsigned status)
{
    if (status >= 500)
        return "server_error";
    if (status == 401)
        return "authentication_error";
    return status == 429 ? "rate_limit_error" : "invalid_request_error";
}

/* lines and url may be NULL. */
static void set_error_object(struct response *response, unsigned status, const char *code,
                             const struct error *what, const struct json *lines, const char *url)
{
    static const char short_of_memory[] =
        "{\"error\":{\"message\":\"no memory for the answer\",\"type\":\"server_error\","
        "\"param\":null,\"code\":\"insufficient_storage\"}}\n";
    struct json *root = json_new_object(), *object = json_new_object();

    json_add_string(object, "message", what->message);
    json_add_string(object, "type", error_type(status));
    json_add_string(object, "param", what->param[0] ? what->param : NULL);
    json_add_string(object, "code", code);
    if (lines)
        json_add(object, "lines", json_copy(lines));
    if (url)
        json_add_string(object, "url", url);
    json_add(root, "error", object);
    if (response_set_json(response, status, root, NULL))
        return;
    response_release(response);
    response->status = 507;
    response->content_type = TYPE_JSON;
    response->kind = RESPONSE_STATIC;
    response->static_bytes = short_of_memory;
    response->size_bytes = strlen(short_of_memory);
}

void response_set_error(struct response *response, const struct error *err,
                        const struct json *lines)
{
    const char *code = answers[err->code].code;

    if (err->code == ERR_NOT_FOUND && strcmp(err->param, "model") == 0)
        code = "model_not_found";
    if (err->word[0])
        code = err->word;
    set_error_object(response, status_of(err), code, err, lines, NULL);
}

void response_refuse(struct response *response, unsigned status, const char *code,
                     const char *param, const char *format, ...)
{
    struct error what = {0};
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(what.message, sizeof(what.message), format, arguments); /* cut is fine */
    va_end(arguments);
    if (param)
        (void)snprintf(what.param, sizeof(what.param), "%s", param); /* cut is fine */
    set_error_object(response, status, code, &what, NULL, NULL);
}

void response_refuse_key(struct response *response, const char *url, const char *message)
{
    struct error what = {0};

    (void)snprintf(what.message, sizeof(what.message), "%s", message); /* cut is fine */
    set_error_object(response, 401, "invalid_api_key", &what, NULL, url);
}

/* ---- to the library ---- */

static struct MHD_Response *build_content(struct response *response)
{
    struct MHD_Response *built = NULL;

    switch (response->kind) {
    case RESPONSE_BYTES:
        built = MHD_create_response_from_buffer(response->size_bytes, response->bytes,
                                                MHD_RESPMEM_MUST_FREE);
        if (built)
            response->bytes = NULL;
        break;
    case RESPONSE_STATIC:
        built = MHD_create_response_from_buffer(response->size_bytes,
                                                (void *)(uintptr_t)response->static_bytes,
                                                MHD_RESPMEM_PERSISTENT);
        break;
    case RESPONSE_FILE:
        built = MHD_create_response_from_fd_at_offset64(response->range_size, response->descriptor,
                                                        response->range_start);
        if (built)
            response->descriptor = -1;
        break;
    case RESPONSE_STREAM:
        if (!response->stream) {
            built = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
            break;
        }
        built = stream_build(response->stream);
        if (built)
            response->stream = NULL;
        break;
    }
    return built;
}

/* Calls add for each header of the answer but its length. */
static void each_header(const struct response *response, const char *request_id,
                        void (*add)(void *context, const char *name, const char *value),
                        void *context)
{
    char disposition[128], range[80];

    add(context, "x-request-id", request_id);
    add(context, "X-Content-Type-Options", "nosniff");
    if (response->content_type)
        add(context, "Content-Type", response->content_type);
    if (response->kind == RESPONSE_STREAM) {
        add(context, "Cache-Control", "no-cache, no-transform");
        add(context, "X-Accel-Buffering", "no");
    } else if (!response->headers) {
        add(context, "Cache-Control", "no-store");
    }
    for (const struct response_header *header = response->headers; header && header->name; header++)
        add(context, header->name, header->value);
    if (response->attachment) {
        (void)snprintf(disposition, sizeof(disposition), "attachment; filename=\"%s\"",
                       response->attachment); /* static names, far shorter */
        add(context, "Content-Disposition", disposition);
    }
    if (response->kind == RESPONSE_FILE)
        add(context, "Accept-Ranges", "bytes");
    if (response->status == 206 || response->status == 416) {
        if (response->status == 206)
            (void)snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                           response->range_start, response->range_start + response->range_size - 1,
                           response->file_size_bytes); /* three numbers fit */
        else
            (void)snprintf(range, sizeof(range), "bytes */%" PRIu64, response->file_size_bytes);
        add(context, "Content-Range", range);
    }
    if (response->location)
        add(context, "Location", response->location);
    if (response->cookie[0])
        add(context, "Set-Cookie", response->cookie);
    if (response->etag[0])
        add(context, "ETag", response->etag);
    if (response->allow[0])
        add(context, "Allow", response->allow);
    if (response->status == 401)
        add(context, "WWW-Authenticate", "Bearer realm=\"needled\"");
    if (response->status == 503)
        add(context, "Retry-After", "1");
    if (response->replayed)
        add(context, "Idempotent-Replayed", "true");
    if (response->status == 409 || response->status == 422 || response->status == 429 ||
        response->status == 501 || response->status == 507)
        add(context, "x-should-retry", "false"); /* the official client would ask three times */
}

struct building {
    struct MHD_Response *built;
    bool whole;
};

static void add_to_built(void *context, const char *name, const char *value)
{
    struct building *building = context;

    building->whole =
        MHD_add_response_header(building->built, name, value) == MHD_YES && building->whole;
}

struct MHD_Response *response_build(struct response *response, const char *request_id)
{
    struct building building = {.built = build_content(response), .whole = true};

    if (building.built)
        each_header(response, request_id, add_to_built, &building);
    if (building.built && !building.whole) { /* a redirect to nowhere is no answer */
        MHD_destroy_response(building.built);
        return NULL;
    }
    return building.built;
}

static void add_to_text(void *context, const char *name, const char *value)
{
    buf_format(context, "%s: %s\r\n", name, value);
}

bool response_print(const struct response *response, const char *request_id, char *ret_bytes,
                    size_t capacity, size_t *ret_size)
{
    const char *bytes =
        response->kind == RESPONSE_STATIC ? response->static_bytes : response->bytes;
    struct buf text;
    bool ok;

    assert(response->kind == RESPONSE_BYTES || response->kind == RESPONSE_STATIC);
    buf_init(&text, capacity);
    buf_format(&text, "HTTP/1.1 %u %s\r\n", response->status,
               MHD_get_reason_phrase_for(response->status));
    each_header(response, request_id, add_to_text, &text);
    buf_format(&text, "Content-Length: %zu\r\nConnection: close\r\n\r\n", response->size_bytes);
    buf_append(&text, bytes, response->size_bytes);
    ok = !text.failed;
    if (ok) {
        memcpy(ret_bytes, text.data, text.size);
        *ret_size = text.size;
    }
    buf_release(&text);
    return ok;
}

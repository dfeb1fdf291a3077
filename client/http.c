#include "client/http.h"

#include <cjson/cJSON.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX_BYTES ((size_t)64 << 20)
#define CONNECT_TIMEOUT_S 5L
#define SILENCE_LIMIT_S 60L /* a stream sends a comment every 15 s */

struct http {
    CURL *curl;
    char base[512];
    char *socket_path;   /* NULL: TCP */
    char *authorization; /* header line, NULL: none */
    char error[8192];
    long status;
};

struct answer {
    char *data;
    size_t size;
    bool too_large;
};

struct stream {
    http_take_fn *take;
    void *context;
    bool stopped;
    int error; /* errno of what stopped it */
    CURL *curl;
    struct answer refusal; /* the body of an answer that is no stream */
};

struct http *http_open(const char *url, const char *key)
{
    struct http *http = calloc(1, sizeof(*http));
    size_t length;

    if (http == NULL)
        return NULL;
    http->curl = curl_easy_init();
    if (strncmp(url, "unix:", 5) == 0) {
        http->socket_path = strdup(url + 5);
        (void)snprintf(http->base, sizeof(http->base), "http://localhost");
    } else {
        (void)snprintf(http->base, sizeof(http->base), "%s", url);
    }
    length = strlen(http->base);
    while (length > 0 && http->base[length - 1] == '/')
        http->base[--length] = '\0';
    if (length > 3 && strcmp(http->base + length - 3, "/v1") == 0)
        http->base[length - 3] = '\0'; /* as the other clients want it written */
    if (key != NULL && key[0] != '\0' &&
        asprintf(&http->authorization, "Authorization: Bearer %s", key) < 0)
        http->authorization = NULL;
    if (http->curl == NULL || (strncmp(url, "unix:", 5) == 0 && http->socket_path == NULL)) {
        http_close(http);
        return NULL;
    }
    return http;
}

void http_close(struct http *http)
{
    if (http == NULL)
        return;
    curl_easy_cleanup(http->curl);
    free(http->socket_path);
    free(http->authorization);
    free(http);
}

const char *http_error(const struct http *http)
{
    return http->error;
}

long http_status(const struct http *http)
{
    return http->status;
}

static size_t collect(char *bytes, size_t one, size_t count, void *context)
{
    struct answer *answer = context;
    size_t size = one * count;
    char *grown;

    if (size > ANSWER_MAX_BYTES - answer->size) {
        answer->too_large = true;
        return 0;
    }
    grown = realloc(answer->data, answer->size + size + 1);
    if (grown == NULL)
        return 0;
    memcpy(grown + answer->size, bytes, size);
    answer->data = grown;
    answer->size += size;
    answer->data[answer->size] = '\0';
    return size;
}

/* Everything a request of ours has in common; returns its headers for curl_slist_free_all. */
static struct curl_slist *prepare(struct http *http, const char *path, const char *more_header)
{
    struct curl_slist *headers = NULL;
    char url[2048];

    curl_easy_reset(http->curl);
    (void)snprintf(url, sizeof(url), "%s%s", http->base, path);
    (void)curl_easy_setopt(http->curl, CURLOPT_URL, url);
    if (http->socket_path != NULL)
        (void)curl_easy_setopt(http->curl, CURLOPT_UNIX_SOCKET_PATH, http->socket_path);
    (void)curl_easy_setopt(http->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_TIMEOUT_S);
    (void)curl_easy_setopt(http->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(http->curl, CURLOPT_USERAGENT, "needlectl/" NEEDLED_VERSION);
    (void)curl_easy_setopt(http->curl, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
    if (http->authorization != NULL)
        headers = curl_slist_append(headers, http->authorization);
    if (more_header != NULL)
        headers = curl_slist_append(headers, more_header);
    (void)curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, headers);
    http->error[0] = '\0';
    http->status = 0;
    return headers;
}

static void tell_transport(struct http *http, CURLcode code)
{
    if (code == CURLE_COULDNT_CONNECT)
        (void)snprintf(http->error, sizeof(http->error),
                       "no daemon answers at %s (is needled running?)",
                       http->socket_path != NULL ? http->socket_path : http->base);
    else
        (void)snprintf(http->error, sizeof(http->error), "%s: %s", http->base,
                       curl_easy_strerror(code));
}

/* Appends to the error what fits. */
static __attribute__((format(printf, 2, 3))) void add_error(struct http *http, const char *format,
                                                            ...)
{
    size_t used = strlen(http->error);
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(http->error + used, sizeof(http->error) - used, format, arguments);
    va_end(arguments);
}

/* A row for each bad line the server names. */
static void add_lines(struct http *http, const cJSON *lines)
{
    const cJSON *line = NULL;

    cJSON_ArrayForEach(line, lines)
    {
        const cJSON *number = cJSON_GetObjectItemCaseSensitive(line, "line");
        const cJSON *column = cJSON_GetObjectItemCaseSensitive(line, "column");
        const cJSON *reason = cJSON_GetObjectItemCaseSensitive(line, "reason");

        if (cJSON_IsNumber(number) && cJSON_IsString(reason))
            add_error(http, "\n  line %.0f, column %.0f: %s", number->valuedouble,
                      cJSON_IsNumber(column) ? column->valuedouble : 0, reason->valuestring);
    }
}

/* The server's own words for a refusal, with the bad lines below it. */
static void tell_refusal(struct http *http, const char *body)
{
    cJSON *json = body != NULL ? cJSON_Parse(body) : NULL;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(error, "message");
    const cJSON *param = cJSON_GetObjectItemCaseSensitive(error, "param");

    http->error[0] = '\0';
    if (cJSON_IsString(message))
        add_error(http, "%s", message->valuestring);
    else
        add_error(http, "%s answered with status %ld", http->base, http->status);
    if (cJSON_IsString(message) && cJSON_IsString(param) &&
        strstr(message->valuestring, param->valuestring) == NULL)
        add_error(http, " (%s)", param->valuestring);
    if (http->status == 401)
        add_error(http, "; set NEEDLED_API_KEY to the key");
    add_lines(http, cJSON_GetObjectItemCaseSensitive(error, "lines"));
    cJSON_Delete(json);
}

/* Sends what was prepared and reads a JSON answer. */
static bool perform_json(struct http *http, cJSON **ret_json)
{
    struct answer answer = {0};
    cJSON *json = NULL;
    bool ok = false;
    CURLcode code;

    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, collect);
    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, &answer);
    code = curl_easy_perform(http->curl);
    (void)curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &http->status);
    if (code != CURLE_OK && http->status < 400) {
        tell_transport(http, code);
        goto out;
    }
    if (http->status < 200 || http->status > 299) {
        tell_refusal(http, answer.data);
        goto out;
    }
    json = cJSON_ParseWithLength(answer.data != NULL ? answer.data : "", answer.size);
    if (json == NULL) {
        (void)snprintf(http->error, sizeof(http->error), "%s: the answer is not JSON", http->base);
        goto out;
    }
    *ret_json = json;
    ok = true;
out:
    free(answer.data);
    return ok;
}

bool http_call(struct http *http, const char *path, const char *body, cJSON **ret_json)
{
    struct curl_slist *headers =
        prepare(http, path, body != NULL ? "Content-Type: application/json" : NULL);
    bool ok;

    if (body != NULL) {
        (void)curl_easy_setopt(http->curl, CURLOPT_POSTFIELDS, body);
        (void)curl_easy_setopt(http->curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    }
    ok = perform_json(http, ret_json);
    curl_slist_free_all(headers);
    return ok;
}

bool http_delete(struct http *http, const char *path, cJSON **ret_json)
{
    struct curl_slist *headers = prepare(http, path, NULL);
    cJSON *answer = NULL;
    bool ok;

    (void)curl_easy_setopt(http->curl, CURLOPT_CUSTOMREQUEST, "DELETE");
    ok = perform_json(http, &answer);
    if (ok && ret_json)
        *ret_json = answer;
    else
        cJSON_Delete(answer);
    curl_slist_free_all(headers);
    return ok;
}

bool http_upload(struct http *http, const char *file_path, cJSON **ret_json)
{
    return http_upload_for(http, file_path, 0, ret_json);
}

static void add_part(curl_mime *form, const char *name, const char *text)
{
    curl_mimepart *part = curl_mime_addpart(form);

    (void)curl_mime_name(part, name);
    (void)curl_mime_data(part, text, CURL_ZERO_TERMINATED);
}

bool http_upload_for(struct http *http, const char *file_path, long expires_s, cJSON **ret_json)
{
    struct curl_slist *headers = prepare(http, "/v1/files", NULL);
    curl_mime *form = curl_mime_init(http->curl);
    curl_mimepart *part;
    char seconds[24];
    struct stat info;
    bool ok = false;

    add_part(form, "purpose", "fine-tune");
    if (expires_s > 0) {
        (void)snprintf(seconds, sizeof(seconds), "%ld", expires_s);
        add_part(form, "expires_after[anchor]", "created_at");
        add_part(form, "expires_after[seconds]", seconds);
    }
    part = curl_mime_addpart(form);
    (void)curl_mime_name(part, "file");
    if (access(file_path, R_OK) != 0 || stat(file_path, &info) != 0) {
        (void)snprintf(http->error, sizeof(http->error), "'%s': %s", file_path, strerror(errno));
        goto out;
    }
    if (S_ISDIR(info.st_mode)) {
        (void)snprintf(http->error, sizeof(http->error), "'%s' is a folder, not a file", file_path);
        goto out;
    }
    (void)curl_mime_filedata(part, file_path);
    (void)curl_easy_setopt(http->curl, CURLOPT_MIMEPOST, form);
    ok = perform_json(http, ret_json);
out:
    curl_mime_free(form);
    curl_slist_free_all(headers);
    return ok;
}

static size_t pass_on(char *bytes, size_t one, size_t count, void *context)
{
    struct stream *stream = context;
    long status = 0;

    (void)curl_easy_getinfo(stream->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return collect(bytes, one, count, &stream->refusal);
    if (!stream->take(stream->context, bytes, one * count)) {
        stream->error = errno;
        stream->stopped = true;
        return 0;
    }
    return one * count;
}

static bool write_file(void *context, const char *bytes, size_t size)
{
    return fwrite(bytes, 1, size, context) == size;
}

/* A failure of ours, not the daemon's. */
static bool system_fail(struct http *http, const char *path)
{
    (void)snprintf(http->error, sizeof(http->error), "'%s': %s", path, strerror(errno));
    http->status = 0;
    return false;
}

/* The bytes behind the path into the file, which is closed in every case. */
static bool download(struct http *http, const char *path, FILE *file, const char *target_path,
                     uint64_t *ret_size)
{
    struct stream stream = {.take = write_file, .context = file, .curl = http->curl};
    struct curl_slist *headers = prepare(http, path, NULL);
    curl_off_t size = 0;
    CURLcode code;
    int write_error;
    bool wrote;

    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, pass_on);
    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, &stream);
    (void)curl_easy_setopt(http->curl, CURLOPT_FOLLOWLOCATION, 1L); /* content is behind a link */
    (void)curl_easy_setopt(http->curl, CURLOPT_MAXREDIRS, 3L);
    code = curl_easy_perform(http->curl);
    (void)curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &http->status);
    (void)curl_easy_getinfo(http->curl, CURLINFO_SIZE_DOWNLOAD_T, &size);
    wrote = !stream.stopped && fflush(file) == 0 &&
            (fsync(fileno(file)) == 0 || errno == EINVAL || errno == EROFS); /* a pipe, a device */
    write_error = stream.stopped ? stream.error : errno;
    if (fclose(file) != 0 && wrote) {
        write_error = errno;
        wrote = false;
    }
    curl_slist_free_all(headers);
    if (http->status >= 400) {
        tell_refusal(http, stream.refusal.data);
    } else if (!wrote) {
        errno = write_error;
        (void)system_fail(http, target_path); /* told below */
    } else if (code != CURLE_OK) {
        tell_transport(http, code);
    }
    free(stream.refusal.data);
    *ret_size = (uint64_t)size;
    return http->status < 400 && code == CURLE_OK && wrote;
}

/* A new file beside the target, under a name that is nobody's; NULL with errno. */
static FILE *open_temporary(const char *target_path, bool is_secret, char *ret_path,
                            size_t capacity)
{
    static const char end[] = ".part";
    const int length = snprintf(ret_path, capacity, "%s.XXXXXX%s", target_path, end);
    int descriptor;
    FILE *file;

    if (length < 0 || (size_t)length >= capacity) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    descriptor = mkostemps(ret_path, (int)strlen(end), O_CLOEXEC); /* which the owner alone reads */
    if (descriptor >= 0 && !is_secret) {
        const mode_t mask = umask(0);

        (void)umask(mask);
        (void)fchmod(descriptor, 0666 & ~mask); /* refused: it stays the owner's */
    }
    file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (descriptor >= 0 && !file) {
        (void)close(descriptor); /* nothing was written to it */
        (void)unlink(ret_path);
    }
    return file;
}

bool http_download(struct http *http, const char *path, const char *target_path, uint64_t *ret_size)
{
    char temporary[4096];
    const char *written = temporary;
    uint64_t size = 0;
    struct stat info;
    FILE *file;

    http->status = 0;
    if (lstat(target_path, &info) == 0 && !S_ISREG(info.st_mode))
        written = target_path; /* a folder fails here; a device, pipe or link is not replaced */
    file = written == target_path
               ? fopen(target_path, "wb")
               : open_temporary(target_path, false, temporary, sizeof(temporary));
    if (file == NULL)
        return system_fail(http, target_path);
    if (!download(http, path, file, target_path, &size)) {
        if (written == temporary)
            (void)unlink(temporary);
        return false;
    }
    if (written == temporary && rename(temporary, target_path) != 0) {
        (void)system_fail(http, target_path);
        (void)unlink(temporary);
        return false;
    }
    if (ret_size != NULL)
        *ret_size = size;
    return true;
}

bool http_download_secret(struct http *http, const char *path, const char *target_path,
                          uint64_t *ret_size)
{
    char temporary[4096];
    FILE *file;

    http->status = 0;
    errno = EEXIST;
    if (access(target_path, F_OK) == 0)
        return system_fail(http, target_path);
    file = open_temporary(target_path, true, temporary, sizeof(temporary));
    if (file == NULL)
        return system_fail(http, target_path);
    if (!download(http, path, file, target_path, ret_size)) {
        (void)unlink(temporary);
        return false;
    }
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, target_path, RENAME_NOREPLACE) != 0 &&
        (errno != EINVAL || rename(temporary, target_path) != 0)) { /* a file system without it */
        (void)system_fail(http, target_path);
        (void)unlink(temporary);
        return false;
    }
    return true;
}

bool http_stream(struct http *http, const char *path, const char *last_id, http_take_fn *take,
                 void *context)
{
    struct stream stream = {.take = take, .context = context, .curl = http->curl};
    char header[128];
    struct curl_slist *headers;
    CURLcode code;
    bool ok = false;

    (void)snprintf(header, sizeof(header), "Last-Event-ID: %s", last_id);
    headers = prepare(http, path, last_id[0] != '\0' ? header : NULL);
    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, pass_on);
    (void)curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, &stream);
    (void)curl_easy_setopt(http->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    (void)curl_easy_setopt(http->curl, CURLOPT_LOW_SPEED_TIME, SILENCE_LIMIT_S);
    code = curl_easy_perform(http->curl);
    (void)curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &http->status);
    if (http->status >= 400)
        tell_refusal(http, stream.refusal.data);
    else if (code != CURLE_OK && !stream.stopped)
        tell_transport(http, code);
    else
        ok = true;
    free(stream.refusal.data);
    curl_slist_free_all(headers);
    return ok;
}

char *http_escape(struct http *http, const char *segment)
{
    char *escaped = curl_easy_escape(http->curl, segment, 0);
    char *copy = escaped != NULL ? strdup(escaped) : NULL;

    curl_free(escaped);
    return copy;
}

void http_join(struct http *http, const char *prefix, const char *segment, const char *rest,
               char *ret_path, size_t capacity)
{
    char *escaped = http_escape(http, segment);

    (void)snprintf(ret_path, capacity, "%s%s%s", prefix, escaped != NULL ? escaped : "", rest);
    free(escaped);
}

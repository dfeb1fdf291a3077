/*
 * http: requests to the daemon.
 *
 * Purpose    One function per kind of exchange over libcurl; answers are JSON, files or event
 *            streams.
 * Ownership  http_open / http_close. *ret_json is a cJSON tree for the caller to cJSON_Delete.
 * Threads    One handle, one thread.
 * Failure    False with a sentence in http_error: connection refused and where, or the server's own
 *            error.message.
 */
#ifndef NEEDLED_CLIENT_HTTP_H
#define NEEDLED_CLIENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct http;

/* url "http://127.0.0.1:7733" or "unix:/path/of.sock"; key NULL: none. */
struct http *http_open(const char *url, const char *key); /* NULL without memory */
void http_close(struct http *http);                       /* NULL is fine */
const char *http_error(const struct http *http);
long http_status(const struct http *http); /* of the last answer; 0: none came */

/* path from the root: "/v1/fine_tuning/jobs". body NULL: GET, "": an empty POST. */
bool http_call(struct http *http, const char *path, const char *body, struct cJSON **ret_json);
bool http_delete(struct http *http, const char *path, struct cJSON **ret_json); /* may be NULL */
/* Uploads a file with purpose fine-tune. */
bool http_upload(struct http *http, const char *file_path, struct cJSON **ret_json);
/* The same, to be kept for so many seconds; 0: for ever. */
bool http_upload_for(struct http *http, const char *file_path, long expires_s,
                     struct cJSON **ret_json);
/* Saves an answer's body; the file appears whole under its name. A device, a pipe or what a link
 * leads to is written to as it is. ret_size may be NULL. http_status is 0 when it cannot be
 * written. */
bool http_download(struct http *http, const char *path, const char *target_path,
                   uint64_t *ret_size);
/* The same into a file that only its owner reads and that is not there yet. */
bool http_download_secret(struct http *http, const char *path, const char *target_path,
                          uint64_t *ret_size);

/* Hands every piece of an event stream to take until the stream ends (true) or breaks (false).
 * take returns false to stop listening. last_id "" starts at the beginning. */
typedef bool http_take_fn(void *context, const char *bytes, size_t size);
bool http_stream(struct http *http, const char *path, const char *last_id, http_take_fn *take,
                 void *context);

/* "<prefix><segment, percent-encoded><rest>"; cut where it does not fit. */
void http_join(struct http *http, const char *prefix, const char *segment, const char *rest,
               char *ret_path, size_t capacity);
/* A path segment, percent-encoded; free with free(). NULL without memory. */
char *http_escape(struct http *http, const char *segment);

#endif

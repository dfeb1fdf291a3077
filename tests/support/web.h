/*
 * web: a plain HTTP client that sends exactly the bytes a test wants sent.
 *
 * Purpose    Raw sockets: half requests, pipelines, slow readers, and what came back.
 * Ownership  web_open / close(2); answers by web_release.
 * Threads    The test's.
 * Failure    Fails the test, with what was received so far.
 */
#ifndef NEEDLED_WEB_H
#define NEEDLED_WEB_H

#include <stdbool.h>
#include <stddef.h>

struct web_answer {
    int interim_count; /* 100 Continue */
    int status;
    char *head; /* status line and headers */
    char *body; /* decoded when chunked; NUL-terminated */
    size_t size;
    bool whole; /* the body ended as its framing says */
};

int web_open(int port);                /* 127.0.0.1 */
int web_open_socket(const char *path); /* a Unix socket */
void web_send(int descriptor, const void *bytes, size_t size);
void web_send_text(int descriptor, const char *text);
/* Waits for one answer. no_body: to a HEAD. */
void web_receive(int descriptor, bool no_body, struct web_answer *ret_answer);
void web_release(struct web_answer *answer);
/* A header's value in a buffer good until the eighth next call, or NULL. */
const char *web_header(const struct web_answer *answer, const char *name);
/* True when the other side closes within timeout_ms; what it sends before is dropped. */
bool web_is_closed(int descriptor, int timeout_ms);
/* Bytes up to and with `wanted`, in a buffer to free(); fails after timeout_ms. For streams. */
char *web_read_until(int descriptor, const char *wanted, int timeout_ms);

/* One request on its own connection: format gives the whole request. */
void web_ask(int port, struct web_answer *ret_answer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a method and path alone. */
void web_call(int port, const char *method, const char *path, struct web_answer *ret_answer);
/* GETs what a redirect of this path leads to; headers (lines with their ends) go with the first request
 * alone, as clients do when the address carries its own permission. ret_path (or NULL): its path and
 * query, of path_size bytes. */
void web_follow(int port, const char *headers, const char *path, char *ret_path, size_t path_size,
                struct web_answer *ret_answer);

#endif

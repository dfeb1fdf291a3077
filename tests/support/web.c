#include "tests/support/test.h"

#include "tests/support/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 120000
#define SLOW_MACHINE 6 /* times as long as where nothing else runs */

struct received {
    char *bytes;
    size_t size, capacity;
    bool closed;
};

static long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int web_open(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

int web_open_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (struct sockaddr *)&address, sizeof(address)), 0);
    return descriptor;
}

void web_send(int descriptor, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        ssize_t sent = send(descriptor, at, size, MSG_NOSIGNAL);

        if (sent < 0)
            return; /* refused in the middle: the answer tells */
        at += sent;
        size -= (size_t)sent;
    }
}

void web_send_text(int descriptor, const char *text)
{
    web_send(descriptor, text, strlen(text));
}

/* Waits for more bytes; false at the end or the time. */
static bool receive_some(int descriptor, struct received *in, int timeout_ms, size_t piece)
{
    struct pollfd about = {.fd = descriptor, .events = POLLIN};
    ssize_t size;

    if (in->closed || poll(&about, 1, timeout_ms) <= 0)
        return false;
    if (in->capacity - in->size < piece + 1) {
        in->capacity = 2 * in->capacity + piece + 1;
        in->bytes = realloc(in->bytes, in->capacity);
        assert_non_null(in->bytes);
    }
    size = recv(descriptor, in->bytes + in->size, piece, 0);
    if (size <= 0) {
        in->closed = true;
        return false;
    }
    in->size += (size_t)size;
    in->bytes[in->size] = '\0';
    return true;
}

/* One byte at a time, so that nothing of the next answer is taken: tests, not a load. */
static char *receive_head(int descriptor, struct received *in)
{
    while (in->size < 4 || memcmp(in->bytes + in->size - 4, "\r\n\r\n", 4) != 0) {
        if (!receive_some(descriptor, in, ANSWER_TIMEOUT_MS, 1))
            fail_msg("no whole header: '%s'", in->bytes ? in->bytes : "");
    }
    in->bytes[in->size - 2] = '\0'; /* ends behind the last header line */
    return in->bytes;
}

static bool receive_exactly(int descriptor, struct received *in, size_t size)
{
    size_t wanted = in->size + size;

    while (in->size < wanted) {
        if (!receive_some(descriptor, in, ANSWER_TIMEOUT_MS, wanted - in->size))
            return false;
    }
    return true;
}

static bool receive_chunks(int descriptor, struct received *body)
{
    for (;;) {
        struct received line = {0};
        struct received ignored = {0};
        unsigned long size;
        bool ok = true;

        while (ok && (line.size < 2 || memcmp(line.bytes + line.size - 2, "\r\n", 2) != 0))
            ok = receive_some(descriptor, &line, ANSWER_TIMEOUT_MS, 1);
        size = ok ? strtoul(line.bytes, NULL, 16) : 0;
        ok = ok && (size == 0 || receive_exactly(descriptor, body, size)) &&
             receive_exactly(descriptor, &ignored, 2);
        free(line.bytes);
        free(ignored.bytes);
        if (!ok || size == 0)
            return ok;
    }
}

const char *web_header(const struct web_answer *answer, const char *name)
{
    static _Thread_local char values[8][512];
    static _Thread_local unsigned next;
    char *value = values[next++ % 8];
    size_t size = strlen(name);

    for (const char *line = strstr(answer->head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, size) == 0 && line[2 + size] == ':') {
            line += 2 + size + 1;
            line += strspn(line, " ");
            snprintf(value, 512, "%.*s", (int)strcspn(line, "\r\n"), line);
            return value;
        }
    }
    return NULL;
}

void web_receive(int descriptor, bool no_body, struct web_answer *ret_answer)
{
    struct web_answer answer = {0};
    struct received body = {0};
    const char *length, *coding;

    for (;;) {
        struct received head = {0};

        answer.head = receive_head(descriptor, &head);
        answer.status = atoi(strchr(answer.head, ' '));
        if (answer.status != 100)
            break;
        answer.interim_count++;
        free(answer.head);
    }
    length = web_header(&answer, "Content-Length");
    coding = web_header(&answer, "Transfer-Encoding");
    if (no_body || answer.status == 204) {
        answer.whole = true;
    } else if (coding && strcasecmp(coding, "chunked") == 0) {
        answer.whole = receive_chunks(descriptor, &body);
    } else if (length) {
        size_t size = strtoul(length, NULL, 10);

        answer.whole = size == 0 || receive_exactly(descriptor, &body, size);
    } else {
        while (receive_some(descriptor, &body, ANSWER_TIMEOUT_MS, 4096))
            ;
        answer.whole = body.closed;
    }
    answer.body = body.bytes ? body.bytes : strdup("");
    answer.size = body.size;
    *ret_answer = answer;
}

void web_release(struct web_answer *answer)
{
    free(answer->head);
    free(answer->body);
    *answer = (struct web_answer){0};
}

bool web_is_closed(int descriptor, int timeout_ms)
{
    long long until = now_ms() + timeout_ms;
    struct received in = {0};

    while (!in.closed && now_ms() < until) {
        in.size = 0;
        (void)receive_some(descriptor, &in, (int)(until - now_ms()), 4096);
    }
    free(in.bytes);
    return in.closed;
}

char *web_read_until(int descriptor, const char *wanted, int timeout_ms)
{
    long long until = now_ms() + SLOW_MACHINE * (long long)timeout_ms;
    struct received in = {0};

    while (!in.bytes || !strstr(in.bytes, wanted)) {
        long long left = until - now_ms();

        if (left <= 0 || !receive_some(descriptor, &in, (int)left, 1))
            fail_msg("'%s' did not come, but '%s'", wanted, in.bytes ? in.bytes : "");
    }
    return in.bytes;
}

void web_ask(int port, struct web_answer *ret_answer, const char *format, ...)
{
    char *request = NULL;
    int descriptor = web_open(port);
    va_list arguments;

    va_start(arguments, format);
    assert_true(vasprintf(&request, format, arguments) >= 0);
    va_end(arguments);
    web_send_text(descriptor, request);
    web_receive(descriptor, strncmp(request, "HEAD", 4) == 0, ret_answer);
    free(request);
    close(descriptor);
}

void web_call(int port, const char *method, const char *path, struct web_answer *ret_answer)
{
    web_ask(port, ret_answer, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n",
            method, path, port);
}

void web_follow(int port, const char *headers, const char *path, char *ret_path, size_t path_size,
                struct web_answer *ret_answer)
{
    static const char here[] = "http://localhost/";
    struct web_answer first;
    const char *location;
    char target[2048];

    web_ask(port, &first, "GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n", path,
            headers);
    location = web_header(&first, "Location");
    if (first.status != 307 || !location || strncmp(location, here, strlen(here)) != 0)
        fail_msg("%s: %d, Location '%s'", path, first.status, location ? location : "");
    assert_int_equal(first.size, 0);
    snprintf(target, sizeof(target), "%s", location + strlen(here) - 1);
    web_release(&first);
    if (ret_path)
        snprintf(ret_path, path_size, "%s", target);
    web_call(port, "GET", target, ret_answer);
}

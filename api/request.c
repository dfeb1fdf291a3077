#include "api/request.h"

#include "api/form.h"
#include "api/session.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ARENA_MAX                                                                                  \
    ((size_t)256 << 10) /* texts of one request; the library bounds its header below */

/* "http://authority/path", which clients of a proxy send: its authority is the host that was asked for,
 * whatever the header says (RFC 9112, 3.2.2). */
static const char *skip_authority(struct request *request)
{
    const char *url = request->url, *start;
    size_t size;

    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return url;
    start = strstr(url, "://") + 3;
    size = strcspn(start, "/");
    request->host = arena_copy(&request->arena, start, size);
    if (!request->host)
        request->no_memory = true;
    return start[size] ? start + size : "/";
}

/* The path is cut at its slashes first and decoded after: an id may hold an escaped slash. */
void request_read_path(struct request *request)
{
    const char *at = skip_authority(request);

    if (strcmp(at, "*") == 0) { /* of the server, not of a path: OPTIONS takes it */
        request->asterisk = true;
        return;
    }

    if (*at != '/') {
        request->malformed = true;
        return;
    }
    while (*at == '/') {
        size_t size = strcspn(at + 1, "/");
        char *segment = arena_copy(&request->arena, at + 1, size);

        if (!segment)
            request->no_memory = true;
        else if (!text_decode(segment))
            request->malformed = true;
        if (request->segment_count == REQUEST_SEGMENT_MAX) {
            request->segment_count++; /* longer than any route: matches none */
            return;
        }
        request->segments[request->segment_count++] = segment ? segment : "";
        at += 1 + size;
    }
}

bool request_add_query(struct request *request, const char *name, const char *value)
{
    struct query_field *field = arena_alloc(&request->arena, sizeof(*field));
    char *own_name = arena_copy(&request->arena, name, strlen(name));
    char *own_value = value ? arena_copy(&request->arena, value, strlen(value))
                            : arena_copy(&request->arena, "", 0);

    if (!field || !own_name || !own_value) {
        request->no_memory = true;
        return false;
    }
    if (!text_decode(own_name) || !text_decode(own_value)) {
        request->malformed = true;
        return false;
    }
    *field = (struct query_field){own_name, own_value, request->query};
    request->query = field;
    return true;
}

static enum MHD_Result add_query_field(void *context, enum MHD_ValueKind kind, const char *name,
                                       const char *value)
{
    (void)kind; /* only one kind is asked for */
    return request_add_query(context, name, value) ? MHD_YES : MHD_NO;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Headers that decide who may ask, and what is done: of two, somebody before us may have looked at the
 * other. */
static const char *const single[] = {"Host", "Origin", "Authorization", "Content-Type",
                                     "Idempotency-Key"};

struct header_counts {
    size_t count[COUNT_OF(single)], length_count, coding_count;
    bool misnamed; /* white space before a colon: the library reads another name than others do */
    bool unclean;  /* a control character: also a line end that is one to others alone */
};

static bool has_control(const char *text)
{
    for (; *text; text++) {
        if (((unsigned char)*text < 0x20 && *text != '\t') || *text == 0x7f)
            return true;
    }
    return false;
}

static enum MHD_Result count_header(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    struct header_counts *counts = context;

    (void)kind; /* only one kind is asked for */
    for (size_t i = 0; i < COUNT_OF(single); i++)
        counts->count[i] += strcasecmp(name, single[i]) == 0;
    counts->length_count += strcasecmp(name, "Content-Length") == 0;
    counts->coding_count += strcasecmp(name, "Transfer-Encoding") == 0;
    counts->misnamed = counts->misnamed || name[strcspn(name, " \t")] != '\0';
    counts->unclean = counts->unclean || has_control(name) || (value && has_control(value));
    return MHD_YES;
}

static const char *find_repeated(const struct header_counts *counts)
{
    for (size_t i = 0; i < COUNT_OF(single); i++) {
        if (counts->count[i] > 1)
            return single[i];
    }
    return NULL;
}

/* Why somebody before us may have seen the body end elsewhere; NULL: nobody can. */
static const char *find_framing_fault(const struct header_counts *counts, const char *coding)
{
    if (counts->misnamed)
        return "a header has white space before its colon, 'Name: value' is right";
    if (counts->unclean)
        return "a header has a control character, 'Name: value' and a line end are right";
    if (counts->length_count > 1)
        return "the header Content-Length stands there twice, once is right";
    if (counts->coding_count > 1)
        return "the header Transfer-Encoding stands there twice, once is right";
    if (coding && strcasecmp(coding, "chunked") != 0)
        return "the Transfer-Encoding is none that this server reads, 'chunked' is";
    if (coding && counts->length_count > 0)
        return "Transfer-Encoding and Content-Length stand there both, one of them is right";
    return NULL;
}

static const char *find_session(struct MHD_Connection *connection, const char *host)
{
    char name[SESSION_NAME_SIZE];

    session_write_name(host, name);
    return MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, name);
}

static void read_headers(struct request *request)
{
    struct MHD_Connection *connection = request->connection;
    const char *length = header(connection, "Content-Length");
    const char *coding = header(connection, "Transfer-Encoding");
    const char *expect = header(connection, "Expect");
    const char *retries = header(connection, "x-stainless-retry-count");
    struct header_counts counts = {0};
    int64_t announced = 0, count = 0;

    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, count_header, &counts);
    request->repeated = find_repeated(&counts);
    request->framing_fault = find_framing_fault(&counts, coding);
    request->host = header(connection, "Host");
    request->origin = header(connection, "Origin");
    request->authorization = header(connection, "Authorization");
    request->content_type = header(connection, "Content-Type");
    request->accept = header(connection, "Accept");
    request->accept_encoding = header(connection, "Accept-Encoding");
    request->if_none_match = header(connection, "If-None-Match");
    request->session_cookie = find_session(connection, request->host);
    request->has_session_header = header(connection, SESSION_HEADER) != NULL;
    request->range = header(connection, "Range");
    request->if_range = header(connection, "If-Range");
    request->last_event_id = header(connection, "Last-Event-ID");
    request->idempotency_key = header(connection, "Idempotency-Key");
    request->asked_before = retries && text_read_number(retries, INT64_MAX, &count) && count > 0;
    request->is_chunked = coding != NULL;
    request->expects_continue = expect && strcasecmp(expect, "100-continue") == 0;
    if (length && !request->is_chunked) {
        if (!text_read_number(length, INT64_MAX, &announced))
            announced = INT64_MAX; /* the library takes up to 2^64: more than any limit of ours */
        request->announced_bytes = (uint64_t)announced;
    }
}

struct request *request_new(const struct services *services, struct MHD_Connection *connection,
                            const char *url, const char *method)
{
    struct request *request = calloc(1, sizeof(*request));

    if (!request)
        return NULL;
    request->services = services;
    request->connection = connection;
    request->link_bytes = -1;
    request->owner = "";
    request->started_ns = clock_monotonic_ns();
    request->url = url;
    request->head = strcmp(method, "HEAD") == 0;
    request->method = request->head ? "GET" : method;
    arena_init(&request->arena, ARENA_MAX);
    buf_init(&request->body, LIMIT_BODY_BYTES);
    response_init(&request->response);
    if (!file_random_id(request->id, sizeof(request->id), "req-", 20, NULL))
        memcpy(request->id, "req-0", sizeof("req-0")); /* no randomness: the request goes on */
    read_headers(request);
    request_read_path(request);
    MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_query_field, request);
    return request;
}

void request_free(struct request *request)
{
    if (!request)
        return;
    form_free(request->form);
    upload_abort(request->upload);
    json_free(request->lines);
    response_release(&request->response);
    buf_release(&request->body);
    arena_release(&request->arena);
    free(request);
}

const char *request_query(const struct request *request, const char *name)
{
    const char *value = NULL;

    for (const struct query_field *field = request->query; field; field = field->next) {
        if (strcmp(field->name, name) == 0)
            value = field->value; /* the list is last first: the first given wins */
    }
    return value;
}

bool request_has_body(const struct request *request)
{
    return request->is_chunked || request->announced_bytes > 0;
}

bool request_read_json(const struct request *request, struct json **ret_json, struct error *err)
{
    if (request->body.size == 0)
        return error_set(err, ERR_INVALID, "the body is empty, a JSON object is needed");
    if (!json_parse(request->body.data, request->body.size, ret_json, err)) {
        if (!err->param[0])
            error_wrap(err, "the body is not JSON");
        return false;
    }
    if (json_kind_of(*ret_json) == JSON_OBJECT)
        return true;
    json_free(*ret_json);
    *ret_json = NULL;
    return error_set(err, ERR_INVALID, "the body is not a JSON object");
}

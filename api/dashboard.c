#include "api/dashboard.h"

#include "api/handlers.h"
#include "api/request.h"
#include "api/text.h"

#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 128

/* Scripts and styles come from files of ours alone: a text that gets into a page as markup stays dead. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "              \
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

/* Asked for again at each load, which costs an answer without a body while they are the same. */
#define SHARED_HEADERS                                                                             \
    {"Cache-Control", "no-cache"}, {"Vary", "Accept-Encoding"},                                    \
        {"Content-Security-Policy", POLICY}, {"Referrer-Policy", "no-referrer"},                   \
        {"X-Frame-Options", "DENY"}, {"Cross-Origin-Opener-Policy", "same-origin"},                \
    {                                                                                              \
        "Cross-Origin-Resource-Policy", "same-origin"                                              \
    }

static const struct response_header plain_headers[] = {SHARED_HEADERS, {NULL, NULL}};
static const struct response_header gzip_headers[] = {
    SHARED_HEADERS, {"Content-Encoding", "gzip"}, {NULL, NULL}};

static const struct dashboard_file *find(const char *name)
{
    for (size_t i = 0; i < dashboard_file_count; i++) {
        if (strcmp(dashboard_files[i].name, name) == 0)
            return &dashboard_files[i];
    }
    return NULL;
}

/* A list that forbids a coding by a weight of 0 is not read closely: it gets the plain bytes. */
static bool takes_gzip(const char *accept_encoding)
{
    return accept_encoding && text_accepts(accept_encoding, "gzip") &&
           !strstr(accept_encoding, "q=0");
}

static bool answer(struct request *request, const char *name, struct error *err)
{
    const struct dashboard_file *file = find(name);
    struct response *response = &request->response;
    const bool small = takes_gzip(request->accept_encoding);
    char tag[sizeof(response->etag)];

    if (!file)
        return error_set(err, ERR_NOT_FOUND, "the dashboard has no file '%.100s'", name);
    /* Two codings of a file are two sets of bytes: each has its own strong tag. */
    (void)snprintf(tag, sizeof(tag), "\"%s%s\"", file->sha256, small ? "-gz" : ""); /* fits */
    if (request->if_none_match && strstr(request->if_none_match, tag))
        response_set_empty(response, 304);
    else if (small)
        response_set_static(response, file->gzip_bytes, file->gzip_size_bytes);
    else
        response_set_static(response, file->bytes, file->size_bytes);
    response->content_type = file->content_type;
    response->headers = small ? gzip_headers : plain_headers;
    memcpy(response->etag, tag, sizeof(tag));
    return true;
}

bool dashboard_handle_get(struct request *request, struct error *err)
{
    return answer(request, "index.html", err);
}

bool dashboard_handle_file(struct request *request, struct error *err)
{
    const char *folder = request->params[0], *below = request->params[1];
    char name[NAME_MAX_BYTES];

    (void)snprintf(name, sizeof(name), below ? "%s/%s" : "%s", folder, below); /* cut: is none */
    return answer(request, name, err);
}

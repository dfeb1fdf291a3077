/* An upload's form: the first line is the Content-Type, the rest the body. Cut into parts it is the same
 * in any pieces; as an upload it is taken or refused with a reason and leaves nothing behind. */
#include "tests/fuzz/fuzz.h"

#include "api/form.h"
#include "api/multipart.h"
#include "daemon/base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEARD_MAX ((size_t)1 << 22)
#define FILE_MAX ((size_t)1 << 16)

static bool hear_begin(void *context, const char *name, const char *filename, struct error *err)
{
    (void)err; /* nothing is refused */
    buf_format(context, "[%s|%s]", name, filename ? filename : "-");
    return true;
}

static bool hear_data(void *context, const char *bytes, size_t size, struct error *err)
{
    (void)err; /* nothing is refused */
    buf_append(context, bytes, size);
    return true;
}

static bool hear_end(void *context, struct error *err)
{
    (void)err; /* nothing is refused */
    buf_append_text(context, "[end]");
    return true;
}

/* False: it was refused. */
static bool cut(const char *type, const uint8_t *body, size_t size, size_t piece, struct buf *heard)
{
    const struct multipart_events events = {hear_begin, hear_data, hear_end, heard};
    struct multipart *reader = NULL;
    struct error err = {0};
    bool ok = multipart_new(type, &events, &reader, &err);

    for (size_t at = 0; ok && at < size; at += piece)
        ok = multipart_feed(reader, (const char *)body + at, size - at < piece ? size - at : piece,
                            &err);
    ok = ok && multipart_finish(reader, &err);
    fuzz_promise_reason(ok, &err);
    multipart_free(reader);
    return ok;
}

static void upload(const char *type, const uint8_t *body, size_t size)
{
    static char path[256];
    atomic_int helpers = 0;
    struct form *form = NULL;
    struct error err = {0};
    bool ok;

    if (!path[0]) {
        (void)snprintf(path, sizeof(path), "%s/uploads", fuzz_folder());
        fuzz_promise(mkdir(path, 0700) == 0, "a folder can be made");
    }
    ok = form_new(type, fuzz_folder(), FILE_MAX, &helpers, &form, &err) &&
         form_feed(form, (const char *)body, size, &err);
    fuzz_promise_reason(ok, &err);
    form_free(form);
    fuzz_promise(rmdir(path) == 0 && mkdir(path, 0700) == 0, "nothing is left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(bytes, '\n', size) : NULL;
    const size_t type_size = end ? (size_t)(end - bytes) : size;
    const uint8_t *body = end ? end + 1 : bytes + size;
    const size_t body_size = end ? size - type_size - 1 : 0;
    char *type = fuzz_text(bytes, type_size);
    struct buf whole, pieces;
    bool ok;

    buf_init(&whole, HEARD_MAX);
    buf_init(&pieces, HEARD_MAX);
    ok = cut(type, body, body_size, body_size + 1, &whole);
    fuzz_promise(ok == cut(type, body, body_size, 1 + body_size % 5, &pieces),
                 "pieces decide nothing");
    fuzz_promise(whole.size == pieces.size &&
                     (whole.size == 0 || memcmp(whole.data, pieces.data, whole.size) == 0),
                 "parts are the same in pieces");
    buf_release(&whole);
    buf_release(&pieces);
    upload(type, body, body_size);
    free(type);
    return 0;
}

/* The client's reader of event streams: the same events in any pieces, and a cut connection goes on. */
#include "tests/fuzz/fuzz.h"

#include "client/sse.h"
#include "daemon/base/buf.h"

#include <string.h>

#define HEARD_MAX ((size_t)1 << 22)

static bool hear(void *context, const struct sse_event *event)
{
    buf_format(context, "[%s|%s|", event->id, event->type);
    buf_append_text(context, event->data);
    buf_append_text(context, "]");
    return true;
}

static void read_stream(const uint8_t *bytes, size_t size, size_t piece, struct buf *heard)
{
    struct sse sse;
    bool ok = true;

    sse_init(&sse, hear, heard);
    for (size_t at = 0; ok && at < size; at += piece)
        ok = sse_feed(&sse, (const char *)bytes + at, size - at < piece ? size - at : piece);
    buf_format(heard, "%d %s %ld", ok, sse.id, sse.retry_ms);
    sse_restart(&sse);
    ok = sse_feed(&sse, "data: again\n\n", strlen("data: again\n\n"));
    fuzz_promise(ok, "a new connection is read");
    sse_release(&sse);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct buf whole, pieces;

    buf_init(&whole, HEARD_MAX);
    buf_init(&pieces, HEARD_MAX);
    read_stream(bytes, size, size + 1, &whole);
    read_stream(bytes, size, 1 + size % 5, &pieces);
    fuzz_promise(whole.size == pieces.size && memcmp(whole.data, pieces.data, whole.size) == 0,
                 "events are the same in pieces");
    buf_release(&whole);
    buf_release(&pieces);
    return 0;
}

/* The texts of HTTP headers; the first byte says which: 0 percent escapes, 1 RFC 5987 values, 2 parameters,
 * 3 media types, 4 labels, 5 ranges, 6 addresses of webhooks, 7 numbers. */
#include "tests/fuzz/fuzz.h"

#include "api/outbound.h"
#include "api/response.h"
#include "api/text.h"
#include "daemon/base/buf.h"
#include "daemon/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FILE_SIZE UINT64_C(1000)

static void read_escapes(char *text)
{
    char *copy = NULL;
    struct buf encoded;

    if (!text_decode(text))
        return;
    fuzz_promise(utf8_find_fault(text, strlen(text)) == strlen(text), "what is decoded is UTF-8");
    buf_init(&encoded, 4 * strlen(text) + 16);
    text_encode(text, &encoded);
    copy = fuzz_text((const uint8_t *)encoded.data, encoded.size);
    fuzz_promise(text_decode(copy) && strcmp(copy, text) == 0, "escapes go there and back");
    free(copy);
    buf_release(&encoded);
}

static void read_parameter(const char *text)
{
    char value[64];
    const char *end = text_skip_parameter(text);

    fuzz_promise(*end == ';' || *end == '\0', "a parameter has an end");
    if (text_read_value(text, value, sizeof(value)))
        fuzz_promise(strlen(value) < sizeof(value), "a value fits");
}

static void label(const char *text)
{
    for (size_t capacity = 8; capacity <= 256; capacity *= 2) {
        char result[256];

        text_label(result, capacity, text);
        fuzz_promise(result[0] && strlen(result) < capacity && !strchr(result, '/') &&
                         utf8_find_fault(result, strlen(result)) == strlen(result) &&
                         utf8_find_control(result, strlen(result), "") == strlen(result),
                     "a label is a name and no path");
    }
}

static void cut_range(const char *text)
{
    struct response response;

    response_init(&response);
    response.kind = RESPONSE_FILE;
    response.status = 200;
    response.file_size_bytes = response.range_size = FILE_SIZE;
    response_cut(&response, text, NULL);
    fuzz_promise(response.status == 200 || response.status == 206 || response.status == 416,
                 "a range has one of three answers");
    if (response.status == 206)
        fuzz_promise(response.range_size >= 1 && response.range_start < FILE_SIZE &&
                         response.range_size <= FILE_SIZE - response.range_start,
                     "a range lies in the file");
    response_release(&response);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = size > 0 ? fuzz_text(bytes + 1, size - 1) : NULL;
    struct error err = {0};
    int64_t number = -1;

    switch (size > 0 ? bytes[0] % 8 : 8) {
    case 0:
        read_escapes(text);
        break;
    case 1:
        fuzz_promise(!text_decode_extended(text) ||
                         utf8_find_fault(text, strlen(text)) == strlen(text),
                     "what is decoded is UTF-8");
        break;
    case 2:
        read_parameter(text);
        break;
    case 3:
        (void)text_is_media_type(text, "application/json"); /* either is right */
        (void)text_accepts(text, "text/event-stream");      /* the same */
        break;
    case 4:
        label(text);
        break;
    case 5:
        cut_range(text);
        break;
    case 6:
        fuzz_promise_reason(outbound_check_url("*.example.com, hooks.example.org", text, &err),
                            &err);
        break;
    case 7:
        fuzz_promise(!text_read_number(text, 1000, &number) || (number >= 0 && number <= 1000),
                     "a number is in its range");
        break;
    }
    free(text);
    return 0;
}

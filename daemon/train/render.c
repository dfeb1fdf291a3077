#include "daemon/train/render.h"

#include "daemon/base/jsontext.h"
#include "daemon/model/tokenizer.h"

#include <string.h>

#define MARKER_ID_MIN 4  /* <|im_start|>; the tokenizer is checked for these at open */
#define MARKER_ID_MAX 13 /* </tool_result> */

void render_list(const struct strict_value *list, struct buf *out)
{
    if (!list)
        buf_append_text(out, "[]");
    else if (list->kind == STRICT_STRING)
        buf_append(out, list->text, list->size);
    else
        jsontext_write(list, out);
}

void render_prompt(const struct record *record, struct buf *out)
{
    if (record->system.size) {
        buf_append_text(out, "<|im_start|>system\n");
        buf_append(out, record->system.text, record->system.size);
        buf_append_text(out, "<|im_end|>\n");
    }
    buf_append_text(out, "<|im_start|>user\n<tools>");
    render_list(record->tools, out);
    buf_append_text(out, "</tools>\n");
    buf_append(out, record->query.text, record->query.size);
    buf_append_text(out, "<|im_end|>\n<|im_start|>assistant\n");
}

void render_target(const struct record *record, struct buf *out)
{
    if (record->reasoning.size) {
        buf_append_text(out, "<think>\n");
        buf_append(out, record->reasoning.text, record->reasoning.size);
        buf_append_text(out, "\n</think>\n");
    }
    buf_append_text(out, "<tool_call>");
    render_list(record->answers, out);
    buf_append_text(out, "</tool_call><|im_end|>");
}

size_t render_prompt_markers(const struct record *record)
{
    return record->system.size ? 7 : 5;
}

size_t render_target_markers(const struct record *record)
{
    return record->reasoning.size ? 5 : 3;
}

static const char *marker_at(const char *text, size_t size)
{
    for (size_t i = 0; tokenizer_markers[i]; i++) {
        size_t length = strlen(tokenizer_markers[i]);

        if (length <= size && memcmp(text, tokenizer_markers[i], length) == 0)
            return tokenizer_markers[i];
    }
    return NULL;
}

size_t render_count_markers(const char *text, size_t size, const char **ret_marker)
{
    const char *next = text, *end = text + size;
    size_t count = 0;

    while (next < end && (next = memchr(next, '<', (size_t)(end - next))) != NULL) {
        const char *marker = marker_at(next, (size_t)(end - next));

        if (marker && count++ == 0 && ret_marker)
            *ret_marker = marker;
        next += marker ? strlen(marker) : 1;
    }
    return count;
}

size_t render_count_marker_ids(const uint32_t *ids, size_t count)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += ids[i] >= MARKER_ID_MIN && ids[i] <= MARKER_ID_MAX;
    return found;
}

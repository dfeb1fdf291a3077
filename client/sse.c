#include "client/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sse_init(struct sse *sse, sse_take_fn *take, void *context)
{
    *sse = (struct sse){.take = take, .context = context};
}

void sse_release(struct sse *sse)
{
    free(sse->line);
    free(sse->data);
    *sse = (struct sse){0};
}

void sse_restart(struct sse *sse)
{
    sse->line_size = 0;
    sse->data_size = 0;
    sse->has_data = false;
    sse->after_cr = false;
    sse->started = false;
    sse->type[0] = '\0';
    memcpy(sse->next_id, sse->id, sizeof(sse->id));
}

static bool append(char **text, size_t *size, const char *bytes, size_t count)
{
    char *grown;

    if (count > SSE_LINE_MAX - *size)
        return false;
    grown = realloc(*text, *size + count + 1);
    if (grown == NULL)
        return false;
    memcpy(grown + *size, bytes, count);
    *text = grown;
    *size += count;
    grown[*size] = '\0';
    return true;
}

static bool dispatch(struct sse *sse)
{
    struct sse_event event = {
        .id = sse->id,
        .type = sse->type[0] != '\0' ? sse->type : "message",
        .data = sse->data,
    };
    bool go_on = true;

    memcpy(sse->id, sse->next_id, sizeof(sse->id));
    if (sse->has_data)
        go_on = sse->take(sse->context, &event);
    sse->data_size = 0;
    sse->has_data = false;
    sse->type[0] = '\0';
    return go_on;
}

/* Digits alone count. */
static void read_retry(struct sse *sse, const char *value)
{
    size_t digits = strspn(value, "0123456789");

    if (digits > 0 && digits < 8 && value[digits] == '\0')
        sse->retry_ms = (long)strtoul(value, NULL, 10);
}

/* One whole line without its end. */
static bool take_line(struct sse *sse)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* of the byte order: may begin the stream */
    const char *line = sse->line_size > 0 ? sse->line : "";
    size_t size = sse->line_size, name_size;
    const char *colon, *value;

    if (!sse->started && size >= 3 && memcmp(line, mark, 3) == 0) {
        line += 3;
        size -= 3;
    }
    sse->started = true;
    colon = memchr(line, ':', size);
    if (size == 0)
        return dispatch(sse);
    if (colon == line)
        return true; /* a comment */
    name_size = colon != NULL ? (size_t)(colon - line) : size;
    value = colon != NULL ? colon + 1 : line + size;
    if (*value == ' ')
        value++;
    if (name_size == 4 && memcmp(line, "data", 4) == 0) {
        if (sse->has_data && !append(&sse->data, &sse->data_size, "\n", 1))
            return false;
        sse->has_data = true;
        return append(&sse->data, &sse->data_size, value, size - (size_t)(value - line));
    }
    if (memchr(value, 0, size - (size_t)(value - line)) != NULL)
        return true; /* no text: an id with a NUL is to be passed over */
    if (name_size == 2 && memcmp(line, "id", 2) == 0)
        (void)snprintf(sse->next_id, sizeof(sse->next_id), "%s", value);
    else if (name_size == 5 && memcmp(line, "retry", 5) == 0)
        read_retry(sse, value);
    else if (name_size == 5 && memcmp(line, "event", 5) == 0)
        (void)snprintf(sse->type, sizeof(sse->type), "%s", value);
    return true;
}

bool sse_feed(struct sse *sse, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t span = 0;

        while (i + span < size && bytes[i + span] != '\n' && bytes[i + span] != '\r')
            span++;
        if (span > 0) {
            if (!append(&sse->line, &sse->line_size, bytes + i, span))
                return false;
            sse->after_cr = false;
            i += span;
            continue;
        }
        bool second_half = bytes[i] == '\n' && sse->after_cr; /* of CRLF */

        sse->after_cr = bytes[i++] == '\r';
        if (second_half)
            continue;
        if (!take_line(sse))
            return false;
        sse->line_size = 0;
    }
    return true;
}

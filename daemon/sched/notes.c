#include "daemon/sched/notes.h"

#include "daemon/base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 1024

void notes_init(struct notes *notes)
{
    notes->count = 0;
    notes->failed = false;
}

void notes_release(struct notes *notes)
{
    if (!notes)
        return;
    for (size_t i = 0; i < notes->count; i++) {
        free((char *)(uintptr_t)notes->drafts[i].message); /* ours: the store only borrows */
        free((char *)(uintptr_t)notes->drafts[i].data_json);
    }
    notes->count = 0;
}

void notes_add(struct notes *notes, enum event_level level, const char *type, struct json *data,
               const char *format, ...)
{
    struct error ignored; /* only memory can be short: `failed` says it */
    char *message = malloc(MESSAGE_BYTES), *data_text = NULL;
    va_list arguments;

    if (!message || notes->count == NOTES_MAX || (!data && strcmp(type, "message") != 0) ||
        (data && !json_print_text(data, &data_text, &ignored))) {
        notes->failed = true;
        free(message);
        json_free(data);
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(message, MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    json_free(data);
    notes->drafts[notes->count++] = (struct event_draft){
        .level = level, .type = type, .message = message, .data_json = data_text};
}

struct json *notes_status(const char *state_name)
{
    struct json *data = json_new_object();

    json_add_string(data, "status", state_name);
    return data;
}

void notes_add_done(struct notes *notes, const char *state_name, const char *model)
{
    struct json *data = notes_status(state_name);

    json_add_string(data, "fine_tuned_model", model);
    notes_add(notes, EVENT_INFO, "done", data, "The job has ended: %s", state_name);
}

#include "api/tail.h"

#include "api/objects.h"
#include "daemon/base/json.h"
#include "store/events.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES_MAX ((size_t)16 << 20)

struct tail_entry {
    int64_t row, number;
    char job_id[STORE_ID_SIZE];
    char type[24];
    char *frame; /* without its id: "event: ...\ndata: ...\n\n" */
    size_t size;
};

struct tail {
    pthread_mutex_t lock;
    int64_t base_row, end_row; /* guarded by lock: holds the rows after base_row, up to end_row */
    size_t first, count, size_bytes;        /* guarded by lock */
    struct tail_entry entries[TAIL_EVENTS]; /* guarded by lock; a ring */
};

struct tail *tail_new(void)
{
    struct tail *tail = calloc(1, sizeof(*tail));

    if (!tail)
        return NULL;
    pthread_mutex_init(&tail->lock, NULL);
    tail->base_row = INT64_MAX; /* reaches back to nothing */
    return tail;
}

/* ---- with the lock held ---- */

static struct tail_entry *entry_at(struct tail *tail, size_t index)
{
    return &tail->entries[(tail->first + index) % TAIL_EVENTS];
}

static void drop_first(struct tail *tail)
{
    struct tail_entry *entry = entry_at(tail, 0);

    tail->base_row = entry->row;
    tail->size_bytes -= entry->size;
    free(entry->frame);
    tail->first = (tail->first + 1) % TAIL_EVENTS;
    tail->count--;
}

static void begin_locked(struct tail *tail, int64_t base_row)
{
    while (tail->count > 0)
        drop_first(tail);
    tail->base_row = tail->end_row = base_row;
}

/* The place of the first entry after that row. */
static size_t find_after(struct tail *tail, int64_t row)
{
    size_t low = 0, high = tail->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;

        if (entry_at(tail, middle)->row <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- frames ---- */

static bool render(const struct event_record *event, struct tail_entry *ret_entry)
{
    struct json *object = objects_event(event);
    struct buf text;
    bool ok;

    buf_init(&text, FRAME_BYTES_MAX);
    buf_format(&text, "event: %s\ndata: ", event->type);
    ok = object && json_print(object, &text, NULL);
    buf_append_text(&text, "\n\n");
    json_free(object);
    *ret_entry = (struct tail_entry){.row = event->row, .number = event->number};
    (void)snprintf(ret_entry->job_id, sizeof(ret_entry->job_id), "%s", event->job_id); /* as long */
    (void)snprintf(ret_entry->type, sizeof(ret_entry->type), "%s", event->type);
    ret_entry->frame = buf_take(&text, &ret_entry->size);
    if (ok && ret_entry->frame)
        return true;
    free(ret_entry->frame);
    buf_release(&text);
    return false;
}

static bool is_wanted(const struct tail_cursor *cursor, const struct tail_entry *entry)
{
    char marked[sizeof(entry->type) + 2];

    if (cursor->job_id[0] != '\0' &&
        (entry->number <= cursor->number || strcmp(cursor->job_id, entry->job_id) != 0))
        return false;
    if (cursor->types[0] == '\0')
        return true;
    (void)snprintf(marked, sizeof(marked), ",%s,", entry->type); /* made to fit */
    return strstr(cursor->types, marked) != NULL;
}

static void write_entry(struct tail_cursor *cursor, const struct tail_entry *entry, struct buf *out)
{
    const bool of_job = cursor->job_id[0] != '\0';

    if (is_wanted(cursor, entry)) {
        buf_format(out, "id: %lld\n", (long long)(of_job ? entry->number : entry->row));
        if (cursor->retry_ms > 0)
            buf_format(out, "retry: %lld\n", (long long)cursor->retry_ms);
        cursor->retry_ms = 0;
        buf_append(out, entry->frame, entry->size);
        cursor->number = entry->number;
        cursor->done = of_job && strcmp(entry->type, "done") == 0;
    }
    if (entry->row > cursor->row)
        cursor->row = entry->row;
}

/* ---- from outside ---- */

void tail_free(struct tail *tail)
{
    if (!tail)
        return;
    begin_locked(tail, 0);
    pthread_mutex_destroy(&tail->lock);
    free(tail);
}

void tail_begin(struct tail *tail, int64_t base_row)
{
    pthread_mutex_lock(&tail->lock);
    begin_locked(tail, base_row);
    pthread_mutex_unlock(&tail->lock);
}

void tail_add(struct tail *tail, const struct event_record *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct tail_entry entry;
        bool ok = render(&events[i], &entry);

        pthread_mutex_lock(&tail->lock);
        if (ok) {
            while (tail->count == TAIL_EVENTS ||
                   (tail->count > 0 && tail->size_bytes + entry.size > TAIL_BYTES))
                drop_first(tail);
            *entry_at(tail, tail->count++) = entry;
            tail->size_bytes += entry.size;
            tail->end_row = entry.row;
        } else {
            begin_locked(tail, events[i].row);
        }
        pthread_mutex_unlock(&tail->lock);
    }
}

bool tail_read(struct tail *tail, struct tail_cursor *cursor, size_t enough, struct buf *out)
{
    bool reaches;

    pthread_mutex_lock(&tail->lock);
    reaches = cursor->row >= tail->base_row;
    if (reaches) {
        for (size_t i = find_after(tail, cursor->row);
             i < tail->count && out->size < enough && !cursor->done && !out->failed; i++)
            write_entry(cursor, entry_at(tail, i), out);
    }
    pthread_mutex_unlock(&tail->lock);
    return reaches;
}

void tail_write(struct tail_cursor *cursor, const struct event_record *event, struct buf *out)
{
    struct tail_entry entry;

    if (!render(event, &entry)) {
        out->failed = true;
        return;
    }
    write_entry(cursor, &entry, out);
    free(entry.frame);
}

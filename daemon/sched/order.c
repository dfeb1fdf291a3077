#include "daemon/sched/order.h"

#include "daemon/base/json.h"
#include "daemon/sched/changes.h"
#include "daemon/sched/queue.h"
#include "store/line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked for ------------------------------------------------------------------------------ */

static bool read_end(const struct json *body, enum order_kind *ret_kind, struct error *err)
{
    const char *end = NULL;

    if (!json_get_string(body, "to", true, &end, err))
        return false;
    if (strcmp(end, "front") != 0 && strcmp(end, "back") != 0)
        return error_set_param(err, ERR_INVALID, "to",
                               "field 'to' is '%.32s', 'front' or 'back' is needed", end);
    *ret_kind = strcmp(end, "front") == 0 ? ORDER_FRONT : ORDER_BACK;
    return true;
}

static bool read_other(const struct json *body, const char *field, struct order_wish *wish,
                       struct error *err)
{
    const char *other = NULL;

    if (!json_get_string(body, field, true, &other, err))
        return false;
    if (strlen(other) >= sizeof(wish->other))
        return error_set_param(err, ERR_INVALID, field, "field '%s': there is no job '%.64s'",
                               field, other);
    (void)snprintf(wish->other, sizeof(wish->other), "%s", other);
    return true;
}

bool order_read(const struct json *body, struct order_wish *ret_wish, struct error *err)
{
    static const char *const known[] = {"position", "before", "after", "to", "priority", NULL};
    static const enum order_kind kinds[] = {ORDER_POSITION, ORDER_BEFORE, ORDER_AFTER, ORDER_FRONT,
                                            ORDER_PRIORITY};
    struct order_wish wish = *ret_wish;
    size_t given = 0;
    bool ok = false;

    if (json_kind_of(body) != JSON_OBJECT)
        return error_set(err, ERR_INVALID, "the body is not an object");
    if (!json_only_fields(body, known, err))
        return false;
    for (size_t i = 0; known[i]; i++) {
        if (json_member(body, known[i])) {
            wish.kind = kinds[i];
            given++;
        }
    }
    if (given != 1)
        return error_set(err, ERR_INVALID,
                         "%zu places are given, exactly one of 'position', 'before', 'after', 'to' "
                         "and 'priority' is needed",
                         given);
    switch (wish.kind) {
    case ORDER_POSITION:
        ok = json_get_int(body, "position", true, 1, INT32_MAX, &wish.number, err);
        break;
    case ORDER_BEFORE:
    case ORDER_AFTER:
        ok = read_other(body, wish.kind == ORDER_BEFORE ? "before" : "after", &wish, err);
        break;
    case ORDER_FRONT:
    case ORDER_BACK:
        ok = read_end(body, &wish.kind, err);
        break;
    case ORDER_PRIORITY:
        ok = json_get_int(body, "priority", true, -ORDER_PRIORITY_MAX, ORDER_PRIORITY_MAX,
                          &wish.number, err);
        break;
    }
    if (ok)
        *ret_wish = wish;
    return ok;
}

/* ---- the new line ----------------------------------------------------------------------------------- */

static size_t find(const struct line_entry *line, size_t count, const char *id)
{
    size_t index = 0;

    while (index < count && strcmp(line[index].id, id) != 0)
        index++;
    return index;
}

/* In front of which of the others (count: behind all) the job is to stand. */
static bool find_target(const struct order_wish *wish, const struct line_entry *others,
                        size_t count, size_t *ret_target, struct error *err)
{
    const char *field = wish->kind == ORDER_BEFORE ? "before" : "after";
    size_t target = 0;

    switch (wish->kind) {
    case ORDER_POSITION:
        target = (uint64_t)wish->number > count ? count : (size_t)wish->number - 1;
        break;
    case ORDER_BEFORE:
    case ORDER_AFTER:
        target = find(others, count, wish->other);
        if (target == count)
            return error_set_param(err, ERR_INVALID, field,
                                   "field '%s': no other job '%s' waits in the queue", field,
                                   wish->other);
        target += wish->kind == ORDER_AFTER;
        break;
    case ORDER_FRONT:
        break;
    case ORDER_BACK:
        target = count;
        break;
    case ORDER_PRIORITY:
        while (target < count && others[target].place.priority >= wish->number)
            target++;
        break;
    }
    *ret_target = target;
    return true;
}

/* The nearest priority to its own that may stand there. */
static int64_t fit_priority(int64_t own, const struct line_entry *others, size_t count,
                            size_t target)
{
    if (target > 0 && own > others[target - 1].place.priority)
        return others[target - 1].place.priority;
    if (target < count && own < others[target].place.priority)
        return others[target].place.priority;
    return own;
}

static int compare_positions(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

struct moving {
    struct line_entry *line; /* all that wait, as it will be */
    size_t count, index;     /* the moved one's */
    size_t first, end;       /* whose positions change */
};

/* Those of one priority share the positions they have out anew, in their order: all stay unique, and
 * below that of any later job. */
static bool share_positions(struct moving *moving, struct error *err)
{
    struct line_entry *line = moving->line;
    const int64_t priority = line[moving->index].place.priority;
    size_t first = moving->index, end = moving->index + 1;
    int64_t *positions = malloc(moving->count * sizeof(*positions));

    if (!positions)
        return error_set(err, ERR_NO_MEMORY, "no memory for the queue's order");
    while (first > 0 && line[first - 1].place.priority == priority)
        first--;
    while (end < moving->count && line[end].place.priority == priority)
        end++;
    for (size_t i = first; i < end; i++)
        positions[i - first] = line[i].place.position;
    qsort(positions, end - first, sizeof(*positions), compare_positions);
    for (size_t i = first; i < end; i++)
        line[i].place.position = positions[i - first];
    free(positions);
    moving->first = first;
    moving->end = end;
    return true;
}

/* ---- the move --------------------------------------------------------------------------------------- */

static bool refuse(struct queue *queue, const char *job_id, struct error *err)
{
    struct job_record job = {0};

    if (!jobs_get(queue->store, job_id, &job, err))
        return false;
    job_record_release(&job);
    return error_set(err, ERR_CONFLICT,
                     "job '%.48s' is %s: only a job that waits (validating_files, queued) can be "
                     "moved",
                     job_id, job_state_name(job.state));
}

static bool write(struct queue *queue, const struct moving *moving, struct error *err)
{
    const struct line_entry *moved = &moving->line[moving->index];
    struct json *data = json_new_object();
    struct notes notes;
    bool ok;

    notes_init(&notes);
    json_add_int(data, "queue_position", (int64_t)moving->index + 1);
    json_add_int(data, "priority", moved->place.priority);
    notes_add(&notes, EVENT_INFO, "message", data,
              "The job was moved to place %zu of %zu in the queue; its priority is %" PRId64,
              moving->index + 1, moving->count, moved->place.priority);
    ok = !notes.failed || error_set(err, ERR_NO_MEMORY, "no memory for an event");
    ok = ok && line_write(queue->store, &moving->line[moving->first], moving->end - moving->first,
                          moved->id, notes.drafts, err);
    notes_release(&notes);
    if (ok)
        changes_tell(queue, moved->id);
    return ok;
}

/* The job stands at index `from` of all that wait. */
static bool place(struct queue *queue, const struct order_wish *wish, struct line_entry *line,
                  size_t count, size_t from, struct error *err)
{
    struct moving moving = {.line = line, .count = count};
    struct line_entry moved = line[from];
    const int64_t before = moved.place.priority;
    size_t target;

    memmove(&line[from], &line[from + 1], (count - from - 1) * sizeof(*line));
    if (!find_target(wish, line, count - 1, &target, err))
        return false;
    if (wish->kind == ORDER_PRIORITY)
        moved.place.priority = wish->number;
    else
        moved.place.priority = fit_priority(before, line, count - 1, target);
    if (before == moved.place.priority && (target == from || wish->kind == ORDER_PRIORITY))
        return true; /* as it is */
    memmove(&line[target + 1], &line[target], (count - target - 1) * sizeof(*line));
    line[target] = moved;
    moving.index = target;
    return share_positions(&moving, err) && write(queue, &moving, err);
}

bool order_move(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const struct order_wish *wish = arguments;
    struct line_entry *line = NULL;
    size_t count = 0, from;
    bool ok;

    if (!line_list(queue->store, &line, &count, err))
        return false;
    from = find(line, count, wish->job_id);
    ok = from < count ? place(queue, wish, line, count, from, err)
                      : refuse(queue, wish->job_id, err);
    free(line);
    return ok;
}

#include "daemon/sched/sweep.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/sched/changes.h"
#include "daemon/sched/queue.h"
#include "daemon/sched/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_ID_DIGITS 24
#define AXES_MAX 32 /* more than there are hyper-parameters */

/* ---- lists in a body ---------------------------------------------------------------------------------- */

/* The objects of a body that hold hyper-parameters, or objects that do. */
enum level { LEVEL_BODY, LEVEL_METHOD, LEVEL_SUPERVISED, LEVEL_HYPER, LEVEL_NONE };

static enum level level_of(enum level level, const struct json *member)
{
    const char *name = json_name(member);

    if (json_kind_of(member) != JSON_OBJECT)
        return LEVEL_NONE;
    if (level == LEVEL_BODY && strcmp(name, "method") == 0)
        return LEVEL_METHOD;
    if (level == LEVEL_METHOD && strcmp(name, "supervised") == 0)
        return LEVEL_SUPERVISED;
    if ((level == LEVEL_BODY || level == LEVEL_SUPERVISED) && strcmp(name, "hyperparameters") == 0)
        return LEVEL_HYPER;
    return LEVEL_NONE;
}

static bool is_axis(enum level level, const struct json *member)
{
    return json_kind_of(member) == JSON_ARRAY &&
           (level == LEVEL_HYPER ||
            (level == LEVEL_BODY && strcmp(json_name(member), "seed") == 0));
}

struct axes {
    const struct json *lists[AXES_MAX]; /* of the body; the key is the name */
    size_t chosen[AXES_MAX];            /* an index of each */
    size_t count;
    bool overflow;
};

/* No deeper than the levels are. */
static void find_axes(const struct json *object, enum level level, struct axes *axes)
{
    for (const struct json *member = json_first(object); member; member = json_next(member)) {
        const enum level inner = level_of(level, member);

        if (inner != LEVEL_NONE)
            find_axes(member, inner, axes);
        else if (!is_axis(level, member))
            continue;
        else if (axes->count == AXES_MAX)
            axes->overflow = true;
        else
            axes->lists[axes->count++] = member;
    }
}

bool sweep_is_meant(const struct json *body)
{
    struct axes axes = {0};

    if (json_kind_of(body) == JSON_OBJECT)
        find_axes(body, LEVEL_BODY, &axes);
    return axes.count > 0;
}

/* ---- the single bodies ---------------------------------------------------------------------------------- */

static const struct json *chosen_value(const struct axes *axes, const struct json *list)
{
    for (size_t i = 0; i < axes->count; i++) {
        if (axes->lists[i] == list)
            return json_at(list, axes->chosen[i]);
    }
    return list;
}

/* A copy with the chosen values in the places of the lists. */
static struct json *settle(const struct json *object, enum level level, const struct axes *axes)
{
    struct json *copy = json_new_object();

    for (const struct json *member = json_first(object); member; member = json_next(member)) {
        const enum level inner = level_of(level, member);

        if (inner != LEVEL_NONE)
            json_add(copy, json_name(member), settle(member, inner, axes));
        else if (is_axis(level, member))
            json_add(copy, json_name(member), json_copy(chosen_value(axes, member)));
        else
            json_add(copy, json_name(member), json_copy(member));
    }
    return copy;
}

static bool is_same(const struct json *a, const struct json *b)
{
    if (json_kind_of(a) != json_kind_of(b))
        return false;
    if (json_kind_of(a) == JSON_NUMBER)
        return !(json_number(a) < json_number(b)) && !(json_number(a) > json_number(b));
    return json_kind_of(a) == JSON_STRING && strcmp(json_text(a), json_text(b)) == 0;
}

static bool check_list(const struct json *list, struct error *err)
{
    const char *name = json_name(list);
    size_t index = 0;

    if (json_count(list) == 0)
        return error_set_param(err, ERR_INVALID, name, "field '%.48s' is an empty list of values",
                               name);
    for (const struct json *value = json_first(list); value; value = json_next(value), index++) {
        size_t other_index = 0;

        if (json_kind_of(value) != JSON_NUMBER && json_kind_of(value) != JSON_STRING)
            return error_set_param(err, ERR_INVALID, name,
                                   "field '%.48s[%zu]' is neither a number nor a text", name,
                                   index);
        for (const struct json *other = json_first(list); other != value;
             other = json_next(other), other_index++) {
            if (is_same(value, other))
                return error_set_param(err, ERR_INVALID, name,
                                       "field '%.48s' has a value twice, at %zu and %zu", name,
                                       other_index, index);
        }
    }
    return true;
}

static bool count_jobs(const struct axes *axes, size_t *ret_count, struct error *err)
{
    size_t count = 1;

    if (axes->overflow)
        return error_set_param(err, ERR_INVALID, "hyperparameters",
                               "more than %d fields are lists of values", AXES_MAX);
    for (size_t i = 0; i < axes->count; i++) {
        const char *name = json_name(axes->lists[i]);

        count *=
            json_count(axes->lists[i]); /* at most LIMIT_SWEEP_JOBS by a body's entries: fits */
        if (count > LIMIT_SWEEP_JOBS)
            return error_set_param(err, ERR_INVALID, name,
                                   "with field '%.48s' the lists of values make %zu jobs or more, "
                                   "at most %d are made at once",
                                   name, count, LIMIT_SWEEP_JOBS);
        if (!check_list(axes->lists[i], err)) /* after the count, which bounds it */
            return false;
    }
    *ret_count = count;
    return true;
}

/* The last list changes fastest. */
static void choose(struct axes *axes, size_t index)
{
    for (size_t i = axes->count; i > 0; i--) {
        const size_t count = json_count(axes->lists[i - 1]);

        axes->chosen[i - 1] = index % count;
        index /= count;
    }
}

void sweep_bodies_release(struct sweep_bodies *bodies)
{
    if (!bodies)
        return;
    for (size_t i = 0; i < bodies->count; i++)
        json_free(bodies->items[i]);
    json_free(bodies->varied);
    *bodies = (struct sweep_bodies){0};
}

bool sweep_expand(const struct json *body, struct sweep_bodies *ret_bodies, struct error *err)
{
    struct axes axes = {0};
    size_t count = 0;

    *ret_bodies = (struct sweep_bodies){0};
    if (json_kind_of(body) != JSON_OBJECT)
        return error_set(err, ERR_INVALID, "the body is not an object");
    find_axes(body, LEVEL_BODY, &axes);
    if (axes.count == 0)
        return error_set_param(err, ERR_INVALID, "hyperparameters",
                               "nothing is varied: a list of values is needed for at least one "
                               "hyper-parameter, or for 'seed'");
    if (!count_jobs(&axes, &count, err))
        return false;
    ret_bodies->varied = json_new_object();
    for (size_t i = 0; i < axes.count; i++)
        json_add(ret_bodies->varied, json_name(axes.lists[i]), json_copy(axes.lists[i]));
    for (size_t i = 0; i < count; i++) {
        choose(&axes, i);
        ret_bodies->items[ret_bodies->count++] = settle(body, LEVEL_BODY, &axes);
        if (!json_is_whole(ret_bodies->items[i])) {
            sweep_bodies_release(ret_bodies);
            return error_set(err, ERR_NO_MEMORY, "no memory for a sweep");
        }
    }
    return true;
}

/* ---- made ----------------------------------------------------------------------------------------------- */

/* Of every job, what needs no file: a value that is wrong is told before a file that is not there. */
static bool check_values(const struct sweep_bodies *bodies, struct error *err)
{
    struct request *read = calloc(1, sizeof(*read));
    bool ok = read != NULL || error_set(err, ERR_NO_MEMORY, "no memory for a sweep");

    for (size_t i = 0; ok && i < bodies->count; i++)
        ok = request_read(bodies->items[i], read, err);
    free(read);
    return ok;
}

static bool read_jobs(const struct scheduler_options *options, struct store *store,
                      const struct sweep_bodies *bodies, struct sweep *sweep, struct error *err)
{
    for (size_t i = 0; i < bodies->count; i++) {
        struct job_record *job = &sweep->jobs[i];

        if (i == 0)
            *job = sweep->asked.job; /* it has no texts yet */
        memcpy(job->owner, sweep->asked.job.owner, sizeof(job->owner));
        memcpy(job->sweep_id, sweep->record.id, sizeof(job->sweep_id));
        if (!submission_read(options, store, bodies->items[i], job, err))
            return false;
        sweep->count++;
    }
    return true;
}

bool sweep_read(const struct scheduler_options *options, struct store *store,
                const struct json *body, struct sweep *sweep, struct error *err)
{
    struct sweep_record *record = &sweep->record;
    struct sweep_bodies bodies;
    bool ok;

    if (!sweep_expand(body, &bodies, err))
        return false;
    record->created_unix_s = clock_unix_s();
    memcpy(record->owner, sweep->asked.job.owner, sizeof(record->owner));
    ok = file_random_id(record->id, sizeof(record->id), "ftsweep-", SWEEP_ID_DIGITS, err) &&
         json_print_text(body, &record->request_json, err) &&
         json_print_text(bodies.varied, &record->varied_json, err) && check_values(&bodies, err) &&
         read_jobs(options, store, &bodies, sweep, err);
    sweep_bodies_release(&bodies);
    return ok;
}

void sweep_release(struct sweep *sweep)
{
    if (!sweep)
        return;
    for (size_t i = 0; i < sweep->count; i++)
        job_record_release(&sweep->jobs[i]);
    sweep_record_release(&sweep->record);
    sweep->count = 0;
}

static bool insert(struct queue *queue, const struct sweep *sweep, struct error *err)
{
    struct notes notes;
    bool ok;

    static_assert(NOTES_MAX >= LIMIT_SWEEP_JOBS, "a note for every job");
    notes_init(&notes);
    for (size_t i = 0; i < sweep->count; i++) {
        struct json *data = notes_status(job_state_name(JOB_VALIDATING_FILES));

        json_add_string(data, "sweep_id", sweep->record.id);
        notes_add(&notes, EVENT_INFO, "state", data,
                  "Created fine-tuning job %s of sweep %s; validating its files", sweep->jobs[i].id,
                  sweep->record.id);
    }
    ok = !notes.failed || error_set(err, ERR_NO_MEMORY, "no memory for a sweep");
    ok = ok &&
         sweeps_insert(queue->store, &sweep->record, sweep->jobs, notes.drafts, sweep->count, err);
    notes_release(&notes);
    return ok;
}

bool sweep_keep(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct sweep *sweep = arguments;

    if (!submission_find_repeat(queue->store, &sweep->asked, err))
        return false;
    if (sweep->asked.repeated_id[0])
        return true;
    if (!jobs_check_room(queue->store, sweep->record.owner, sweep->asked.jobs_max,
                         (int64_t)sweep->count, err) ||
        !insert(queue, sweep, err))
        return false;
    for (size_t i = 0; i < sweep->count; i++)
        changes_tell(queue, sweep->jobs[i].id);
    return true;
}

/* ---- cancelled ------------------------------------------------------------------------------------------ */

static bool cancel_jobs(struct queue *queue, struct job_record *jobs, size_t count,
                        struct sweep_end *end, struct error *err)
{
    bool was_cancelled = false;

    for (size_t i = 0; i < count; i++) {
        was_cancelled = was_cancelled || jobs[i].state == JOB_CANCELLED;
        if (job_state_is_final(jobs[i].state))
            continue;
        if (!queue_cancel(queue, jobs[i].id, err))
            return false;
        memcpy(end->job_ids[end->count++], jobs[i].id, sizeof(jobs[i].id));
    }
    if (end->count == 0 && !was_cancelled)
        return error_set(err, ERR_CONFLICT,
                         "all jobs of sweep '%.48s' have ended: it cannot be cancelled",
                         end->sweep_id);
    return true;
}

bool sweep_cancel(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    struct sweep_end *end = arguments;
    struct job_record *jobs = NULL;
    size_t count = 0;
    bool ok;

    if (!jobs_list_sweep(queue->store, end->sweep_id, &jobs, &count, err))
        return false;
    ok = count > 0 ? cancel_jobs(queue, jobs, count, end, err)
                   : error_set(err, ERR_NOT_FOUND, "no sweep '%.64s'", end->sweep_id);
    jobs_free(jobs, count);
    return ok;
}
